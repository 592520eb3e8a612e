"""Takes what enforcement points counted; `store/hits/counting.py` says what makes each count once."""

from __future__ import annotations

import structlog

from orchestrator.control.alarms import HostAlarm
from orchestrator.errors import BadInput
from orchestrator.program.countframes import CountClaim, CountFrame, decode_frames
from orchestrator.store import Store
from orchestrator.store.sql.keys import to_micros

log = structlog.get_logger()

MOST_HOSTS = 10_000
"""So many hosts are counted in one report."""


class CountDesk:
    """Takes claims and reports of counts, each in its own transaction.

    No change of policy waits for them or is made.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._full = HostAlarm("host.full")

    def claim(self, domain: str, enforcer: int, host: str, epoch: int) -> CountClaim:
        """Make an enforcement point the one who counts a host. Raises NotFound, Conflict, Forbidden."""
        with self._store.write(part=f"counts {domain}") as unit:
            unit.enforcers.check_epoch(enforcer, epoch)
            unit.enforcers.check_hosts(enforcer, (host,), place="path.host")
            return unit.counting.claim(domain, host, epoch)

    def take(self, domain: str, enforcer: int, epoch: int, data: bytes) -> tuple[str, ...]:
        """Add frames of counts to the sums; return the hosts to be claimed anew.

        Raises BadInput, NotFound, Conflict, Forbidden (a host of somebody else's).
        """
        frames = _read_frames(data, to_micros(self._store.now()))  # before others have to wait for it
        with self._store.write(part=f"counts {domain}") as unit:
            unit.enforcers.check_epoch(enforcer, epoch)
            known = unit.enforcers.check_hosts(enforcer, (frame.host for frame in frames), place="body")
            taken = unit.counting.take(domain, epoch, (frame for frame in frames if frame.host in known))
            lost = {host: {"packets": packets} for host, packets in taken.without_room.items()}
            appended = self._full.append(unit, domain, lost)
        self._full.note(appended)
        if taken.unknown:
            log.warning("counts.unknown", domain=domain, enforcer=enforcer, rows=taken.unknown)
        return (*(frame.host for frame in frames if frame.host not in known), *taken.refused)


def _read_frames(data: bytes, now_us: int) -> tuple[CountFrame, ...]:
    """Decode a report, which has one frame for each host. Raises BadInput."""
    frames: dict[str, CountFrame] = {}
    for frame in decode_frames(data, now_us):
        if frame.host in frames:
            raise BadInput(f"host '{frame.host}' is counted twice in one report", place="body")
        if len(frames) == MOST_HOSTS:
            raise BadInput(f"it counts more than {MOST_HOSTS} hosts: send several reports", place="body")
        frames[frame.host] = frame
    return tuple(frames.values())
