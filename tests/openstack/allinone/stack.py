"""A whole set-up: begin it, stop it, and take one of its services away for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allinone import running, schemas
from allinone.configs import write_configs
from allinone.contents import fill, fill_keystone, wait_until_ready
from allinone.place import Place
from allinone.programs import SERVICES, SHARED, program, second_compute
from allinone.running import wait_for

_MADE, _FILLED = "made", "filled"


@dataclass(frozen=True, slots=True)
class AllInOne:
    """The services of one place."""

    place: Place

    @classmethod
    def in_directory(cls, directory: Path) -> AllInOne:
        """Those whose files are, or will be, in a directory."""
        return cls(Place.at(directory))

    def begin(self) -> None:
        """Start everything, after making everything where the directory is new. Raises NotStartedError."""
        self.begin_services(SERVICES)
        wait_until_ready(self.place)
        if not (self.place.root / _FILLED).exists():
            fill(self.place)
            (self.place.root / _FILLED).touch()

    def begin_services(self, names: Sequence[str]) -> None:
        """Start some services and what they share; schemas are made first. Raises NotStartedError."""
        place = self.place
        write_configs(place)
        schemas.make_database_files(place)
        for name in SHARED:
            self.start(name)
            self.wait(name)
        wait_for("the database", lambda: schemas.answers(place))
        if not (place.root / _MADE).exists():
            schemas.make_schemas(place, self._first_keystone)
            (place.root / _MADE).touch()
        for name in names:
            self.start(name)
        for name in names:
            self.wait(name)

    def end(self) -> None:
        """Stop everything: what asks before what is asked."""
        computes = [each.stem for each in (self.place.root / "run").glob("nova-compute-*.pid")]
        running.stop(self.place, [*reversed(SERVICES), *computes])
        running.stop(self.place, SHARED)

    def start(self, name: str) -> None:
        """Start one."""
        found = program(self.place, name)
        running.start(self.place, name, found.command, found.environment)

    def wait(self, name: str) -> None:
        """Wait until one answers on its port, where it has one."""
        port = program(self.place, name).port
        if port is not None:
            wait_for(name, lambda: running.listens(self.place.address, self.place.ports[port]))

    def stop(self, name: str) -> None:
        """Take one away."""
        running.stop(self.place, [name])

    def add_host(self, name: str) -> None:
        """Another host for virtual machines."""
        found = second_compute(self.place, name)
        running.start(self.place, f"nova-compute-{name}", found.command, found.environment)

    def _first_keystone(self) -> None:
        self.start("keystone")
        self.wait("keystone")
        fill_keystone(self.place)
