"""The base of the client's areas."""

from __future__ import annotations

from orchestrator.client.transport import Transport


class Calls:
    """The calls of one area."""

    def __init__(self, service: Transport) -> None:
        self._service = service

    def close(self) -> None:
        """Give the connections back, for all areas of the client."""
        self._service.close()
