"""Machines that join or leave a domain: the request, its progress, its worker."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
from sqlalchemy import Row, delete, insert, or_, select, update

from orchestrator.errors import Conflict, NotFound
from orchestrator.hosts.request import Onboarding
from orchestrator.policy.model import check_name
from orchestrator.store.schema.core import hosts
from orchestrator.store.schema.identity import onboardings
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.transaction import Transaction

_LONGEST_ERROR = 2048


class OnboardingState(Enum):
    """How far a machine is."""

    ADDING = "adding"
    """It is being made a host; what is done to it may be repeated."""
    DONE = "done"
    """It is a host, and holds the domain's policy."""
    FAILED = "failed"
    """It could not be made a host, or given back; the error says what to change. Asked again, it is tried again."""
    REMOVING = "removing"
    """It is being given back."""


UNDER_WAY = (OnboardingState.ADDING, OnboardingState.REMOVING)


@dataclass(frozen=True, slots=True)
class OnboardingRecord:
    """A machine, what was asked for, and how far it is."""

    asked: Onboarding
    state: OnboardingState
    step: str
    error: str | None
    changed: dt.datetime


class Onboardings:
    """The onboardings' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def page(self, domain: str, *, limit: int, marker: str = "") -> tuple[OnboardingRecord, ...]:
        """Those of a domain by host, those after `marker`, at most `limit`. Raises NotFound."""
        self._tx.domain(domain)
        mine = select(onboardings).where(onboardings.c.domain == domain, onboardings.c.host > marker)
        return tuple(map(_read_record, self._tx.read(mine.order_by(onboardings.c.host).limit(limit))))

    def get(self, domain: str, host: str) -> OnboardingRecord:
        """Return a machine's onboarding. Raises NotFound."""
        row = self._tx.read(select(onboardings).where(_match_host(domain, host))).one_or_none()
        if row is None:
            raise NotFound(f"no machine was onboarded as '{host}' of the domain '{domain}'")
        return _read_record(row)

    def ask(self, asked: Onboarding) -> OnboardingRecord:
        """Record that a machine is to become a host.

        Asked again where nothing is under way, it begins anew.

        Raises NotFound, BadInput, Conflict: while it is being removed, with something else while it is being added, and
        where the name is that of a host that was not onboarded.
        """
        domain, host = asked.switch.domain, asked.switch.host
        self._tx.domain(domain)
        check_name(host, "a host's name", place="name")
        row = self._tx.read(select(onboardings).where(_match_host(domain, host))).one_or_none()
        if (
            row is None
            and self._tx.read(select(hosts.c.name).where(hosts.c.domain == domain, hosts.c.name == host)).first()
        ):
            raise Conflict(f"the domain already has a host or firewall '{host}'", place="name")
        if row is not None:
            known = _read_record(row)
            if known.state is OnboardingState.ADDING and known.asked == asked:
                return known
            if known.state in UNDER_WAY:
                raise Conflict(f"'{host}' is under way ({known.state.value}): wait until it is done", place="name")
            self._tx.write(delete(onboardings).where(_match_host(domain, host)))
        values = {"domain": domain, "host": host, "state": OnboardingState.ADDING.value, "step": "waiting"}
        body = orjson.dumps(asked.to_json()).decode()
        self._tx.write(insert(onboardings).values(**values, body=body, changed=self._tx.micros))
        return self.get(domain, host)

    def ask_back(self, domain: str, host: str) -> OnboardingRecord:
        """Note that a machine is to be given back.

        Raises NotFound, and Conflict while it is being added.
        """
        known = self.get(domain, host)
        if known.state is OnboardingState.ADDING:
            raise Conflict(f"'{host}' is being added: wait until it is done, or has failed")
        self._set_values(domain, host, state=OnboardingState.REMOVING.value, step="waiting", error=None)
        return self.get(domain, host)

    def claim(self, holder: str, lasts_s: float) -> OnboardingRecord | None:
        """Take one onboarding that nobody else holds, for a time; None without one.

        It is one under way, held by nobody or by `holder` already.
        """
        row = self._find_free(holder)
        if row is None:
            return None
        self._set_values(row.domain, row.host, holder=holder, until=self._compute_end(lasts_s))
        return _read_record(row)

    def has_free(self, holder: str) -> bool:
        """Return whether `claim` would find any: for looking often without writing."""
        return self._find_free(holder) is not None

    def _find_free(self, holder: str) -> Row[Any] | None:
        free = or_(
            onboardings.c.holder.is_(None), onboardings.c.holder == holder, onboardings.c.until < self._tx.micros
        )
        under_way = onboardings.c.state.in_([state.value for state in UNDER_WAY])
        return self._tx.read(
            select(onboardings).where(under_way, free).order_by(onboardings.c.changed).limit(1)
        ).one_or_none()

    def step(self, domain: str, host: str, text: str, lasts_s: float) -> None:
        """Say what was done, and hold it on."""
        self._set_values(domain, host, step=text, until=self._compute_end(lasts_s))

    def hold(self, domain: str, host: str, lasts_s: float) -> None:
        """Hold it on, where nothing is to be said."""
        self._set_values(domain, host, until=self._compute_end(lasts_s))

    def finish(self, domain: str, host: str, state: OnboardingState, error: str | None = None) -> None:
        """Note that an onboarding is done, or has failed."""
        step = {"step": "done"} if state is OnboardingState.DONE else {}
        said = error and error[:_LONGEST_ERROR]
        self._set_values(domain, host, state=state.value, error=said, holder=None, until=None, **step)

    def forget(self, domain: str, host: str) -> None:
        """Forget an onboarding whose machine was given back."""
        self._tx.write(delete(onboardings).where(_match_host(domain, host)))

    def _compute_end(self, lasts_s: float) -> int:
        return self._tx.micros + int(lasts_s * 1_000_000)

    def _set_values(self, domain: str, host: str, **values: object) -> None:
        self._tx.write(update(onboardings).where(_match_host(domain, host)).values(changed=self._tx.micros, **values))


def _match_host(domain: str, host: str) -> Any:
    return (onboardings.c.domain == domain) & (onboardings.c.host == host)


def _read_record(row: Row[Any]) -> OnboardingRecord:
    asked = Onboarding.from_json(orjson.loads(row.body))
    return OnboardingRecord(asked, OnboardingState(row.state), row.step, row.error, from_micros(row.changed))
