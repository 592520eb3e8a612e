"""What images there are, of images.yaml."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[1]
ELEMENTS = FOLDER / "elements"
_NUMBERS = uuid.UUID("5d2f0f2e-64a5-5a53-9c2c-1b1f3f2f7c6a")
"""Where the numbers of file systems come from: the same name has the same, in every build."""
_LEAST_MIB = 1024
"""Debian and aclflow, with room to live."""


class Fault(Exception):
    """An image that cannot be built, in words for whoever asked for it."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image."""

    name: str
    what: str
    elements: tuple[str, ...]
    disk_mib: int

    def __post_init__(self) -> None:
        for element in self.elements:
            if not (ELEMENTS / element).is_dir():
                raise Fault(f"images.yaml: {self.name}.elements: there is no element '{element}' in {ELEMENTS}")
        if self.disk_mib < _LEAST_MIB:
            raise Fault(f"images.yaml: {self.name}.disk_mib: {self.disk_mib} is too little, {_LEAST_MIB} is the least")

    @property
    def root_uuid(self) -> uuid.UUID:
        """The number of the root file system."""
        return uuid.uuid5(_NUMBERS, self.name)


def recipes(wanted: Sequence[str] = (), path: Path = FOLDER / "images.yaml") -> list[Recipe]:
    """The images of some names, or all. Raises Fault."""
    found = {}
    for name, said in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        try:
            found[name] = Recipe(name, said["what"], tuple(said["elements"]), int(said["disk_mib"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Fault(f"images.yaml: {name}: {error!r}") from None
    for name in wanted:
        if name not in found:
            raise Fault(f"'{name}' is no image; they are {', '.join(found)}")
    return [found[name] for name in wanted or found]
