"""What the readers make of real configurations, as the table in docs/formats.md.

The configurations are not part of the project. `PYTHONPATH=.:tests python tests/formats/real_data.py` writes the
generated parts of docs/formats.md anew; test_real_data.py holds them to what the readers say.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from public_data import DATA

from orchestrator.errors import AclflowError
from orchestrator.policy.formats.registry import FORMATS, guess, read, read_all
from orchestrator.policy.formats.results import Effect, Imported, Options

FOLDERS = (
    "iptables",
    "cisco",
    "batfish/acl_configs",
    "batfish/networks",
    "aerleon/policies",
    "aerleon/def",
    "aerleon/tests/regression",
    "classbench",
)
_QUOTED = re.compile(r"'[^']*'")
ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "formats.md"
OPTIONS = {
    "addresses": "--address",
    "chains": "--chain",
    "classbench_action": "--action",
    "definitions": "--definitions",
    "direction": "--direction",
    "includes": "--includes",
    "lists": "--list",
    "stateless": "--stateless",
    "interfaces": "--in-interface",
}
"""How the fields of Options are called on the command line."""


def iptables_files() -> list[Path]:
    return [
        path
        for path in sorted((DATA / "iptables").rglob("*"))
        if path.is_file() and not path.name.startswith(("LICENSE", "README"))
    ]


def cisco_files() -> list[Path]:
    return sorted((DATA / "cisco").glob("*_config.txt"))


def aerleon_texts() -> Options:
    """The definitions and includes that the policies name."""
    folder = DATA / "aerleon"
    includes = sorted((folder / "policies" / "includes").glob("*"))
    return Options(
        definitions={path.name: path.read_text() for path in sorted((folder / "def").glob("*"))},
        includes={f"includes/{path.name}": path.read_text() for path in includes},
    )


def every_file() -> list[Path]:
    """All files that were published as configurations, policies, or what was made of them."""
    found = (path for folder in FOLDERS for path in (DATA / folder).rglob("*") if path.is_file())
    return sorted(path for path in found if not path.name.startswith(("LICENSE", "README")))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a file came to: its format and its lists, or the reason why it holds none."""

    path: Path
    format: str = ""
    lists: Mapping[str, Imported] = field(default_factory=dict)
    refusal: str = ""

    @property
    def name(self) -> str:
        return self.path.relative_to(DATA).as_posix()

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Rules, permits left out, denies widened, lists refused."""
        each = [counts(imported) for imported in self.lists.values()] or [(0, 0, 0, 0)]
        return tuple(map(sum, zip(*each, strict=True)))  # type: ignore[return-value]


def outcomes() -> tuple[Outcome, ...]:
    """What every file came to."""
    return tuple(map(outcome, every_file()))


@cache
def outcome(path: Path) -> Outcome:
    """A file read as whoever knows nothing of it would: the format told by sight, every list by itself."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        told = guess(data.decode(), path.name).name
        return Outcome(path, told, read_all(data, told, name="", options=aerleon_texts()))
    except AclflowError as error:
        return Outcome(path, refusal=error.reason)


def folders_table() -> list[str]:
    """One line a folder: files that hold lists, the lists, their rules and losses, and files that hold none."""
    lines = [
        row("folder", "files", "with lists", "lists", "exact", "rules", "losses", "without lists"),
        row("---", *["---:"] * 7),
    ]
    for folder in FOLDERS:
        here = [one for one in outcomes() if one.path.is_relative_to(DATA / folder)]
        lists = [imported for one in here for imported in one.lists.values()]
        found = [one for one in here if not one.refusal]
        exact, losses = sum(one.exact for one in lists), sum(len(one.losses) for one in lists)
        rules, without = sum(len(one.acl.rules) for one in lists), len(here) - len(found)
        lines.append(row(f"`{folder}`", len(here), len(found), len(lists), exact, rules, losses, without))
    return lines


def files_table(folder: str, *, title: str) -> list[str]:
    """One line for each file of a folder that holds lists."""
    lines = [
        row(title, "format", "lists", "rules", "permits left out", "denies widened", "lists refused"),
        row("---", "---", *["---:"] * 5),
    ]
    for one in outcomes():
        if one.path.is_relative_to(DATA / folder) and not one.refusal:
            name = one.path.relative_to(DATA / folder).as_posix()
            lines.append(row(f"`{name}`", one.format, len(one.lists), *one.counts))
    return lines


def refusals_table() -> list[str]:
    """Why files hold no list that is known here, and how many."""
    reasons = Counter(_QUOTED.sub("...", one.refusal.partition("; name it")[0]) for one in outcomes() if one.refusal)
    lines = [row("what is said of files that hold no list known here", "files"), row("---", "---:")]
    return lines + [row(reason, count) for reason, count in reasons.most_common()]


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
    lines = [row("format", "what it is", "file names", "written", "options"), row(*["---"] * 5)]
    for found in FORMATS.values():
        suffixes = " ".join(f"`{suffix}`" for suffix in found.suffixes)
        options = " ".join(f"`{OPTIONS[option]}`" for option in found.options)
        lines.append(row(f"`{found.name}`", found.summary, suffixes, "yes" if found.write else "no", options))
    return lines


def with_parts(text: str, parts: dict[str, list[str]]) -> str:
    """The document with the lines between `<!-- name -->` and `<!-- end -->` replaced."""
    for name, lines in parts.items():
        start = text.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
        end = text.index("<!-- end -->", start)
        text = text[:start] + "\n".join(lines) + "\n" + text[end:]
    return text


def data_parts() -> dict[str, list[str]]:
    """The parts of the document that come from the configurations."""
    return {
        "folders": folders_table(),
        "refusals": refusals_table(),
        "iptables": iptables_table(),
        "cisco": cisco_table(),
        "batfish": files_table("batfish", title="batfish"),
        "aerleon": files_table("aerleon/policies/pol", title="Aerleon"),
    }


def main() -> int:
    parts = {"formats": formats_table()}
    if DATA.is_dir():
        parts |= data_parts()
    try:
        DOCUMENT.write_text(with_parts(DOCUMENT.read_text(), parts))
    except AclflowError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
