"""The service as a `Controller` asks it: hosts, edges, or a spreading switch.

A spreading switch reports to its spread, and counts for no rule: rules count where they decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from orchestrator.client import Client, Held, Host, PointReport
from orchestrator.errors import Busy, Conflict, NotFound
from orchestrator.program.countframes import CountClaim
from orchestrator.program.program import Tier
from orchestrator.program.sightings import Sightings
from orchestrator.program.wire import Received
from orchestrator.wire.points import Impostor, Leading, PointState


class HostService:
    """The service about the hosts of a domain."""

    tier = Tier.HOST

    def __init__(self, client: Client) -> None:
        self._client = client
        self._points = client.points
        self._epochs = 0
        """How often one was asked for and how often that ended, together: odd while one is on its way."""

    def begin_epoch(self, domain: str, enforcer: int) -> int:
        """Return a higher epoch than any in the domain."""
        self._epochs += 1
        try:
            return self._points.begin_epoch(domain, enforcer)
        finally:
            self._epochs += 1

    def read_leading(self, domain: str, enforcer: int, *, silence_s: float, begins: bool = False) -> Leading | None:
        """Return which switches nobody leads; None where they are shared with nobody.

        So it is with a service of an earlier version. Raises TryAgain.
        """
        try:
            return self._points.read_leading(domain, enforcer, self.tier, silence_s=silence_s, begins=begins)
        except NotFound:
            return None

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Say something under our epoch.

        Raises Busy where the service refused it because we got another one meanwhile: then it is to be said again.
        """
        before = self._epochs
        try:
            yield
        except Conflict as error:
            if self._epochs == before and before % 2 == 0:
                raise
            raise Busy(f"said under the epoch before: {error}") from None

    def report_impostors(self, domain: str, enforcer: int, impostors: Sequence[Impostor]) -> None:
        """Report connections as switches that they are not."""
        with self._speaking():
            self._points.report_impostors(domain, enforcer, impostors)

    def report_links(self, domain: str, enforcer: int, down: frozenset[str]) -> None:
        """Report nothing: only a spreading switch gives firewalls up."""

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def follow_program(
        self, domain: str, held: Held | None = None, *, lasts_s: float = 60.0
    ) -> Iterator[Received | None]:
        """Yield newer programs or deltas as they come."""
        return self._points.follow_program(domain, held, tier=self.tier, lasts_s=lasts_s)

    def read_hosts(self, domain: str) -> tuple[Host, ...]:
        """Return the switches."""
        return self._client.domains.read_hosts(domain)

    def report(
        self,
        domain: str,
        enforcer: int,
        *,
        points: Sequence[PointReport] = (),
        sequence: int | None = None,
    ) -> None:
        """Tell what was read back."""
        with self._speaking():
            self._points.report(domain, enforcer, points=points, sequence=sequence)

    def claim_counts(self, domain: str, enforcer: int, host: str) -> CountClaim:
        """Become the one who counts a switch. Raises NotFound, Conflict."""
        with self._speaking():
            return self._points.claim_counts(domain, enforcer, host)

    def report_counts(self, domain: str, enforcer: int, frames: bytes) -> Sequence[str]:
        """Tell what was counted; return the switches that are to be claimed anew."""
        with self._speaking():
            return self._points.report_counts(domain, enforcer, frames)

    def report_sightings(self, domain: str, enforcer: int, report: Sightings) -> None:
        """Tell what was seen."""
        with self._speaking():
            self._points.report_sightings(domain, enforcer, report)


class EdgeService(HostService):
    """The service about the edge switches of a domain's PoP."""

    tier = Tier.EDGE

    def read_hosts(self, domain: str) -> tuple[Host, ...]:
        """Return the switches."""
        return self._client.pops.read_edges(domain)


class SpreadService(HostService):
    """The service about a domain's one spreading switch."""

    def __init__(self, client: Client, switch: Host) -> None:
        super().__init__(client)
        self._switch = switch

    def follow_program(
        self, domain: str, held: Held | None = None, *, lasts_s: float = 60.0
    ) -> Iterator[Received | None]:
        """Yield how traffic is to be spread, as it comes."""
        return self._client.spread.follow(domain, held, lasts_s=lasts_s)

    def read_hosts(self, domain: str) -> tuple[Host, ...]:  # noqa: ARG002
        """Return the switch."""
        return (self._switch,)

    def read_leading(self, domain: str, enforcer: int, *, silence_s: float, begins: bool = False) -> Leading | None:  # noqa: ARG002
        """Return None: whoever was started last leads the one switch."""
        return None

    def report(
        self,
        domain: str,
        enforcer: int,
        *,
        points: Sequence[PointReport] = (),
        sequence: int | None = None,
    ) -> None:
        """Tell what was read back of the switch; without a point, that we are there."""
        self._points.report(domain, enforcer, sequence=sequence)
        for point in points:
            holds = point.generation if point.state == PointState.ENFORCED.value else 0
            trouble = None if point.state == PointState.ENFORCED.value else point.error or point.state
            self._client.spread.report(domain, enforcer, holds, trouble)

    def report_links(self, domain: str, enforcer: int, down: frozenset[str]) -> None:
        """Tell which interfaces the switch finds down."""
        self._client.spread.report_links(domain, enforcer, down)

    def claim_counts(self, domain: str, enforcer: int, host: str) -> CountClaim:  # noqa: ARG002
        """Raise NotFound: nobody counts here."""
        raise NotFound("a spreading switch counts for no rule")

    def report_counts(self, domain: str, enforcer: int, frames: bytes) -> Sequence[str]:  # noqa: ARG002
        """Take nothing; every switch is to be claimed anew."""
        return (self._switch.name,)

    def report_sightings(self, domain: str, enforcer: int, report: Sightings) -> None:
        """Report nothing: no row of a spread logs."""
