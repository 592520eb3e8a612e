"""The audit trail's upkeep: refusals counted, heads anchored once a minute, old entries taken out.

    requests ──▶ Refusals ──┐  once a minute
                            ├──▶ entries ──▶ head of the chain ──▶ signed ──▶ kept in the database, and sent to a sink
    writes ──▶ entries ─────┘  (in their own transactions)

What was refused is counted by principal, address, status and minute: an entry tells how often, and of the first one
what it was. So nobody can fill the trail by asking for what is refused; and nobody's many addresses or tokens hide what
others were refused, for those of each tenant, and of all strangers, are counted by themselves. A sink that takes
nothing is tried again each minute, with all anchors that it has not got; the log, a metric and an event say so.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Protocol

import orjson
import structlog

from orchestrator.errors import NotFound, TryAgain
from orchestrator.identity.trail import AuditKey
from orchestrator.store import Store
from orchestrator.store.audit import Actor
from orchestrator.store.unit import Unit
from orchestrator.wire.audit import AuditAnchor

log = structlog.get_logger()

EVERY_S = 60.0
PRUNE_EVERY = 60
"""Old entries are looked for with every so many-th anchor."""
MOST_KEYS = 64
"""Of a tenant, of a principal of none and of all strangers, refusals of so many principals, addresses and kinds are
counted apart in a minute; then as many without their addresses, and all others together."""
MOST_UNSENT = 10_000
UNKNOWN = "unknown"
"""How one is named who is not known: no token, or one that is not valid."""
OTHERS = Actor("others")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The caller whose request was refused, its tenant, and the status."""

    actor: Actor
    tenant: str | None
    status: int


