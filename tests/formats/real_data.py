"""What the readers make of real configurations, as the table in docs/formats.md.

The configurations are not part of the project. `PYTHONPATH=. python tests/formats/real_data.py` writes the generated
parts of docs/formats.md anew; test_real_data.py holds them to what the readers say.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from orchestrator.errors import AclflowError
from orchestrator.policy.formats.registry import FORMATS, read, read_all
from orchestrator.policy.formats.results import Effect, Imported, Options

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "formats.md"
DATA = Path(os.environ.get("ACLFLOW_DATA", ROOT / ".." / "shared" / "data"))


def iptables_files() -> list[Path]:
    return [
        path
        for path in sorted((DATA / "iptables").rglob("*"))
        if path.is_file() and not path.name.startswith(("LICENSE", "README"))
    ]


def cisco_files() -> list[Path]:
    return sorted((DATA / "cisco").glob("*_config.txt"))


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def counts(imported: Imported) -> tuple[int, int, int, int]:
    """Rules, permits left out, denies widened, rules refused."""
    losses = Counter(loss.effect for loss in imported.losses)
    return (len(imported.acl.rules), losses[Effect.NARROWER], losses[Effect.WIDER], losses[Effect.REFUSED])


def iptables_table() -> list[str]:
    lines = [
        row("iptables-save", "rules", "permits left out", "denies widened", "refused", "the same with `stateless`"),
        row("---", *["---:"] * 4, "---"),
    ]
    for path in iptables_files():
        name = str(path.relative_to(DATA / "iptables"))
        strict = counts(read(path.read_bytes(), "iptables", name=name))
        stateless = counts(read(path.read_bytes(), "iptables", name=name, options=Options(stateless=True)))
        lines.append(row(f"`{name}`", *strict, " / ".join(map(str, stateless))))
    return lines


def cisco_table() -> list[str]:
    lines = [row("router", "lists", "rules", "losses"), row("---", "---:", "---:", "---:")]
    for path in cisco_files():
        found = read_all(path.read_bytes(), name=path.name)
        rules = sum(len(imported.acl.rules) for imported in found.values())
        losses = sum(len(imported.losses) for imported in found.values())
        lines.append(row(f"`{path.name}`", len(found), rules, losses))
    return lines


def formats_table() -> list[str]:
    lines = [row("format", "what it is", "file names", "read", "written"), row(*["---"] * 5)]
    for found in FORMATS.values():
        suffixes = " ".join(f"`{suffix}`" for suffix in found.suffixes)
        lines.append(row(f"`{found.name}`", found.summary, suffixes, "yes", "yes" if found.write else "no"))
    return lines


def with_parts(text: str, parts: dict[str, list[str]]) -> str:
    """The document with the lines between `<!-- name -->` and `<!-- end -->` replaced."""
    for name, lines in parts.items():
        start = text.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
        end = text.index("<!-- end -->", start)
        text = text[:start] + "\n".join(lines) + "\n" + text[end:]
    return text


def main() -> int:
    parts = {"formats": formats_table()}
    if DATA.is_dir():
        parts |= {"iptables": iptables_table(), "cisco": cisco_table()}
    try:
        DOCUMENT.write_text(with_parts(DOCUMENT.read_text(), parts))
    except AclflowError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
