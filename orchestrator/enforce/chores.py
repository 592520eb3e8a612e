"""Work that is done now and then, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from orchestrator.errors import AclflowError

log = structlog.get_logger()


class Chore:
    """A periodic task in a thread of its own.

    It also runs `settle_s` after `poke`.

    Pokes that come meanwhile are served by the same run.
    """

    def __init__(self, name: str, work: Callable[[], None], every_s: float, *, settle_s: float = 0.0) -> None:
        self._name = name
        self._work = work
        self._every_s = every_s
        self._settle_s = settle_s
        self._poked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which begins with the work itself."""
        self._poked.set()
        self._thread.start()

    def poke(self) -> None:
        """Have the chore done soon."""
        self._poked.set()

    def stop(self, timeout_s: float = 1.0) -> None:
        """No more. Work under way may go on; it does not keep the process."""
        self._stopping.set()
        self._poked.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            if self._poked.wait(self._every_s):
                self._stopping.wait(self._settle_s)
            self._poked.clear()
            if self._stopping.is_set():
                return
            try:
                self._work()
            except AclflowError as error:
                log.warning("chore.failed", chore=self._name, error=str(error))
            except Exception:
                log.exception("chore.fault", chore=self._name)  # of ours; the chore must go on all the same
