"""Lifted rules of a domain, since when and why, and the settings of choosing.

A row of `placements` is a rule that somebody wants something of:

    wish      pinned: lifted whatever its counts; forbidden: never; none: left to the chooser
    chosen    since when the chooser wants it lifted
    lifted    since when it stands above its list: it is wanted there, and a form was found when it was compiled last

What entries a lifted rule takes is nowhere in the database: it follows from the policy, each time anew.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Row, bindparam, delete, func, select

from orchestrator.errors import NotFound
from orchestrator.placement.choice import Algorithm, Choice, Settings, Verdict, Wish
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import RuleId, TenantId
from orchestrator.store.acls.rows import current_row
from orchestrator.store.events import Events
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.schema.core import domains, placement_settings, placements, tenants
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.transaction import Transaction, expect

_PER_MILLE = 1000
_FIRST_VERSION = 1
_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """A domain's settings of choosing at a version, and the last round.

    Since when packets count for the next round; and what the last one found: the shares of rules that were idle and
    that were never used (None: there was no round yet).
    """

    version: int
    settings: Settings
    since: dt.datetime
    idle_share: float | None = None
    never_used_share: float | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """A lifted or wished rule.

    `saves_us_per_s` is as the chooser estimated it.
    """

    rule: LiftedRule
    wish: Wish | None
    chosen: dt.datetime | None
    lifted: dt.datetime | None
    because: str
    saves_us_per_s: int | None

    @property
    def wanted(self) -> bool:
        """Whether it is to stand above its list."""
        return self.wish is Wish.PINNED or (self.wish is None and self.chosen is not None)

    @property
    def says_nothing(self) -> bool:
        """Whether nobody wants anything of it, and it stands where it always did."""
        return self.wish is None and self.chosen is None and self.lifted is None


@dataclass(frozen=True, slots=True)
class Stands:
    """Whether a rule can be lifted, and the reason.

    A rule without a form stays where it is.
    """

    rule: LiftedRule
    has_form: bool
    because: str = ""


class Placements:
    """The placements' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --------------------------------------------------------------------------------------------------- settings

    def settings(self, domain: str) -> PlacementSettings:
        """How a domain chooses. Raises NotFound."""
        self._tx.domain(domain)
        return _state(self._tx.read(_SETTINGS.where(domains.c.id == domain)).one())

    def set_settings(self, domain: str, settings: Settings, *, expected_version: int | None = None) -> int:
        """Choose differently from now on; the new version. Raises NotFound, Stale."""
        known = self.settings(domain)
        expect(expected_version, known.version)
        if known.settings == settings:
            return known.version
        self._write_settings(domain, version=known.version + 1, body=_write_settings_text(settings))
        return known.version + 1

    def _write_settings(self, domain: str, **values: object) -> None:
        fresh = {"domain": domain, "version": _FIRST_VERSION, "body": _write_settings_text(_DEFAULTS)}
        row = self._tx.upsert(placement_settings).values(fresh | values)
        self._tx.write(row.on_conflict_do_update(index_elements=["domain"], set_=values))

    def every_domain(self) -> tuple[tuple[str, PlacementSettings], ...]:
        """Every domain, and how it chooses."""
        return tuple((row.id, _state(row)) for row in self._tx.read(_SETTINGS.order_by(domains.c.id)))

    # ------------------------------------------------------------------------------------------------- placements

    def has_chosen(self, domain: str) -> bool:
        """Whether a domain's chooser wants any rule lifted."""
        chosen = (placements.c.domain == domain) & placements.c.chosen.is_not(None)
        return self._tx.read(select(placements.c.rule_id).where(chosen).limit(1)).first() is not None

    def how_many_lifted(self, domain: str) -> int:
        """How many rules of a domain stand above their lists."""
        mine = (placements.c.domain == domain) & placements.c.lifted.is_not(None)
        return int(self._tx.read(select(func.count()).select_from(placements).where(mine)).scalar_one())

    def lifted_of(self, tenant: str) -> Mapping[RuleId, dt.datetime]:
        """The rules of a tenant that stand above its list, and since when. Raises NotFound."""
        number = self._tx.tenant(tenant).number
        mine = (placements.c.tenant == number) & placements.c.lifted.is_not(None)
        rows = self._tx.read(select(placements.c.rule_id, placements.c.lifted).where(mine))
        return {RuleId(row.rule_id): from_micros(row.lifted) for row in rows}

    def list(self, domain: str) -> tuple[Placement, ...]:
        """Every placement of a domain, by tenant and rule. Raises NotFound."""
        self._tx.domain(domain)
        return tuple(_read_placement(row) for row in self._tx.read(_OF_DOMAIN, {"domain": domain}))

    def wish(self, domain: str, rule: LiftedRule, wish: Wish | None) -> Placement | None:
        """Pin or forbid a rule, or leave it to the chooser; return its placement.

        None where nothing is left to say of the rule. Raises NotFound where the domain has no such tenant, or its list
        no such rule.
        """
        number = self._number(domain, rule)
        before = self._find_placement(domain, rule)
        if wish is not None:
            said = {"wish": wish.value, "chosen": None, "saves": None, "because": f"{wish.value} by the operator"}
            self._put_placement(domain, number, rule, said)
        elif before is not None and before.wish is not None:
            self._put_placement(domain, number, rule, {"wish": None, "because": f"not {before.wish.value} any more"})
        after = self._find_placement(domain, rule)
        if (before is not None and before.wanted) != (after is not None and after.wanted):
            self._tx.bump_for_placement(domain)
        if after is not None and after.says_nothing:
            self._forget_placement(domain, number, rule)
            return None
        return after

    def decide(self, domain: str, choice: Choice, since: dt.datetime) -> bool:
        """Carry out a round of choosing by what was counted from `since` on.

        False, and nothing is changed, where another process has had its round since.
        """
        settings = self.settings(domain)
        if settings.since != since:
            return False
        shares = (round(share * _PER_MILLE) for share in (choice.idle_share, choice.never_used_share))
        self._write_settings(
            domain, looked=self._tx.micros, **dict(zip(("idle_permille", "unused_permille"), shares, strict=True))
        )
        for verdict in (*choice.lift, *choice.stays):
            self._note_choice(domain, verdict)
        for verdict in choice.lower:
            self._take_down(domain, verdict)
        if choice.lift or choice.lower:
            self._tx.bump_for_placement(domain)
        return True

    def _note_choice(self, domain: str, verdict: Verdict) -> None:
        try:
            number = self._number(domain, verdict.rule)
        except NotFound:
            return  # it was taken out of its list in the meantime
        before = self._find_placement(domain, verdict.rule)
        if before is not None and before.wish is not None:
            return  # and here the operator has spoken
        saves = None if verdict.saves_us_per_s is None else round(verdict.saves_us_per_s)
        since = {} if before is not None and before.chosen is not None else {"chosen": self._tx.micros}
        self._put_placement(domain, number, verdict.rule, {"because": verdict.because, "saves": saves, **since})

    def _take_down(self, domain: str, verdict: Verdict) -> None:
        """Note that the chooser does not want a rule lifted any more.

        The row stays while it says that the rule stands above its list.
        """
        number = self._tenant_number(domain, verdict.rule)
        before = self._find_placement(domain, verdict.rule)
        if number is not None and before is not None and before.wish is None:
            self._put_placement(
                domain, number, verdict.rule, {"chosen": None, "saves": None, "because": verdict.because}
            )

    # ------------------------------------------------------------------------------------------- after compiling

    def settle(self, domain: str, snapshot: PolicySnapshot, outcome: Sequence[Stands]) -> PolicySnapshot:
        """Store the results of lifting, with an event for each change.

        A lift without a form that is not pinned is not wanted any more. Gives the snapshot as it is after that.
        """
        stands = {each.rule: each for each in outcome}
        up = {rule for rule, each in stands.items() if each.has_form}
        if up == snapshot.standing and len(up) == len(stands):
            return snapshot
        for known in self.list(domain):
            self._settle(domain, known, stands.get(known.rule))
        settled = with_placements(self._tx, domain, snapshot)
        self._tx.snapshots[domain] = settled
        return settled

    def _settle(self, domain: str, known: Placement, stands: Stands | None) -> None:
        """Store how a rule is placed after a round.

        Nothing is asked of rules that were not to be lifted.
        """
        rule, number = known.rule, self._tenant_number(domain, known.rule)
        assert number is not None
        because = stands.because if stands is not None and not stands.has_form else known.because
        after = replace(
            known,
            chosen=known.chosen if stands is None or stands.has_form else None,
            lifted=(known.lifted or self._tx.now) if stands is not None and stands.has_form else None,
            because=because,
        )
        if after.says_nothing:
            self._forget_placement(domain, number, rule)
        elif after != known:
            micros = {"chosen": after.chosen, "lifted": after.lifted}
            said = {name: None if value is None else to_micros(value) for name, value in micros.items()}
            self._put_placement(domain, number, rule, said | {"because": because})
        if (after.lifted is None) != (known.lifted is None):
            kind = "placement.lowered" if after.lifted is None else "placement.lifted"
            detail: dict[str, object] = {"tenant": rule.tenant, "rule": rule.rule, "because": because}
            if after.lifted is not None and known.saves_us_per_s is not None:
                detail["saves_us_per_s"] = known.saves_us_per_s
            Events(self._tx).append(kind, domain, detail)

    # ------------------------------------------------------------------------------------------------------ rows

    def _number(self, domain: str, rule: LiftedRule) -> int:
        """The number of the tenant that has a rule. Raises NotFound."""
        number = self._tenant_number(domain, rule)
        if number is None:
            raise NotFound(f"the domain has no tenant '{rule.tenant}'")
        if current_row(self._tx, number, rule.rule) is None:
            raise NotFound(f"the list of '{rule.tenant}' has no rule '{rule.rule}'")
        return number

    def _tenant_number(self, domain: str, rule: LiftedRule) -> int | None:
        asked = select(tenants.c.number).where(tenants.c.id == rule.tenant, tenants.c.domain == domain)
        found = self._tx.read(asked).scalar_one_or_none()
        return None if found is None else int(found)

    def _find_placement(self, domain: str, rule: LiftedRule) -> Placement | None:
        rows = self._tx.read(
            _OF_DOMAIN.where(tenants.c.id == rule.tenant, placements.c.rule_id == rule.rule), {"domain": domain}
        )
        row = rows.one_or_none()
        return None if row is None else _read_placement(row)

    def _put_placement(self, domain: str, number: int, rule: LiftedRule, said: Mapping[str, object]) -> None:
        key = {"domain": domain, "tenant": number, "rule_id": rule.rule}
        row = self._tx.upsert(placements).values(key | dict(said))
        self._tx.write(row.on_conflict_do_update(index_elements=list(key), set_=dict(said)))

    def _forget_placement(self, domain: str, number: int, rule: LiftedRule) -> None:
        here = (placements.c.domain == domain) & (placements.c.tenant == number)
        self._tx.write(delete(placements).where(here, placements.c.rule_id == rule.rule))


