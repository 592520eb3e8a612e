"""Which of the lists in a text are read.

A text may hold several lists: a router's access lists, a project's security groups, a namespace's network policies.
`Options.lists` names those to read, as `NAME`, `NAME=ingress` or `NAME=egress`, and one rule holds for every format:

    one list in the text         it is read
    several, none named          refused, with their names
    several named                each format says what that means: lists that a platform applies together (security
                                 groups of one port) are read as their union, others only where each has a direction
                                 or an IP version of its own
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import shown
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Direction

_T = TypeVar("_T")
_SHOWN_NAMES = 2000


@dataclass(frozen=True, slots=True)
class Chosen(Generic[_T]):
    """A list to read: its name, the reader's value, the caller's direction."""

    name: str
    found: _T
    direction: Direction | None


def choose(available: Mapping[str, _T], options: Options, what: str) -> Sequence[Chosen[_T]]:
    """Return the lists that the options name, or the only one.

    `what` names one of them in words: "a security group".

    Raises BadInput, with the names there are, where it is not plain which are meant.
    """
    if options.lists:
        return [_choose_named(text, available, what) for text in dict.fromkeys(options.lists)]
    if len(available) == 1:
        return [Chosen(name, found, None) for name, found in available.items()]
    if not available:
        raise BadInput(f"there is not {what} in it")
    raise BadInput(f"it holds more than {what}: name those to read (--list) among {_list_names(available)}")


def name_and_direction(text: str) -> tuple[str, Direction | None]:
    """Split ``NAME=ingress``; a name may hold `=` itself."""
    for direction in Direction:
        if text.endswith(f"={direction.value}"):
            return text.removesuffix(f"={direction.value}"), direction
    return text, None


def free_name(node: Node, taken: Container[str], *nameless: str) -> str | None:
    """Return a free name for a list of a JSON text.

    Its name, its id where another list has that name, `nameless` where it has neither; None where all of that is taken.
    """
    names = [held.text() for key in ("name", "id") if (held := node.member(key)) is not None]
    return next((name for name in names or nameless if name not in taken), None)


def refuse_two_for_one(lists: Iterable[tuple[str, Direction, Collection[Family]]]) -> None:
    """Refuse two lists of one direction and IP version, of which packets meet only one.

    Raises BadInput.
    """
    held: dict[tuple[Direction, Family], str] = {}
    for name, direction, families in lists:
        for family in families:
            before = held.setdefault((direction, family), name)
            if before != name:
                raise BadInput(
                    f"{shown(before)} and {shown(name)} are both lists of IPv{family.value} for {direction.value}: "
                    "only one of them can be asked"
                )


def _choose_named(text: str, available: Mapping[str, _T], what: str) -> Chosen[_T]:
    name, direction = (text, None) if text in available else name_and_direction(text)
    if name not in available:
        raise BadInput(f"{shown(name)} is not {what} of it; there are {_list_names(available)}")
    return Chosen(name, available[name], direction)


def _list_names(available: Mapping[str, _T]) -> str:
    return shown(", ".join(available), _SHOWN_NAMES)
