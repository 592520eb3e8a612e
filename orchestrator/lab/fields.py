"""Read a lab's description by field: values have places, no field is ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Prefix

NODE = re.compile(r"[a-z][a-z0-9-]{0,11}\Z")
PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
DATAPATH = re.compile(r"[0-9a-f]{16}\Z")


class Fields:
    """One mapping of the document.

    Fields are taken one by one, so that an unknown field is noticed and named.
    """

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, Mapping):
            raise BadInput(f"expected fields with names, found {_shown(value)}", place=place or None)
        self._values: dict[object, object] = dict(value)
        self._place = place

    def at(self, key: str) -> str:
        """The place of a field, for an error."""
        return f"{self._place}.{key}" if self._place else key

    def text(self, key: str, pattern: re.Pattern[str] = NODE, default: str | None = None) -> str:
        """A word of some form. Raises BadInput."""
        value = self._values.pop(key, default)
        if value is None:
            raise BadInput("is missing", place=self.at(key))
        if not isinstance(value, str) or not pattern.match(value):
            raise BadInput(f"{_shown(value)} does not look like {_WORDS[pattern]}", place=self.at(key))
        return value

    def prefixes(self, key: str) -> tuple[Prefix, ...]:
        """A list of addresses or prefixes, at least one. Raises BadInput, BadPolicy."""
        values = self._values.pop(key, None)
        if not isinstance(values, list) or not values:
            raise BadInput(f"expected a list of addresses, found {_shown(values)}", place=self.at(key))
        return tuple(self._prefix(value, f"{self.at(key)}[{index}]") for index, value in enumerate(values))

    @staticmethod
    def _prefix(value: object, place: str) -> Prefix:
        if not isinstance(value, str):
            raise BadInput(f"{_shown(value)} is not an address: write it in quotes", place=place)
        try:
            return Prefix.parse(value)
        except AclflowError as error:
            raise error.within(place) from None

    def truth(self, key: str) -> bool:
        """True or false; false where it is left out. Raises BadInput."""
        value = self._values.pop(key, False)
        if not isinstance(value, bool):
            raise BadInput(f"expected true or false, found {_shown(value)}", place=self.at(key))
        return value

    def items(self, key: str) -> Iterator[Fields]:
        """The mappings of a list; none where it is left out. Raises BadInput."""
        values = self._values.pop(key, [])
        if not isinstance(values, list):
            raise BadInput(f"expected a list, found {_shown(values)}", place=self.at(key))
        for index, value in enumerate(values):
            yield Fields(value, f"{self.at(key)}[{index}]")

    def no_more(self) -> None:
        """Raises BadInput for a field that nobody took."""
        for key in self._values:
            raise BadInput("no such field here", place=self.at(str(key)))


_WORDS = {
    NODE: "a name: up to 12 small letters, digits and dashes, starting with a letter",
    PORT: "an interface name of up to 15 characters",
    MAC: "a MAC address such as 0a:ac:1f:01:00:01",
    DATAPATH: "a datapath id: 16 hexadecimal digits in quotes",
}


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
