"""Make a Typer application from the tree of commands, which loads commands when called."""

from __future__ import annotations

import difflib
import importlib
import inspect
import shlex
from collections.abc import Callable, Collection
from typing import Any

import typer
import typer.core
import typer.main

from orchestrator.cli import shell
from orchestrator.cli.branches.shape import Branch, Leaf
from orchestrator.cli.tree import SYNONYMS, TREE, VERBS
from orchestrator.errors import BadInput

_HOME = "orchestrator.cli"
_A_TYPING_ERROR = 0.8
"""From this likeness on a word is taken for a command with a typing error, not for an argument."""
CONTEXT = {"help_option_names": ["-h", "--help"]}


class LazyGroup(typer.core.TyperGroup):
    """A group that knows commands by name and summary, and loads the called one."""

    branch: Branch
    """Each group's own: a class is made for it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in the order of the tree."""
        present = super().list_commands(ctx)
        return [child.name for child in self.branch.children if child.name in present]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Resolve a command as Typer does, but load the real command.

        It is put in the place of its sign. Words that people bring from other tools are understood, too. Raises
        BadInput, with the right spelling, for an old one and for a verb before its noun.
        """
        words = translate(args, _list_names(self.branch))
        if not shell.is_completing():
            words = self._words_for_help(ctx, words)
            self._refuse_spelling(ctx, words)
        name, command, rest = super().resolve_command(ctx, words)
        leaf = next((child for child in self.branch.children if child.name == name), None)
        return name, load(leaf) if isinstance(leaf, Leaf) else command, rest

    def _words_for_help(self, ctx: Any, words: list[str]) -> list[str]:
        """Turn `help` and `help NOUN VERB` into --help.

        Ends where help on this group is asked for.
        """
        if not words or words[0] != "help":
            return words
        if not words[1:]:
            typer.echo(ctx.get_help())
            raise typer.Exit
        return [*translate(words[1:], _list_names(self.branch)), "--help"]

    def _refuse_spelling(self, ctx: Any, words: list[str]) -> None:
        """Answer a spelling that is not ours with the one that is. Raises BadInput."""
        names = _list_names(self.branch)
        if not words or words[0] in names or words[0].startswith("-"):
            return
        word, rest = words[0], words[1:]
        moved = {each.name: each.to for each in self.branch.moved}
        if word in moved:
            raise BadInput(f"it is called `aclflow {moved[word].replace('...', shlex.join(rest)).strip()}`")
        noun, *more = translate(rest, {*names, *moved}) or [""]
        if word in VERBS or word in SYNONYMS:
            branch = next(
                (each for each in self.branch.children if isinstance(each, Branch) and each.name == noun), None
            )
            said = translate([word, *more], _list_names(branch)) if branch else [word, *more]
            if branch or moved.get(noun, "").endswith("..."):
                called = (
                    f"aclflow {moved[noun].removesuffix(' ...')}" if noun in moved else f"{ctx.command_path} {noun}"
                )
                raise BadInput(f"the noun comes first: `{called} {shlex.join(said)}`")
        if word in VERBS or word in SYNONYMS:
            raise BadInput(f"there is no command '{word}': {ctx.command_path} has {', '.join(sorted(names))}")
        order = ("show", "list") if self.branch in TREE.children else ("list", "show")
        verb = next((each for each in order if each in names), None)
        if verb is not None and not difflib.get_close_matches(word, names, cutoff=_A_TYPING_ERROR):
            meant = f"{ctx.command_path} {shlex.join([verb, *words])}"
            raise BadInput(f"there is no command '{word}': did you mean `{meant}`?")


def _list_names(branch: Branch) -> frozenset[str]:
    return frozenset(child.name for child in branch.children)


def translate(words: list[str], names: Collection[str]) -> list[str]:
    """Return the words with a command's own name in front, where a synonym is meant.

    Otherwise they are returned as they are. `ls` is `list`; `rules` is `rule`; `get` is `show` with an argument and
    `list` without.
    """
    if not words or words[0] in names:
        return words
    word, rest = words[0], words[1:]
    meant = SYNONYMS.get(word, ())
    if word == "get":
        meant = ("show", "list") if rest and not rest[0].startswith("-") else ("list", "show")
    for name in (*meant, word.removesuffix("s")):
        if name in names:
            return [name, *rest]
    return words


def load(leaf: Leaf) -> Any:
    """Load the command of a leaf from its module.

    While a shell completes, its stand-in is returned, if that is known.
    """
    target = shell.standing_for(leaf.target) if shell.is_completing() else None
    if target is None:
        module, _, attribute = leaf.target.partition(":")
        whole = module if module.startswith("orchestrator.") else f"{_HOME}.{module}"
        target = getattr(importlib.import_module(whole), attribute)
        if isinstance(target, typer.Typer):
            return typer.main.get_command(target)
        if shell.is_completing():
            shell.remember(leaf.target, target)
    alone = typer.Typer(add_completion=False)
    alone.command(leaf.name, help=_paragraphs(target), context_settings=CONTEXT)(target)
    return typer.main.get_command(alone)


def _paragraphs(function: Callable[..., None]) -> str:
    """Return a function's documentation with one line for each paragraph.

    The lines are broken where the terminal ends.
    """
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
    """Do nothing; stands for a command in listings."""
