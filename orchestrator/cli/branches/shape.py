"""Parts of the map of commands: commands, groups of them, and spellings that are answered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leaf:
    """A command."""

    name: str
    summary: str
    target: str


@dataclass(frozen=True, slots=True)
class Moved:
    """An old or foreign spelling of a command, which is answered with ours.

    In `to`, ... stands for the rest.
    """

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of commands."""

    name: str
    summary: str
    children: tuple[Leaf | Branch, ...]
    moved: tuple[Moved, ...] = ()
