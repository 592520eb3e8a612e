"""From the tree of commands to a Typer application whose commands are loaded when they are called."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import typer
import typer.core
import typer.main

from orchestrator.cli import shell
from orchestrator.cli.tree import Branch, Leaf
from orchestrator.errors import BadInput

_DELETES = MappingProxyType({"remove": "delete", "delete": "remove", "rm": "delete"})
"""What people type for the other where a group has only one of them."""
CONTEXT = {"help_option_names": ["-h", "--help"]}


class LazyGroup(typer.core.TyperGroup):
    """A group that knows its commands by name and summary, and loads the one that is called."""

    branch: Branch
    """Each group's own: a class is made for it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in the order of the tree."""
        present = super().list_commands(ctx)
        return [child.name for child in self.branch.children if child.name in present]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Typer's, with the real command in the place of its sign; old spellings answer with the new ones.

        Raises BadInput for an old spelling.
        """
        moved = next((each for each in self.branch.moved if args and each.name == args[0]), None)
        if moved is not None and not shell.is_completing():
            typed = shlex.join(args[1:]) or "..."
            raise BadInput(f"it is called `aclflow {moved.to.replace('...', typed)}` now", place=ctx.command_path)
        named = [*args]
        if named and named[0] not in super().list_commands(ctx):
            named[0] = _DELETES.get(named[0], named[0])
        name, command, rest = super().resolve_command(ctx, named)
        leaf = next((child for child in self.branch.children if child.name == name), None)
        return name, load(leaf) if isinstance(leaf, Leaf) else command, rest


def load(leaf: Leaf) -> Any:
    """The command of a leaf, from its module; while a shell completes, what stands for it, if that is known."""
    target = shell.standing_for(leaf.target) if shell.is_completing() else None
    if target is None:
        module, _, attribute = leaf.target.partition(":")
        target = getattr(importlib.import_module(module), attribute)
        if isinstance(target, typer.Typer):
            return typer.main.get_command(target)
        if shell.is_completing():
            shell.remember(leaf.target, target)
    alone = typer.Typer(add_completion=False)
    alone.command(leaf.name, help=_paragraphs(target), context_settings=CONTEXT)(target)
    return typer.main.get_command(alone)


def _paragraphs(function: Callable[..., None]) -> str:
    """A function's documentation with one line for each paragraph, to be broken where the terminal ends."""
    text = inspect.getdoc(function) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def application(branch: Branch) -> typer.Typer:
    """The Typer application of a branch: groups for its branches, signs for its leaves."""
    group = type(f"{branch.name.title()}Group", (LazyGroup,), {"branch": branch})
    app = typer.Typer(
        name=branch.name,
        cls=group,
        help=branch.summary,
        no_args_is_help=True,
        context_settings=CONTEXT,
        pretty_exceptions_enable=False,
    )
    for child in branch.children:
        if isinstance(child, Leaf):
            app.command(child.name, help=child.summary)(_sign)
        else:
            app.add_typer(application(child), name=child.name)
    return app


def _sign() -> None:
    """Stands for a command in listings."""
