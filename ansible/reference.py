"""Writes the collection's reference page from what modules, plugins and roles say of themselves (`make docs`)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
_SHARED = "service"
"""What all modules take."""
_HEAD = """# The collection aclflow.cloud

Made by `make docs` from what modules, plugins and roles say of themselves; [deploy.md](deploy.md) says how to use them.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, "## Playbooks\n", *_playbooks(), "## Roles\n"]
    for folder in sorted((HERE / "roles").iterdir()):
        parts += _role(folder)
    parts.append("## Modules\n")
    parts += ["All modules take these:\n", _options(_fragment(_SHARED))]
    for file in sorted((HERE / "plugins/modules").glob("*.py")):
        parts += _plugin(file, "###")
    parts.append("## Inventory\n")
    parts += _plugin(HERE / "plugins/inventory/aclflow.py", "###")
    return "\n".join(parts)


def _playbooks() -> Iterator[str]:
    for file in sorted((HERE / "playbooks").glob("*.yml")):
        lines = file.read_text().splitlines()[1:]
        said = [line.removeprefix("#").strip() for line in lines[: _first(lines)]]
        yield f"- `aclflow.cloud.{file.stem}`: {' '.join(said)}"
    yield ""


def _first(lines: list[str]) -> int:
    return next(index for index, line in enumerate(lines) if not line.startswith("#"))


def _role(folder: Path) -> Iterator[str]:
    spec = yaml.safe_load((folder / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    yield f"### {folder.name}\n"
    yield f"{' '.join(spec['description'])}\n"
    yield _options(spec["options"])


def _plugin(file: Path, mark: str) -> Iterator[str]:
    said = yaml.safe_load(_said(file))
    yield f"{mark} aclflow.cloud.{file.stem}\n"
    yield f"{_plain(said['description'])}\n"
    fragments = [name.rpartition(".")[2] for name in said.get("extends_documentation_fragment", ())]
    own = [_fragment(name) for name in fragments if name != _SHARED]
    yield _options({name: option for options in (*own, said["options"]) for name, option in options.items()})
    yield f"```yaml\n{_said(file, 'EXAMPLES').strip()}\n```\n"


def _fragment(name: str) -> dict[str, Any]:
    """The options that several modules share."""
    return dict(yaml.safe_load(_said(HERE / f"plugins/doc_fragments/{name}.py"))["options"])


def _options(options: Mapping[str, Mapping[str, Any]]) -> str:
    rows = ["| name | type | default | what |", "| --- | --- | --- | --- |"]
    for name, option in options.items():
        kind = option.get("type", "str") + (f" of {option['elements']}" if "elements" in option else "")
        default = "required" if option.get("required") else str(option.get("default", ""))
        text = _plain(option["description"])
        if "choices" in option:
            text += f" One of {', '.join(map(str, option['choices']))}."
        rows.append(f"| `{name}` | {kind} | {default} | {text} |")
    return "\n".join(rows) + "\n"


def _plain(words: str | list[str]) -> str:
    """A description without Ansible's own marks."""
    text = " ".join(words) if isinstance(words, list) else words
    for mark in ("V", "O", "C", "P"):
        while (start := text.find(f"{mark}(")) >= 0:
            end = text.index(")", start)
            text = f"{text[:start]}`{text[start + 2 : end]}`{text[end + 1 :]}"
    return text


def _said(file: Path, name: str = "DOCUMENTATION") -> str:
    """A text that a plugin assigns to a name."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return str(ast.literal_eval(node.value))
    raise ValueError(f"{file} says no {name}")


if __name__ == "__main__":
    sys.stdout.write(page())
