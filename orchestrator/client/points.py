"""Enforcement points in the REST API, and calls by them and about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus

from orchestrator.client.paths import domain_path, enforcer_path
from orchestrator.client.transport import ANY_VERSION, Transport, document_of
from orchestrator.errors import Unreachable
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import (
    DELTA_MEDIA_TYPE,
    EDITS_MEDIA_TYPE,
    PROGRAM_MEDIA_TYPE,
    STREAM_MEDIA_TYPE,
    Received,
    decode,
    decode_delta,
    decode_program,
    frames,
)
from orchestrator.wire.points import Enforcer, Epoch, Impostor


@dataclass(frozen=True, slots=True)
class Held:
    """The program that an enforcer holds: what `watch_program` starts from."""

    digest: bytes
    generation: int


@dataclass(frozen=True, slots=True)
class PointReport:
    """The state read back on one host.

    `state`: enforced, applying, drifted, disconnected or refused.
    """

    host: str
    generation: int
    digest: bytes
    state: str
    error: str | None = None
    flows: int = 0
    took: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage, from the program's arrival to the read-back."""
    ports: tuple[str, ...] | None = None
    """The switch's interfaces, as an observation of all of it found them; None: as told before."""

    def to_json(self) -> dict[str, object]:
        return {
            "host": self.host,
            "generation": self.generation,
            "digest": self.digest.hex(),
            "state": self.state,
            "error": self.error,
            "flows": self.flows,
            **({"took": dict(self.took)} if self.took else {}),
            **({} if self.ports is None else {"ports": self.ports}),
        }


class PointCalls:
    """Enforcement points: who there is, what they must hold, and what they read back."""

    _service: Transport

    def enforcers(self, domain: str) -> tuple[Enforcer, ...]:
        """The enforcement points of a domain, by name."""
        return tuple(self._service.documents(Enforcer, f"{domain_path(domain)}/enforcers"))

    def remove_enforcer(self, domain: str, enforcer: int) -> None:
        """Forget an enforcement point and revoke its token. Raises NotFound."""
        self._service.write("DELETE", enforcer_path(domain, enforcer), etag=ANY_VERSION)

    def new_epoch(self, domain: str, enforcer: int) -> int:
        """Return a new epoch above all in the domain, for an enforcer that takes over.

        This client speaks as of that epoch from now on, and is refused (Conflict) when another has taken over from it.
        """
        epoch = document_of(Epoch, self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/epoch")).epoch
        self._service.speak_as(epoch)
        return epoch

    def watch_program(
        self, domain: str, held: Held | None = None, *, tier: Tier = Tier.HOST, wait_s: float = 30.0
    ) -> Program | Delta | None:
        """Wait for a program newer than the one held.

        A whole program when nothing is held or the service does not know it any more; else the delta from it, without
        rows when only the generation moved; None when nothing newer came within `wait_s`. Raises Unreachable for an
        answer that is no program.
        """
        have = held.digest.hex() if held else None
        generation = held.generation if held else None
        response = self._service.ask(
            "GET",
            f"{domain_path(domain)}/program",
            query={"tier": tier.value, "wait": wait_s, "have": have, "generation": generation},
            headers={"Accept": f"{PROGRAM_MEDIA_TYPE}, {DELTA_MEDIA_TYPE}"},
            held_s=wait_s,
        )
        if response.status_code == HTTPStatus.NO_CONTENT:
            return None
        content_type = response.headers.get("Content-Type")
        if content_type == DELTA_MEDIA_TYPE:
            return decode_delta(response.content)
        if content_type == PROGRAM_MEDIA_TYPE:
            return decode_program(response.content)
        raise Unreachable(f"the service answered with {content_type}, which is no program")

    def follow_program(
        self,
        domain: str,
        held: Held | None = None,
        *,
        tier: Tier = Tier.HOST,
        lasts_s: float = 60.0,
        server: str | None = None,
        edits: bool = False,
    ) -> Iterator[Received | None]:
        """Yield newer programs or deltas of a domain or firewall server, as they come.

        With `edits`, deltas of texts may come as edits. None says that there is nothing newer for now, which is said at
        the beginning and now and then. Ends after `lasts_s`. Raises what `watch_program` raises, Unreachable also where
        the stream breaks.
        """
        query = {
            "tier": tier.value,
            "wait": lasts_s,
            "have": held.digest.hex() if held else None,
            "generation": held.generation if held else None,
            "server": server,
        }
        accepted = {"Accept": f"{STREAM_MEDIA_TYPE}, {EDITS_MEDIA_TYPE}" if edits else STREAM_MEDIA_TYPE}
        with self._service.stream(f"{domain_path(domain)}/program/stream", query, accepted) as chunks:
            for body in frames(chunks):
                yield decode(body) if body else None

    def report(
        self,
        domain: str,
        enforcer: int,
        *,
        points: Sequence[PointReport] = (),
        sequence: int | None = None,
    ) -> None:
        """Report what was read back.

        `sequence` grows from report to report; one that comes late is passed over.
        """
        body: dict[str, object] = {"points": [each.to_json() for each in points]}
        if sequence is not None:
            body["sequence"] = sequence
        self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/report", body=body)

    def report_impostors(self, domain: str, enforcer: int, impostors: Sequence[Impostor]) -> None:
        """Report connections as switches of hosts that they are not."""
        body = {"points": [], "impostors": [asdict(each) for each in impostors]}
        self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/report", body=body)
