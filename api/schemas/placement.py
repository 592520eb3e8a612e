"""Lifted rules: which, since when, why, in what form; and how a domain chooses them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import Field

from api.schemas.common import Incoming, Outgoing
from orchestrator.compile.lifting.lifts import Lift
from orchestrator.placement.choice import LEAST_INTERVAL_S, Algorithm, Choice, Settings, Verdict
from orchestrator.store.placements import Placement, PlacementSettings

_DEFAULTS = Settings()
AlgorithmWord = Literal["off", "paper", "savings"]
Count = Annotated[int, Field(ge=-(2**53), le=2**53)]


class PlacementChange(Incoming):
    """How a domain is to choose. A field that is left out has its default."""

    algorithm: AlgorithmWord = "savings"
    interval_s: float = Field(
        default=_DEFAULTS.interval_s, description=f"how often rules are looked at (T), {LEAST_INTERVAL_S:g} at least"
    )
    upper: Count = Field(default=_DEFAULTS.upper, description="packets an interval that a rule needs to go up (UT)")
    lower: Count = Field(default=_DEFAULTS.lower, description="below so many packets it comes down (LT)")
    most_lifted: Count = Field(default=_DEFAULTS.most_lifted, description="the budget; 0 lifts nothing")
    hysteresis: float = Field(default=_DEFAULTS.hysteresis, description="how much better another rule must be")
    as_printed: bool = Field(default=False, description="the paper's algorithm with its slips")

    def settings(self) -> Settings:
        """Return the settings of choosing. Raises BadInput with the field's name."""
        settings = Settings(**self.model_dump() | {"algorithm": Algorithm(self.algorithm)})
        settings.check_that_counts_keep_up()
        return settings


class PlacementSettingsBody(PlacementChange):
    """How a domain chooses."""

    @classmethod
    def of(cls, settings: Settings) -> PlacementSettingsBody:
        return cls(
            algorithm=settings.algorithm.value,
            interval_s=settings.interval_s,
            upper=settings.upper,
            lower=settings.lower,
            most_lifted=settings.most_lifted,
            hysteresis=settings.hysteresis,
            as_printed=settings.as_printed,
        )


class Wished(Incoming):
    """The operator's wish for a rule."""

    wish: Literal["pinned", "forbidden"]


class PlacedRule(Outgoing):
    """A rule that is lifted, or that somebody wants something of."""

    tenant: str
    rule: str
    wish: Literal["pinned", "forbidden"] | None
    chosen: dt.datetime | None = Field(description="since when the chooser wants it lifted")
    lifted: dt.datetime | None = Field(description="since when it is decided ahead of its list")
    because: str
    saves_us_per_s: int | None = Field(description="microseconds of a core a second, as the chooser estimates")
    form: Literal["alone", "narrowed", "together"] | None
    parts: int = Field(description="parts of lines, its own included, that stand above the list for it")
    replies: bool = Field(description="whether the replies to its packets are lifted with it")
    no_replies: str = Field(description="why they are not")

    @classmethod
    def of(cls, placement: Placement, lift: Lift | None) -> PlacedRule:
        form = lift.form if lift is not None else None
        return cls(
            tenant=placement.rule.tenant,
            rule=placement.rule.rule,
            wish=placement.wish.value if placement.wish else None,
            chosen=placement.chosen,
            lifted=placement.lifted,
            because=placement.because,
            saves_us_per_s=placement.saves_us_per_s,
            form=form.value if form else None,
            parts=len(lift.parts) if lift is not None else 0,
            replies=lift.replies if lift is not None else False,
            no_replies=lift.no_replies if lift is not None else "",
        )


class PlacementBody(Outgoing):
    """The rules lifted in a domain, and how they are chosen."""

    settings: PlacementSettingsBody
    version: int
    counting_since: dt.datetime = Field(description="the last round; the next one looks at what was counted since")
    idle_share: float | None = Field(description="of all rules, in the last round")
    never_used_share: float | None
    rules: list[PlacedRule]

    @classmethod
    def of(cls, state: PlacementSettings, rules: list[PlacedRule]) -> PlacementBody:
        return cls(
            settings=PlacementSettingsBody.of(state.settings),
            version=state.version,
            counting_since=state.since,
            idle_share=state.idle_share,
            never_used_share=state.never_used_share,
            rules=rules,
        )


class VerdictBody(Outgoing):
    """One decision of a round that was tried."""

    tenant: str
    rule: str
    because: str
    saves_us_per_s: float | None

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictBody:
        rule = verdict.rule
        return cls(tenant=rule.tenant, rule=rule.rule, because=verdict.because, saves_us_per_s=verdict.saves_us_per_s)


class ChoiceBody(Outgoing):
    """Decisions of a round that was tried."""

    lift: list[VerdictBody]
    lower: list[VerdictBody]
    stays: list[VerdictBody]
    idle_share: float
    never_used_share: float
    counted_s: float = Field(description="for how long packets were counted")

    @classmethod
    def of(cls, choice: Choice, counted_s: float) -> ChoiceBody:
        lift, lower, stays = ([*map(VerdictBody.of, part)] for part in (choice.lift, choice.lower, choice.stays))
        return cls(
            lift=lift,
            lower=lower,
            stays=stays,
            idle_share=choice.idle_share,
            never_used_share=choice.never_used_share,
            counted_s=counted_s,
        )