def with_placements(tx: Transaction, domain: str, snapshot: PolicySnapshot) -> PolicySnapshot:
    """A snapshot with the rules that are to be lifted as the database has them."""
    found = [_read_placement(row) for row in tx.read(_OF_DOMAIN, {"domain": domain})]
    return replace(
        snapshot,
        lifted=tuple(each.rule for each in found if each.wanted),
        standing=frozenset(each.rule for each in found if each.lifted is not None),
    )


_OF_DOMAIN = (
    select(placements, tenants.c.id.label("tenant_id"))
    .join(tenants, tenants.c.number == placements.c.tenant)
    .where(placements.c.domain == bindparam("domain"))
    .order_by(tenants.c.id, placements.c.rule_id)
)


def _read_placement(row: Row[Any]) -> Placement:
    return Placement(
        LiftedRule(TenantId(row.tenant_id), RuleId(row.rule_id)),
        None if row.wish is None else Wish(row.wish),
        None if row.chosen is None else from_micros(row.chosen),
        None if row.lifted is None else from_micros(row.lifted),
        row.because,
        row.saves,
    )


_SETTINGS = select(domains.c.id, domains.c.created, placement_settings).join(
    placement_settings, placement_settings.c.domain == domains.c.id, isouter=True
)


def _state(row: Row[Any]) -> PlacementSettings:
    """How a domain chooses; where nobody has said anything, as it is from the beginning."""
    return PlacementSettings(
        _FIRST_VERSION if row.version is None else row.version,
        _DEFAULTS if row.body is None else _settings(row.body),
        from_micros(row.created if row.looked is None else row.looked),
        _read_share(row.idle_permille),
        _read_share(row.unused_permille),
    )


def _settings(body: str) -> Settings:
    """Read stored settings.

    A setting that did not exist then has its default.
    """
    said = orjson.loads(body)
    return Settings(**said | {"algorithm": Algorithm(said["algorithm"])})


def _write_settings_text(settings: Settings) -> str:
    return orjson.dumps(asdict(settings) | {"algorithm": settings.algorithm.value}).decode()


def _read_share(permille: int | None) -> float | None:
    return None if permille is None else permille / _PER_MILLE
