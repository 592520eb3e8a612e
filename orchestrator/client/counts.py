"""Calls of the client about counts on their way in: what an enforcement point says of its devices."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.client.paths import enforcer_path, quoted
from orchestrator.client.transport import Transport, document_of
from orchestrator.program.countframes import MEDIA_TYPE, CountClaim
from orchestrator.wire.hits import RefusedHosts


class CountCalls:
    """What an enforcement point says of counters."""

    _service: Transport

    def claim_counts(self, domain: str, enforcer: int, host: str) -> CountClaim:
        """Become the one who counts a host, by our epoch. Raises NotFound, and Conflict: somebody later does."""
        answer = self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/counts/{quoted(host)}/claim")
        return CountClaim.of(answer.content)

    def report_counts(self, domain: str, enforcer: int, frames: bytes) -> Sequence[str]:
        """Tell what was counted; the hosts that somebody else counts, or that are to be claimed anew."""
        path, headers = f"{enforcer_path(domain, enforcer)}/counts", {"Content-Type": MEDIA_TYPE}
        return document_of(RefusedHosts, self._service.ask("POST", path, body=frames, headers=headers)).refused
