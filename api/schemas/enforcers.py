"""Enforcement points and their reports."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field

from api.problems import validate
from api.schemas.common import BIGGEST, Incoming, Name
from api.schemas.domains import Interface
from orchestrator.control.reports import Report
from orchestrator.policy.formats.json_text import json_document
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.stages import ENFORCING
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.wire import points as wire
from orchestrator.wire.points import MOST_IMPOSTORS, MOST_NAMES, PointState

Digest = Annotated[str, Field(pattern=f"^[0-9a-f]{{{2 * DIGEST_BYTES}}}$", description="hexadecimal digits")]
Stage = Annotated[str, Field(pattern="^[a-z]{1,16}$")]
Number = Annotated[int, Field(ge=0, le=BIGGEST)]
Address = Annotated[str, Field(pattern=r"^[0-9A-Za-z.:%_-]{1,64}$")]

_LONGEST_ERROR = 1024
_OTHER = "other"


class Point(Incoming):
    """State that was read back on one host."""

    host: Name
    generation: Number
    digest: Digest
    state: str = Field(pattern=f"^({'|'.join(state.value for state in PointState)})$")
    error: str | None = None
    flows: Number = 0
    took: dict[Stage, Annotated[float, Field(ge=0, le=1e9)]] = Field(
        default_factory=dict, max_length=16, description="seconds by stage, from the program's arrival to the read-back"
    )

    ports: list[Interface] | None = Field(
        default=None, max_length=4096, description="the switch's interfaces; null: as reported before"
    )

    def report(self) -> PointReport:
        """Return it as the control's value."""
        # an error is a device's own words: bring them into the form that is kept, rather than refuse the report
        error = " ".join(self.error.split())[:_LONGEST_ERROR] if self.error else None
        state = PointState(self.state)
        ports = None if self.ports is None else tuple(self.ports)
        return PointReport(self.host, self.generation, bytes.fromhex(self.digest), state, error, self.flows, ports)

    def known_stages(self) -> dict[str, float]:
        """Return the seconds by stage, those of unknown stages together.

        Each stage is a series of metrics, and an enforcement point must not make them without end.
        """
        found: dict[str, float] = {}
        for stage, seconds in self.took.items():
            name = stage if stage in ENFORCING else _OTHER
            found[name] = found.get(name, 0.0) + seconds
        return found


class Impostor(Incoming):
    """A connection as a host's switch that was not given the host's place."""

    host: Name
    address: Address = Field(description="where it came from")
    holder: Address | None = Field(default=None, description="where the switch is connected from that has the place")
    certificate: list[Name] = Field(
        default=[], max_length=MOST_NAMES, description="the hosts that its certificate names"
    )

    def record(self) -> wire.Impostor:
        return wire.Impostor(self.host, self.address, self.holder, tuple(self.certificate))


class ReportBody(Incoming):
    """An enforcement point's report.

    `sequence` grows from report to report; one that comes late is passed over.
    """

    sequence: Number | None = None
    points: Annotated[list[Point], FailFast()] = Field(default=[])
    impostors: list[Impostor] = Field(default=[], max_length=MOST_IMPOSTORS)

    @classmethod
    def read(cls, raw: bytes) -> ReportBody:
        """Read a report point by point.

        So others get their turns of the interpreter in between. Raises BadInput.
        """
        document = json_document(raw)
        if not isinstance(document, dict) or not isinstance(points := document.get("points"), list):
            return validate(cls, document)
        found = [validate(Point, each, f"points[{at}]") for at, each in enumerate(points)]
        return validate(cls, {**document, "points": []}).model_copy(update={"points": found})

    def report(self, epoch: int | None = None) -> Report:
        """Return it as the control's value, under an epoch if there is one."""
        points = tuple(point.report() for point in self.points)
        took = {point.host: point.known_stages() for point in self.points if point.took}
        return Report(points, self.sequence, epoch, took)
