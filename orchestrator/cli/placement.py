"""`aclflow domain placement`: rules that are decided ahead of their lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.options import DomainName, TenantName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say
from orchestrator.client.placement import PlacedRule
from orchestrator.placement.choice import LEAST_INTERVAL_S, Algorithm

RuleName = Annotated[str, typer.Argument(metavar="RULE", help="The rule's id.", autocompletion=complete.rules)]


@dataclass(frozen=True, slots=True)
class Choosing:
    """How rules are to be chosen, as far as it is said."""

    algorithm: Annotated[Algorithm | None, typer.Option("--algorithm", help="How rules are chosen.")] = None
    interval: Annotated[
        float | None, typer.Option("--interval", help=f"How often, in seconds (T); {LEAST_INTERVAL_S:g} at least.")
    ] = None
    upper: Annotated[int | None, typer.Option("--upper", help="Packets an interval to go up (UT).")] = None
    lower: Annotated[int | None, typer.Option("--lower", help="Packets an interval to stay up (LT).")] = None
    most: Annotated[int | None, typer.Option("--most", help="How many rules may be lifted.")] = None
    hysteresis: Annotated[float | None, typer.Option("--hysteresis", help="How much better another must be.")] = None
    as_printed: Annotated[
        bool | None,
        typer.Option("--as-printed/--repaired", help="The paper's algorithm with its slips, or without (as at first)."),
    ] = None

    def settings(self) -> Mapping[str, object]:
        """The settings that were named."""
        every = {
            "algorithm": self.algorithm.value if self.algorithm else None,
            "interval_s": self.interval,
            "upper": self.upper,
            "lower": self.lower,
            "most_lifted": self.most,
            "hysteresis": self.hysteresis,
            "as_printed": self.as_printed,
        }
        return {name: value for name, value in every.items() if value is not None}


@taking
def show(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """Show what is lifted, since when, why, and what it saves."""
    with service(url) as client:
        seen = client.placement.read(domain)
    body = asdict(seen) | {
        "counting_since": seen.counting_since.isoformat(),
        "rules": [*map(_write_placed, seen.rules)],
    }
    if shown.is_for_people:
        say(" ".join(f"{name}={value}" for name, value in seen.settings.items()), bold=True)
    shown.say(
        body,
        ("tenant", "rule", "lifted since", "form", "parts", "replies", "saves us/s", "because"),
        (
            (
                each.tenant,
                each.rule,
                each.lifted.isoformat(timespec="seconds") if each.lifted else f"no ({each.wish or 'chosen'})",
                each.form or "-",
                each.parts,
                "with it" if each.replies else each.no_replies or "-",
                each.saves_us_per_s if each.saves_us_per_s is not None else "-",
                each.because,
            )
            for each in seen.rules
        ),
    )


@taking
def set_up(
    domain: DomainName,
    choosing: Choosing,
    url: Url = None,
) -> None:
    """Say how rules are chosen; what is left out stays as it is."""
    said = choosing.settings()
    with service(url) as client:
        seen = client.placement.read(domain)
        client.placement.configure(domain, {**seen.settings, **said}, etag=seen.etag)
    say(" ".join(f"{name}={value}" for name, value in {**seen.settings, **said}.items()))


@taking
def try_out(
    domain: DomainName,
    choosing: Choosing,
    shown: Shown,
    url: Url = None,
) -> None:
    """Show what a round would decide now. Nothing is changed.

    It goes by the domain's settings, or by others.
    """
    said = choosing.settings()
    with service(url) as client:
        settings = {**client.placement.read(domain).settings, **said} if said else None
        found = client.placement.try_settings(domain, settings)
    if not found and shown.is_for_people:
        say("no rule is lifted, and a round would lift none")
        return
    shown.say(
        [*map(asdict, found)],
        ("move", "tenant", "rule", "because"),
        ((each.move, each.tenant, each.rule, each.because) for each in found),
    )


@taking
def pin(domain: DomainName, tenant: TenantName, rule: RuleName, url: Url = None) -> None:
    """Lift a rule whatever its counts are."""
    with service(url) as client:
        placed = client.placement.set_wish(domain, tenant, rule, "pinned")
    say(f"{tenant}/{rule} is pinned" + (f", lifted {placed.form}" if placed.form else ", but there is no form for it"))


@taking
def forbid(domain: DomainName, tenant: TenantName, rule: RuleName, url: Url = None) -> None:
    """Never lift a rule."""
    with service(url) as client:
        client.placement.set_wish(domain, tenant, rule, "forbidden")
    say(f"{tenant}/{rule} stays in its list")


@taking
def release(domain: DomainName, tenant: TenantName, rule: RuleName, url: Url = None) -> None:
    """Leave a rule to the chooser again."""
    with service(url) as client:
        client.placement.leave_to_chooser(domain, tenant, rule)
    say(f"{tenant}/{rule} is left to the chooser")


def _write_placed(placed: PlacedRule) -> dict[str, object]:
    times = {name: value.isoformat() if value else None for name, value in
             (("chosen", placed.chosen), ("lifted", placed.lifted))}  # fmt: skip
    return asdict(placed) | times
