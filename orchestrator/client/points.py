"""Enforcement points in the REST API, and calls by them and about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus

from orchestrator.client.calls import Calls, domain_path, enforcer_path, quote_segment
from orchestrator.client.records import Json
from orchestrator.client.transport import ANY_VERSION, document_of, json_of
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import parse_address
from orchestrator.policy.fields import CARRIED, FRAGMENTS
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import parse_protocol
from orchestrator.program.countframes import MEDIA_TYPE, CountClaim
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program, Tier
from orchestrator.program.sightings import Sightings, to_json
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
from orchestrator.wire.enrolment import (
    Certificate,
    PointToken,
    RenewedToken,
)
from orchestrator.wire.firewalls import Load
from orchestrator.wire.hits import RefusedHosts
from orchestrator.wire.points import Enforcer, Epoch, Impostor, Leading


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


@dataclass(frozen=True, slots=True)
class Trial:
    """Packets that a VNF is to be tried with, as of a generation."""

    generation: int
    packets: tuple[Packet, ...]


class PointCalls(Calls):
    """Enforcement points: who there is, and all that one asks for itself."""

    def read_all(self, domain: str) -> tuple[Enforcer, ...]:
        """The enforcement points of a domain, by name."""
        return tuple(self._service.documents(Enforcer, f"{domain_path(domain)}/enforcers"))

    def remove(self, domain: str, enforcer: int) -> None:
        """Forget an enforcement point and revoke its token. Raises NotFound."""
        self._service.write("DELETE", enforcer_path(domain, enforcer), etag=ANY_VERSION)

    def begin_epoch(self, domain: str, enforcer: int) -> int:
        """Return a new epoch above all in the domain, for an enforcer that takes over.

        This client speaks as of that epoch from now on, and is refused (Conflict) when another has taken over from it.
        """
        epoch = document_of(Epoch, self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/epoch")).epoch
        self._service.speak_as(epoch)
        return epoch

    def read_leading(self, domain: str, enforcer: int, tier: Tier, *, silence_s: float, begins: bool) -> Leading:
        """Return which of a domain's switches nobody leads, and who leads the others."""
        path = f"{enforcer_path(domain, enforcer)}/leading"
        return self._service.read_document(Leading, path, tier=tier.value, silence_s=silence_s, begins=int(begins))

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

    def claim_counts(self, domain: str, enforcer: int, host: str) -> CountClaim:
        """Become the counter of a host, by our epoch.

        Raises NotFound, and Conflict: somebody later counts it.
        """
        answer = self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/counts/{quote_segment(host)}/claim")
        return CountClaim.of(answer.content)

    def report_counts(self, domain: str, enforcer: int, frames: bytes) -> Sequence[str]:
        """Report counts; return the hosts counted by others, or to be claimed anew."""
        path, headers = f"{enforcer_path(domain, enforcer)}/counts", {"Content-Type": MEDIA_TYPE}
        return document_of(RefusedHosts, self._service.ask("POST", path, body=frames, headers=headers)).refused

    def report_sightings(self, domain: str, enforcer: int, report: Sightings) -> None:
        """For enforcement points: tell what was seen."""
        self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/log", body=to_json(report))

    def report_load(self, domain: str, enforcer: int, load: Load) -> None:
        """Tell the load of the firewall that bears the enforcer's name."""
        self._service.ask("PUT", f"{enforcer_path(domain, enforcer)}/load", body=asdict(load))

    def read_trial(self, domain: str, enforcer: int) -> Trial | None:
        """Return the trial for an enforcement point's VNF now, or None."""
        answer = self._service.ask("GET", f"{enforcer_path(domain, enforcer)}/trial")
        if answer.status_code == HTTPStatus.NO_CONTENT:
            return None
        body = json_of(answer)
        return Trial(body["generation"], tuple(map(_packet, body["packets"])))

    def answer_trial(self, domain: str, enforcer: int, generation: int, came: Sequence[bool], held: int) -> None:
        """Tell which packets came through, and which generation was held then."""
        body = {"generation": generation, "came": list(came), "held": held}
        self._service.ask("PUT", f"{enforcer_path(domain, enforcer)}/trial", body=body)

    def renew_certificate(self, domain: str, enforcer: int, csr: str) -> Certificate:
        """A further certificate for the enforcer that we are, on a new key."""
        answer = self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/certificate", body={"csr": csr})
        return document_of(Certificate, answer)

    def lay_down_certificates(self, domain: str, enforcer: int) -> None:
        """Invalidate all certificates and tokens of our enforcer except this request's."""
        self._service.ask("DELETE", f"{enforcer_path(domain, enforcer)}/certificates")

    def read_token(self, domain: str, enforcer: int) -> PointToken:
        """When the token of the enforcer that we are ends, and whether it is due."""
        return self._service.read_document(PointToken, f"{enforcer_path(domain, enforcer)}/token")

    def renew_token(self, domain: str, enforcer: int) -> RenewedToken:
        """A further token for the enforcer that we are; `show_token` uses it."""
        return document_of(RenewedToken, self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/token"))

    def show_token(self, token: str) -> None:
        """Show this token from now on; requests under way end with the one before."""
        self._service.show_token(token)


def _packet(body: Json) -> Packet:
    """Read a packet from JSON."""
    family, source = parse_address(body["source"])
    _, destination = parse_address(body["destination"])
    protocol = body["protocol"] if isinstance(body["protocol"], int) else parse_protocol(body["protocol"])
    further = {each.name: body[each.name] for each in (*CARRIED, FRAGMENTS)}
    return Packet(family, source, destination, protocol, dscp=body.get("dscp", 0), **further)
