"""Writes what follows from the code: the sample of a settings file, and completion for shells. `make docs` runs it.

packaging/aclflow.yaml         every setting with what it says and its default, from `orchestrator/settings.py`
packaging/completions/         what `aclflow --show-completion` prints, for bash, zsh and fish
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields
from pathlib import Path

import yaml
from typer._completion_shared import get_completion_script

from orchestrator import settings
from orchestrator.cli.shell import COMPLETING

FOLDER = Path(__file__).resolve().parent

_HEAD = """\
# Settings of aclflow. Copy this to /etc/aclflow/aclflow.yaml, take the `#` from what is to be otherwise, and name the
# file in ACLFLOW_CONFIG. What stands here is each setting's default. A variable of the environment goes over the file:
# ACLFLOW_LISTEN_PORT over `listen_port`. A name that is none of these is refused.
"""

_DERIVED = {"database_url": ""}
"""Defaults that follow from other settings: what is set is that nothing is set."""

COMPLETIONS = {"bash": "aclflow.bash", "zsh": "_aclflow", "fish": "aclflow.fish"}


def sample() -> str:
    """The sample of a settings file, all of it commented out."""
    says, defaults = _sayings(), settings.Settings()
    parts = [_HEAD]
    for each in fields(settings.Settings):
        default = _DERIVED.get(each.name, getattr(defaults, each.name))
        words = textwrap.wrap(" ".join(says.get(each.name, "").replace("``", "`").split()), 116)
        line = yaml.safe_dump({each.name: _scalar(default)}).strip()
        parts.append("\n" + "".join(f"# {word}\n" for word in words) + f"#{line}\n")
    return "".join(parts)


def completion(shell: str) -> str:
    """The script that makes a shell ask aclflow what may come next."""
    return get_completion_script(prog_name="aclflow", complete_var=COMPLETING, shell=shell) + "\n"


def _scalar(value: object) -> str | int | float | bool:
    if value is None:
        return ""
    return value if isinstance(value, (bool, int, float)) else str(value)


def _sayings() -> dict[str, str]:
    """The sentence under each field, which Python itself does not keep."""
    body = ast.parse(inspect.getsource(settings.Settings)).body[0]
    assert isinstance(body, ast.ClassDef)
    found, name = {}, None
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif name and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            found[name] = str(statement.value.value)
            name = None
        else:
            name = None
    return found


def generated() -> dict[Path, str]:
    """Every file that is written, with what is to be in it."""
    scripts = {FOLDER / "completions" / name: completion(shell) for shell, name in COMPLETIONS.items()}
    return {FOLDER / "aclflow.yaml": sample(), **scripts}


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content)
