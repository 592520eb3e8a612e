"""Map VNFs to members of a ResourceGroup, and compute parameters that change only those. Pure.

Heat names a group's members itself: the first `count` natural numbers, without those on its list of removed ones.

    count 3, removed {}            0  1  2
    fw-1 goes                      count 2, removed {1}         0  2
    one comes                      count 3, removed {1}         0  2  3        1 is never used again

aclflow names its VNFs itself too (fw-0, fw-1, ..), and numbers may be missing there that are not missing here: an order
that Heat never got. So which is which stands in a parameter of the stack, `members`, written with the very update that
makes a member. That alone survives a lost answer: whoever asks again finds the name.

A member that no name was written for was made by somebody else: it is listed as `stray-7`, and deleted by that name.
The names of those that go stay written until they are gone, so that their leaving can be seen.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import Drifted

_STRAY = "stray-"


@dataclass(frozen=True, slots=True)
class Group:
    """A ResourceGroup: its members, names that Heat will not reuse, our names by Heat's."""

    live: frozenset[str]
    removed: frozenset[str]
    names: Mapping[str, str]

    def name_of(self, member: str) -> str:
        """Return our name of a member."""
        return self.names.get(member, _STRAY + member)

    @property
    def pending(self) -> frozenset[str]:
        """Names that were ordered for members that do not exist yet.

        Names of members that existed and are gone are left out.
        """
        there = self.live | self.removed
        return frozenset(name for member, name in self.names.items() if member not in there)

    def members_called(self, names: Iterable[str]) -> frozenset[str]:
        """Return the live members that have one of these names."""
        wanted = frozenset(names)
        return frozenset(member for member in self.live if self.name_of(member) in wanted)

    def lacking(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of some names that no live member has, each once."""
        there = {self.name_of(member) for member in self.live}
        return tuple(name for name in dict.fromkeys(names) if name not in there)

    def grow_group(self, names: Sequence[str], without: frozenset[str] = frozenset()) -> dict[str, object]:
        """Return the parameters that add a member per name, and remove some.

        Raises Drifted if others would be removed.
        """
        kept = self.live - without
        removed = self.removed | without
        will_be = list(itertools.islice(_count_without(removed), len(kept) + len(names)))
        lost = kept - set(will_be)
        if lost:
            raise Drifted(
                f"the group was changed by somebody else: growing it would take member {min(lost)} away; "
                f"delete {self.name_of(min(lost))} first"
            )
        new = dict(zip((each for each in will_be if each not in kept), names, strict=True))
        return _parameters(len(will_be), without, {**self._pick_names(self.live), **new})

    def shrunk(self, victims: frozenset[str]) -> dict[str, object]:
        """The parameters that take exactly these members out."""
        return _parameters(len(self.live - victims), victims & self.live, self._pick_names(self.live))

    def _pick_names(self, members: frozenset[str]) -> dict[str, str]:
        return {member: name for member, name in self.names.items() if member in members}


def read_names(parameter: str) -> dict[str, str]:
    """Parse the parameter `members`.

    Raises Drifted if somebody else wrote it.
    """
    try:
        found = json.loads(parameter or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise Drifted("the stack's parameter `members` was changed by somebody else: it must be a map of names")
    return found


def first(names: Sequence[str]) -> dict[str, object]:
    """The parameters of a group that is to be created."""
    return _parameters(len(names), frozenset(), {str(index): name for index, name in enumerate(names)})


def _parameters(count: int, removed: frozenset[str], names: Mapping[str, str]) -> dict[str, object]:
    """Return the parameters of a group.

    Heat adds `removed` to its own list, so only the members that leave now are listed.
    """
    return {"count": count, "removed": ",".join(sorted(removed)), "members": dict(names)}


def _count_without(removed: frozenset[str]) -> Iterator[str]:
    return (name for name in map(str, itertools.count()) if name not in removed)
