"""Sends counts to the service, one frame a device at a time, each once.

    Loop ──note_poll, note_change──▶ Tally (one a device) ──letter──▶ thread of its own ──frames──▶ service
                                   ▲                                                       │
                                   └───────────── bookmark, by claiming the device ◀───────┘

A letter that was not answered is sent again as it was, under the same number, while the tally goes on counting. When
the service says that it knows better (somebody else counts the device, or it was put back to an earlier state), the
device is claimed anew and counting goes on from the service's bookmark. Nothing of all this is kept on our disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from orchestrator.enforce.bookmark import replay_chunks
from orchestrator.enforce.counting import Change, Tally
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.watch import Patience
from orchestrator.errors import AclflowError, TryAgain, Unauthenticated
from orchestrator.program.countframes import CountClaim, CountFrame, encode_frames

log = structlog.get_logger()

PATIENCE = Patience()

LINGER_S = 0.2
"""How long a letter waits for other devices' that are about to come: sending one costs about as much."""


class CountSink(Protocol):
    """Where counts go: the service's client."""

    def claim_counts(self, domain: str, enforcer: int, host: str) -> CountClaim:
        """Become the one who counts a host. Raises NotFound, Conflict."""
        ...

    def report_counts(self, domain: str, enforcer: int, frames: bytes) -> Sequence[str]:
        """Tell what was counted; the hosts that are to be claimed anew."""
        ...


@dataclass(slots=True)
class _Counted:
    """A device: its tally, the number of its last frame, and the frame under way."""

    tally: Tally = field(default_factory=Tally)
    sequence: int = 0
    wanted: bool = False
    sending: CountFrame | None = None
    changes: list[tuple[Callable[[], Change], float]] = field(default_factory=list)

    def catch_up(self) -> None:
        """Work out what changes did to the counters."""
        changes, self.changes = self.changes, []
        for change, at in changes:
            self.tally.note_change(change(), at)


class CountReporter:
    """Counts the devices of one enforcement point.

    Methods may be called from any thread and return at once.

    `take_over` runs before a device is claimed, and has nothing to do once it has succeeded.
    """

    def __init__(
        self,
        sink: CountSink,
        domain: str,
        enforcer: int,
        take_over: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._domain = domain
        self._enforcer = enforcer
        self._take_over = take_over
        self._clock = clock
        self._devices: dict[str, _Counted] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="report-counts", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Send what is due, if that succeeds at once, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    # ------------------------------------------------------------------------------------------------ what happens

    def note_poll(self, host: str, hits: Hits, took_s: float) -> None:
        """All counters of a device were read just now, within so many seconds."""
        with self._changed:
            device = self._devices.setdefault(host, _Counted())
            device.wanted = not device.tally.is_claimed
            device.catch_up()
            device.tally.poll(hits, self._clock(), took_s)
            self._changed.notify()

    def note_change(self, host: str, change: Callable[[], Change]) -> None:
        """Record a device's change, just read back; its counters are evaluated later."""
        with self._changed:
            self._devices.setdefault(host, _Counted()).changes.append((change, self._clock()))

    def forget(self, host: str) -> None:
        """Stop counting a device that somebody else counts now."""
        with self._changed:
            self._devices.pop(host, None)

    # ------------------------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        failures = 0
        while self._wait():
            try:
                self._claim()
                self._send()
                failures = 0
            except (TryAgain, Unauthenticated) as error:
                failures += 1
                log.warning("counts.failed", error=str(error), failures=failures)
                self._pause(PATIENCE.delay_s(failures, error))
            except Exception:
                log.exception("counts.fault")  # of ours; the next poll may fare better
                self._lose(list(self._devices))
            if self._stopping:
                return

    def _wait(self) -> bool:
        """Wait until there is something to send; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or any(map(_is_due, self._devices.values())))
            self._changed.wait_for(lambda: self._stopping, LINGER_S)
            return not self._stopping or any(map(_is_due, self._devices.values()))

    def _pause(self, seconds: float) -> None:
        """Wait so many seconds, or until stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)

    def _claim(self) -> None:
        """Find out how far the devices that we read were counted before."""
        with self._changed:
            wanted = [host for host, device in self._devices.items() if device.wanted]
        for host in wanted:
            try:
                self._take_over()
                claim = self._sink.claim_counts(self._domain, self._enforcer, host)
                before = None if claim.chunks is None else replay_chunks(claim.chunks)
            except (TryAgain, Unauthenticated):
                raise
            except AclflowError as error:
                log.warning("counts.not_ours", host=host, error=str(error))
                self._lose([host])
                continue
            with self._changed:
                device = self._devices.get(host)
                if device is not None:
                    device.wanted, device.sequence = False, claim.sequence
                    device.tally.claim(before, self._clock(), claim.silent_s)
            log.info("counts.claimed", host=host, sequence=claim.sequence, silent_s=round(claim.silent_s, 1))

    def _send(self) -> None:
        """Send the letters that were not answered, and new ones of all others."""
        with self._changed:
            frames = [frame for host, device in self._devices.items() if (frame := _next_frame(host, device))]
            body = encode_frames(frames, int(self._clock() * 1e6))
        if not frames:
            return
        try:
            refused = self._sink.report_counts(self._domain, self._enforcer, body)
        except (TryAgain, Unauthenticated):
            raise
        except AclflowError as error:
            log.warning("counts.not_taken", error=str(error))
            refused = [frame.host for frame in frames]
        self._lose(refused)
        with self._changed:
            for frame in frames:
                device = self._devices.get(frame.host)
                if device is not None and device.sending is frame:
                    device.sending, device.sequence = None, frame.sequence

    def _lose(self, hosts: Sequence[str]) -> None:
        """Forget how far devices were counted: they are claimed anew when they are read again."""
        with self._changed:
            for host in hosts:
                device = self._devices.get(host)
                if device is not None:
                    device.tally.lose()
                    device.wanted, device.sending = False, None


def _is_due(device: _Counted) -> bool:
    return device.wanted or device.sending is not None or device.tally.is_due


def _next_frame(host: str, device: _Counted) -> CountFrame | None:
    """Return the frame under way, or make the next one."""
    device.catch_up()
    if device.sending is None and (letter := device.tally.take()) is not None:
        device.sending = CountFrame(host, device.sequence + 1, letter.counts, letter.notes, letter.chunk, letter.whole)
    return device.sending
