"""Ctrl-C ends a run in order: the first raises, later ones are ignored."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

_WISHES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Within a `with` statement the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; others are ignored.

    To be used in the main thread. `ignore` closes the ears at once, for work that must be finished.
    """

    def __init__(self) -> None:
        self._heard = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._handle_signal) for number in _WISHES}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Raise nothing from here on."""
        self._heard = True

    def _handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._heard:
            self._heard = True
            raise KeyboardInterrupt
