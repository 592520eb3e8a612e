"""Client calls about counts of an enforcement point's devices."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.client.paths import enforcer_path, quote_segment
from orchestrator.client.transport import Transport, document_of
from orchestrator.program.countframes import MEDIA_TYPE, CountClaim
from orchestrator.wire.hits import RefusedHosts


class CountCalls:
    """An enforcement point's calls about counters."""

    _service: Transport

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
