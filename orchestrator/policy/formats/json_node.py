"""A JSON value with its path in the text, for errors to name.

rules = Node(load_json(text)).needed("SecurityGroups").items()
rules[0].needed("FromPort").number()      BadInput: SecurityGroups[0].FromPort: 'x' is not a whole number
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.formats.assemble import shown

_T = TypeVar("_T")
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its path.

    Every method raises BadInput, with the path, for a value of another type.
    """

    value: object
    place: str = ""

    def fault(self, reason: str) -> AclflowError:
        """An error about this value."""
        return BadInput(reason, place=self.place or None)

    def member(self, *keys: str) -> Node | None:
        """Return the member of the first of these keys that an object has.

        None if it has none, or null.
        """
        found = self.object()
        key = next((key for key in keys if found.get(key) is not None), None)
        return None if key is None else Node(found[key], f"{self.place}.{key}" if self.place else key)

    def needed(self, key: str) -> Node:
        """The member of an object; it must be there."""
        found = self.member(key)
        if found is None:
            raise self.fault(f"{key} is missing")
        return found

    def members(self, key: str) -> list[Node]:
        """The items of a member that is a list; none if it is missing."""
        found = self.member(key)
        return [] if found is None else found.items()

    def items(self) -> list[Node]:
        """The items of a list."""
        if not isinstance(self.value, list):
            raise self.fault(f"{self.shown()} is not a list")
        return [Node(item, f"{self.place}[{index}]") for index, item in enumerate(self.value)]

    def text(self) -> str:
        """Return the value, a string. Raises BadInput for any other."""
        if not isinstance(self.value, str):
            raise self.fault(f"{self.shown()} is not a string")
        return self.value

    def number(self, low: int, high: int) -> int:
        """A whole number in `low`..`high`."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.fault(f"{self.shown()} is not a whole number")
        if not low <= self.value <= high:
            raise self.fault(f"{self.shown()} is not in {low}..{high}")
        return self.value

    def within(self, work: Callable[[], _T]) -> _T:
        """Call `work`; give its errors this value's path where they have none."""
        try:
            return work()
        except AclflowError as error:
            error.place = error.place or self.place or None
            raise

    def truth(self) -> bool:
        """Return the value, true or false. Raises BadInput for any other."""
        if not isinstance(self.value, bool):
            raise self.fault(f"{self.shown()} is not true or false")
        return self.value

    def unknown(self, known: Collection[str]) -> list[str]:
        """Return a reason for each non-empty unknown key of an object."""
        return [
            f"'{key[:40]}' is not known here"
            for key, value in self.object().items()
            if key not in known and value not in (None, "", [], {})
        ]

    def shown(self) -> str:
        """The value as an error quotes it."""
        if self.value is None or isinstance(self.value, bool):
            return json.dumps(self.value)
        return (
            repr(shown(self.value, _SHOWN)) if isinstance(self.value, str) else shown(str(self.value)[:_SHOWN], _SHOWN)
        )

    def object(self) -> dict[str, object]:
        """An object's members."""
        if not isinstance(self.value, dict):
            raise self.fault(f"{self.shown()} is not an object")
        return self.value
