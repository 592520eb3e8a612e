"""Calls of the client about how traffic is spread over firewalls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from orchestrator.client.calls import Calls
from orchestrator.client.paths import domain_path, enforcer_path
from orchestrator.client.points import Held
from orchestrator.client.records import Json
from orchestrator.client.transport import ANY_VERSION, generation_of
from orchestrator.program.wire import STREAM_MEDIA_TYPE, Received, decode, frames


@dataclass(frozen=True, slots=True)
class Link:
    """A firewall's link: the spreading switch's interface, and the firewall's MAC address."""

    port: str
    mac: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """A firewall that traffic is spread over; its `number` is its own in the domain.

    `state`: serving or draining.
    """

    name: str
    number: int
    left: Link
    right: Link
    state: str = "serving"
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """A firewall of a spread, and how many of the 256 buckets it owns.

    `given_up`: the switch hears nothing of it, and sends what it owns to others.
    """

    carrier: Carrier
    buckets: int
    given_up: bool = False

    @classmethod
    def of(cls, body: Json) -> Sharing:
        left, right = Link(**body["left"]), Link(**body["right"])
        carrier = Carrier(body["name"], body["number"], left, right, body["state"], body["weight"])
        return cls(carrier, body["buckets"], body["given_up"])


@dataclass(frozen=True, slots=True)
class SpreadSeen:
    """The spreading of a domain's traffic at a generation.

    `enforced` is the newest one that the spreading switch was read back at (0: none), `trouble` the fault there.
    """

    generation: int
    enforced: int
    stateful: bool
    synchronised: bool
    firewalls: tuple[Sharing, ...]
    trouble: str | None

    @property
    def given_up(self) -> tuple[str, ...]:
        """The firewalls that the switch has given up."""
        return tuple(each.carrier.name for each in self.firewalls if each.given_up)

    @property
    def carrying(self) -> tuple[str, ...]:
        """The firewalls that carry the traffic now."""
        return tuple(each.carrier.name for each in self.firewalls if each.buckets and not each.given_up)

    @property
    def etag(self) -> str:
        """The ETag that it was read at."""
        return f'"{self.generation}"'

    @classmethod
    def of(cls, body: Json) -> SpreadSeen:
        firewalls = tuple(map(Sharing.of, body["firewalls"]))
        flags = body["stateful"], body["synchronised"]
        return cls(body["generation"], body["enforced"], *flags, firewalls, body["trouble"])


class SpreadCalls(Calls):
    """Spreading switches of domains."""

    def read(self, domain: str) -> SpreadSeen:
        """How a domain's traffic is spread over its firewalls. Raises NotFound where it is not."""
        return SpreadSeen.of(self._service.read(f"{domain_path(domain)}/spread"))

    def configure(
        self,
        domain: str,
        firewalls: Iterable[Carrier],
        *,
        stateful: bool = False,
        synchronised: bool = False,
        etag: str = ANY_VERSION,
    ) -> int:
        """Spread a domain's traffic over these firewalls and no others; the generation. Raises NotFound, Stale."""
        body = {"firewalls": [asdict(each) for each in firewalls], "stateful": stateful, "synchronised": synchronised}
        path = f"{domain_path(domain)}/spread"
        return generation_of(self._service.write("PUT", path, body=body, etag=etag))

    def follow(self, domain: str, held: Held | None = None, *, lasts_s: float = 60.0) -> Iterator[Received | None]:
        """Yield the spreading switch's programs as they come; see `Client.follow_program`."""
        query = {
            "wait": lasts_s,
            "have": held.digest.hex() if held else None,
            "generation": held.generation if held else None,
        }
        path = f"{domain_path(domain)}/spread/stream"
        with self._service.stream(path, query, {"Accept": STREAM_MEDIA_TYPE}) as chunks:
            for body in frames(chunks):
                yield decode(body) if body else None

    def report(self, domain: str, enforcer: int, generation: int, trouble: str | None) -> None:
        """Report the spreading switch's generation (0: none is known) and its fault."""
        path = f"{enforcer_path(domain, enforcer)}/spread"
        self._service.ask("PUT", path, body={"generation": generation, "trouble": trouble})

    def report_links(self, domain: str, enforcer: int, down: Iterable[str]) -> None:
        """Report the interfaces that the spreading switch finds down."""
        path = f"{enforcer_path(domain, enforcer)}/spread/links"
        self._service.ask("PUT", path, body={"down": sorted(down)})