class Refusals:
    """Requests that were refused or failed since they were last collected. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Refusal] = Counter()
        self._firsts: dict[Refusal, str] = {}
        self._keys: Counter[str] = Counter()
        """How many are counted apart, by tenant or principal."""

    def note(self, refusal: Refusal, request: str) -> None:
        """Count a refused request, such as ``PUT /v1/tenants/blue/acl``."""
        with self._lock:
            refusal = self._find_key(refusal)
            self._counts[refusal] += 1
            self._firsts.setdefault(refusal, request)

    def _find_key(self, refusal: Refusal) -> Refusal:
        """Return the refusal under which one is counted.

        That is itself, the same without its address, or one for all others of its tenant.
        """
        payer = f"principal {refusal.actor.who}" if refusal.tenant is None else f"tenant {refusal.tenant}"
        bare = replace(refusal, actor=Actor(refusal.actor.who))
        for each, most in ((refusal, MOST_KEYS), (bare, 2 * MOST_KEYS)):
            if each in self._counts:
                return each
            if self._keys[payer] < most:
                self._keys[payer] += 1
                return each
        return replace(refusal, actor=OTHERS)

    def collect(self) -> tuple[tuple[Refusal, int, str], ...]:
        """Return what was counted, with the first request of each, and begin anew."""
        with self._lock:
            found = tuple((refusal, count, self._firsts[refusal]) for refusal, count in self._counts.items())
            self._counts, self._firsts, self._keys = Counter(), {}, Counter()
        return found

    def restore(self, collected: tuple[tuple[Refusal, int, str], ...]) -> None:
        """Put back what could not be written."""
        with self._lock:
            for refusal, count, request in collected:
                self._counts[refusal] += count
                self._firsts[refusal] = request


class Sink(Protocol):
    """Where anchors are sent."""

    def send(self, anchor: AuditAnchor) -> None:
        """Send an anchor of the trail. Raises OSError where it is not taken."""
        ...


@dataclass(slots=True)
class Auditor:
    """Keeps the trail of one service. `keep` is how long entries are kept."""

    store: Store
    refusals: Refusals
    key: AuditKey
    sinks: tuple[Sink, ...] = ()
    keep: dt.timedelta = dt.timedelta(days=400)
    every_s: float = EVERY_S
    _unsent: dict[int, deque[AuditAnchor]] = field(default_factory=dict)
    _failing: dict[int, dt.datetime] = field(default_factory=dict)
    _anchored: int = 0
    _rounds: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def unsent(self) -> int:
        """How many anchors sinks have not taken."""
        return sum(map(len, self._unsent.values()))

    def start(self) -> None:
        """Start auditing on a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write and anchor what there is, and end."""
        if self._thread is not None and not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._look_safely()

    def look(self) -> None:
        """Write refusals, anchor a head that moved, and take out old entries when due.

        Raises TryAgain where the store does not take it; nothing is lost then.
        """
        collected = self.refusals.collect()
        try:
            with self.store.write(part="audit") as unit:
                for refusal, count, request in collected:
                    _write_refusal(unit, refusal, count, request)
                anchor = self._anchor(unit)
        except BaseException:
            self.refusals.restore(collected)
            raise
        self._send(anchor)
        if self._rounds % PRUNE_EVERY == 0:
            self._send(self._prune())
        self._rounds += 1

    def _anchor(self, unit: Unit) -> AuditAnchor | None:
        """Sign the newest entry, unless it is anchored already."""
        head = unit.audit.head()
        if head.number == self._anchored:
            return None
        anchor = self.key.anchor(unit.audit.chain, head.number, head.hash.hex(), unit.now)
        unit.audit.keep_anchor(anchor)
        return anchor

    def _send(self, anchor: AuditAnchor | None) -> None:
        """Send each sink the anchors that it lacks, then a new one, if any.

        The first that a sink does not take waits for the next look.
        """
        if anchor is not None:
            self._anchored = anchor.number
            for place in range(len(self.sinks)):
                self._unsent.setdefault(place, deque(maxlen=MOST_UNSENT)).append(anchor)
        for place, unsent in self._unsent.items():
            try:
                while unsent:
                    self.sinks[place].send(unsent[0])
                    unsent.popleft()
            except (OSError, UnicodeError) as error:
                self._log_failure(place, error)
            else:
                if self._failing.pop(place, None) is not None:
                    log.info("audit.anchored_again", sink=place)

    def _log_failure(self, place: int, error: Exception) -> None:
        log.error("audit.unanchored", sink=str(self.sinks[place]), anchors=len(self._unsent[place]), error=str(error))
        if place in self._failing:
            return
        with self.store.write(part="audit") as unit:
            self._failing[place] = unit.now
            unit.events.append("audit.unanchored", "audit", {"sink": str(self.sinks[place]), "error": str(error)})

    def _prune(self) -> AuditAnchor | None:
        """Take out old entries, and anchor the entry that says so.

        Without that anchor it permits nothing.
        """
        with self.store.write() as unit:
            before = unit.now - self.keep
            gone = unit.audit.prune(before)
            unit.events.forget_before(before)
            anchor = self._anchor(unit) if gone else None
        if gone:
            log.info("audit.pruned", entries=gone, before=before.isoformat())
        return anchor

    def _run(self) -> None:
        while not self._stop.wait(self.every_s):
            self._look_safely()

    def _look_safely(self) -> None:
        try:
            self.look()
        except TryAgain as error:
            log.error("audit.not_written", error=str(error))  # noqa: TRY400 - the store is away, and says why
        except Exception:
            log.exception("audit.fault")  # of ours; nobody else would go on with it


def _write_refusal(unit: Unit, refusal: Refusal, count: int, request: str) -> None:
    """Write one entry about requests of one minute."""
    tenant = domain = None
    if refusal.tenant is not None:
        try:
            record = unit.tenants.get(refusal.tenant)
            tenant, domain = record.number, record.domain
        except NotFound:  # it was deleted meanwhile
            pass
    failed = refusal.status >= 500
    unit.audit.append(
        "request.failed" if failed else "request.refused",
        request,
        orjson.dumps({"status": refusal.status, "count": count}).decode(),
        actor=refusal.actor,
        tenant=tenant,
        domain=domain,
        result="failed" if failed else "refused",
    )
