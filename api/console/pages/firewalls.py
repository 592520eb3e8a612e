"""Firewall VNFs: load, the fleet's size and why, how traffic is spread, a cluster's state.

The state of a cluster is shown as its members report it: who owns what, who follows whom, and how many packets each
holds. The service does not speak with members, so the console asks them where `aclflow console --cluster` says that
they are; one that does not answer is shown to be silent.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty, heading
from api.console.parts.table import CHIP_CELL, WRAPPED_CELL, columns, fill, plain_table
from api.console.parts.view import View
from api.console.pictures.series import Series, series_picture
from orchestrator.client import Client
from orchestrator.client.spread import SpreadSeen
from orchestrator.errors import AclflowError, NotFound
from orchestrator.statesync.status import Status, ask_all
from orchestrator.wire.domains import Lagging
from orchestrator.wire.firewalls import Firewall, Fleet, FleetDecision, FleetMember, FleetSample, PlaneWord

Clusters = Mapping[str, Sequence[str]]
"""Where the members of a domain's cluster tell of themselves, as ADDRESS:PORT."""

_LIVE_S = 3.0
_DECISIONS = 10
_BUCKETS = 256
_COLUMNS = columns(
    ("name", "Firewall", "left"),
    ("plane", "Filters with", "left"),
    ("state", "State", "left"),
    ("share", "Share", "right"),
    ("packets", "Packets/s", "right"),
    ("bits", "Bits/s", "right"),
    ("cpu", "CPU", "right"),
    ("connections", "Connections", "right"),
    ("heard", "Heard", "right"),
    ("says", "Why", "left"),
)
_KINDS = {"serving": "good", "draining": "warn", "leaving": "warn", "failed": "bad", "gone": "none"}
"""How a state of a VNF's life looks; those that lead to serving are news."""

Members = Mapping[str, Status | str]
"""By where each was asked: what it says, or why it says nothing."""

_MEMBERS = columns(
    ("member", "Member", "left"),
    ("state", "State", "left"),
    ("owns", "Owns", "right"),
    ("followers", "Followed by", "left"),
    ("lag", "Messages that have not come", "left"),
    ("held", "Packets held", "right"),
    ("open", "Open", "right"),
    ("brief", "Opening or closing", "right"),
    ("at", "Asked at", "left"),
)
_STATES = columns(("kind", "Connections", "left"), ("each", "Known to each member", "left"))


async def read_members(places: Sequence[str]) -> Members:
    """Ask the members at these places, whether or not the service answers. Raises nothing."""
    return await asyncio.to_thread(ask_all, places) if places else {}


class Cluster:
    """The panel of a domain's cluster."""

    def __init__(self) -> None:
        with ui.column().classes("w-full gap-2").props("data-part=cluster") as self._panel:
            with ui.row().classes("w-full items-center gap-3"):
                heading("Cluster")
                self._well = ui.label().classes("chip none").props("role=status")
                self._shares = ui.label().classes("quiet small")
            self._members = plain_table(_MEMBERS, key="at")
            self._members.add_slot("body-cell-state", CHIP_CELL)
            self._members.add_slot("body-cell-lag", WRAPPED_CELL)
            self._states = plain_table(_STATES, "No member knows a connection.")
        self._panel.set_visibility(False)

    def show(self, members: Members, spread: SpreadSeen | None) -> None:
        """Show what the members said."""
        self._panel.set_visibility(bool(members))
        known = [each for each in members.values() if isinstance(each, Status)]
        well = sum(each.is_well for each in known)
        self._well.text = f"{words.count(well)} of {words.of(len(members), 'member')} well"
        self._well.classes(replace=f"chip {'good' if well == len(members) else 'bad'}")
        self._shares.text = "; ".join(dict.fromkeys(map(_sharing, known)))
        owners = {each.carrier.number: (each.carrier.name, each.buckets) for each in spread.firewalls} if spread else {}
        fill(self._members, [_make_member_row(where, each, owners) for where, each in members.items()])
        fill(self._states, _state_rows(known))


def _sharing(member: Status) -> str:
    """How members share: what, and how surely."""
    return f"level {member.level}, {member.context}, {member.confirmation}"


def _make_member_row(where: str, member: Status | str, owners: Mapping[int, tuple[str, int]]) -> dict[str, object]:
    if isinstance(member, str):
        return {"at": where, "member": "", "state": "does not answer", "kind": "bad", "lag": member}
    name, buckets = owners.get(member.member, ("", None))
    state, kind = _describe_member(member)
    return {
        "at": where,
        "member": f"{member.member}: {name}" if name else str(member.member),
        "state": state,
        "kind": kind,
        "owns": "" if buckets is None else f"{buckets} of {_BUCKETS} ({words.share(buckets / _BUCKETS)})",
        "followers": ", ".join(map(str, member.followers)) or "nobody",
        "lag": ", ".join(f"{words.count(each.lag)} of member {each.member}" for each in member.followed)
        or "it follows nobody",
        "held": words.count(member.held),
        "open": words.count(member.connections(opened=True)),
        "brief": words.count(member.connections(opened=False)),
    }


def _describe_member(member: Status) -> tuple[str, str]:
    """The state of a member that answers, and how that looks."""
    if not member.serves:
        return "does not serve", "bad"
    if not member.is_whole:
        return "serves, not whole yet", "warn"
    return ("serves", "good") if member.is_well else ("serves, messages missing", "warn")


def _state_rows(members: Sequence[Status]) -> list[dict[str, object]]:
    """A row for each protocol and state in which a member has a connection."""
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for member in members:
        for each in member.states:
            counts.setdefault((each.protocol, each.state), {})[member.member] = each.count
    return [
        {
            "kind": f"{protocol} {state.lower().replace('_', ' ')}",
            "each": ", ".join(f"member {number}: {words.count(count)}" for number, count in sorted(by_member.items())),
        }
        for (protocol, state), by_member in sorted(counts.items())
    ]


@dataclass(frozen=True, slots=True)
class _Seen:
    """State of a domain's firewalls.

    None where it has no fleet, or nothing is spread.
    """

    firewalls: tuple[Firewall, ...]
    late: Mapping[str | None, Lagging]
    fleet: Fleet | None
    decisions: tuple[FleetDecision, ...]
    samples: tuple[FleetSample, ...]
    spread: SpreadSeen | None
    members: Members
    """Of the cluster; none where the console was told of no cluster."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing of a firewall."""
        return not self.firewalls and self.fleet is None and not self.members

    @property
    def order(self) -> int:
        """Fleets come first, then firewalls that were brought in, then domains without any."""
        return 0 if self.fleet is not None else 2 if self.is_empty else 1


async def build(view: View, clusters: Clusters) -> None:
    """Draw the page. `clusters` tells where members of clusters answer, by domain."""
    ui.label(
        "Firewall VNFs filter what the lists of their domain say; a fleet has as many as the traffic needs."
    ).classes("quiet")
    domains = await view.read("domains", lambda client: list(client.domains.read_all()), fresh_s=5)
    if not domains:
        with empty("There is no domain yet, so there are no firewalls. Make one with:"):
            ui.label("aclflow domain create NAME").classes("mono")
    panels = [(domain.id, await _seen(view, domain.id, clusters)) for domain in domains]
    for domain, seen in sorted(panels, key=lambda panel: panel[1].order):
        panel = _Firewalls(view, domain, clusters)
        panel.show(seen)
        ui.timer(_LIVE_S, panel.refresh)


async def _seen(view: View, domain: str, clusters: Clusters) -> _Seen:
    """Read the state of a domain's firewalls. Raises what the client raises."""
    read = functools.partial(_read, domain=domain)
    members = asyncio.create_task(read_members(clusters.get(domain, ())))
    seen = await view.read(("firewalls", domain), read, fresh_s=_LIVE_S - 0.5)
    return replace(seen, members=await members)


class _Firewalls:
    def __init__(self, view: View, domain: str, clusters: Clusters) -> None:
        self._view = view
        self._domain = domain
        self._clusters = clusters
        self._decisions: tuple[FleetDecision, ...] | None = None
        self._draw()

    def _draw(self) -> None:
        with ui.column().classes("panel"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(self._domain).classes("text-lg font-bold")
                self._size = ui.label().classes("chip none")
                ui.space()
                self._rule = ui.label().classes("quiet small")
            self._because = ui.label()
            self._trouble = ui.label().classes("chip warn").style("white-space: normal")
            self._table = plain_table(_COLUMNS)
            self._table.add_slot("body-cell-state", CHIP_CELL)
            self._table.add_slot("body-cell-says", WRAPPED_CELL)
            self._cluster = Cluster()
            self._model = ui.label().classes("quiet small")
            self._spread = ui.label().classes("quiet small")
            self._plot = ui.html("", sanitize=False).classes("w-full scrolls newest-first")
            self._plot.props("tabindex=0 role=group aria-label='Traffic and firewalls over time'")
            with empty("No firewall VNF yet. Bring one in, or have aclflow make as many as the traffic needs:") as none:
                ui.label(f"aclflow firewall add {self._domain} NAME --plane nftables").classes("mono")
                ui.label(f"aclflow fleet set {self._domain} --size auto").classes("mono")
            self._none = none
            self._history = ui.column().classes("w-full gap-1")

    async def refresh(self) -> None:
        """Show the firewalls as they are."""
        try:
            self.show(await _seen(self._view, self._domain, self._clusters))
        except AclflowError:
            return

    def show(self, seen: _Seen) -> None:
        """Show the fleet and firewalls that were just read."""
        rows = _rows(seen, dt.datetime.now(dt.UTC))
        self._none.set_visibility(seen.is_empty)
        self._table.set_visibility(bool(rows))
        fill(self._table, rows)
        self._show_size(seen)
        self._show_spread(seen.spread)
        self._cluster.show(seen.members, seen.spread)
        if seen.samples:
            self._plot.set_content(_draw_picture(seen, self._view.session.zone))
        self._plot.set_visibility(bool(seen.samples))
        if seen.decisions != self._decisions:
            self._decisions = seen.decisions
            self._history.clear()
            with self._history:
                self._draw_decisions(seen.decisions)
        self._history.set_visibility(seen.fleet is not None)

    def _show_size(self, seen: _Seen) -> None:
        fleet = seen.fleet
        self._because.set_visibility(fleet is not None)
        self._model.text = fleet.prediction.in_words().capitalize() if fleet and fleet.prediction else ""
        self._model.set_visibility(bool(self._model.text))
        self._trouble.text = _trouble(seen)
        self._trouble.set_visibility(bool(self._trouble.text))
        if fleet is None:
            self._size.text = words.of(len(seen.firewalls), "firewall")
            self._rule.text = "no fleet: as many as are brought in"
            return
        serving = sum(member.state == "serving" for member in fleet.members)
        wanted = serving if fleet.wanted is None else fleet.wanted
        self._size.text = f"{words.count(serving)} of {words.count(wanted)} wanted serve"
        self._size.classes(replace=f"chip {'good' if serving == wanted else 'warn'}")
        self._rule.text = _spell_limits(fleet)
        self._because.text = fleet.because

    def _show_spread(self, spread: SpreadSeen | None) -> None:
        self._spread.set_visibility(spread is not None)
        if spread is not None:
            held = "the spreading switch holds them" if spread.enforced >= spread.generation else "behind"
            both = "; both directions of a connection meet the same firewall" if spread.stateful else ""
            given_up = f"; now {', '.join(spread.carrying) or 'nobody'} carry all" if spread.given_up else ""
            self._spread.text = f"Shares of generation {words.count(spread.generation)}: {held}{both}{given_up}"

    def _draw_decisions(self, decisions: Sequence[FleetDecision]) -> None:
        heading("Decisions")
        if not decisions:
            ui.label("The size was never changed. It is looked at every few seconds.").classes("quiet")
        for each in decisions:
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(f"{each.before} → {each.size}").classes(
                    f"chip {'info' if each.size > each.before else 'none'}"
                )
                ui.label(each.because).classes("grow").style("min-width: 200px; flex-basis: 0")
                ui.label(f"{words.moment(each.at, self._view.session.zone)}, by {each.by}").classes(
                    "small quiet number"
                )


def _read(client: Client, domain: str) -> _Seen:
    """All that the page shows of a domain. Blocks."""
    state = client.domains.read_generation(domain, client.domains.read(domain).generation)
    fleet: Fleet | None = None
    decisions: tuple[FleetDecision, ...] = ()
    samples: tuple[FleetSample, ...] = ()
    spread: SpreadSeen | None = None
    with suppress(NotFound):
        fleet = client.fleet.read(domain)
        decisions = tuple(islice(client.fleet.read_decisions(domain), _DECISIONS))
        samples = client.fleet.read_samples(domain)
    with suppress(NotFound):
        spread = client.spread.read(domain)
    late = {each.host: each for each in state.laggards}
    return _Seen(tuple(client.firewalls.read_all(domain)), late, fleet, decisions, samples, spread, {})


def _spell_limits(fleet: Fleet) -> str:
    """Say the limits of a fleet's size."""
    limits, size = fleet.settings["limits"], fleet.settings["size"]
    if size is not None:
        return f"{words.count(size)} by hand, whatever the load is"
    return f"{limits['fewest']} to {limits['most']}, each at {words.share(limits['target'])} of what one carries"


def _trouble(seen: _Seen) -> str:
    """Say the trouble of a fleet or a spread; empty where there is none."""
    if seen.spread is not None and seen.spread.trouble:
        return f"Spreading switch: {seen.spread.trouble}"
    if seen.spread is not None and seen.spread.given_up:
        return f"The spreading switch hears nothing of {', '.join(seen.spread.given_up)}: others carry the traffic."
    if seen.fleet is not None and seen.fleet.cloud is None:
        return "This service has no cloud, so VNFs are neither made nor removed: name one in its settings (cloud)."
    return ""


def _draw_picture(seen: _Seen, zone: dt.tzinfo) -> str:
    limits: tuple[tuple[str, float], ...] = ()
    if seen.fleet is not None:
        limits = (("most", float(seen.fleet.settings["limits"]["most"])),)
    lanes = (
        Series("Packets a second, all together", [each.packets_pps for each in seen.samples], "pps"),
        Series("Bits a second, all together", [each.bits_bps for each in seen.samples], "bit/s"),
        Series("VNFs that serve", [each.serving for each in seen.samples], stepped=True, limits=limits),
    )
    return series_picture([each.at for each in seen.samples], lanes, zone)


def _rows(seen: _Seen, now: dt.datetime) -> list[dict[str, object]]:
    """Return a row for each firewall and each VNF of the fleet."""
    members = {each.name: each for each in seen.fleet.members} if seen.fleet else {}
    known = {each.name: each for each in seen.firewalls}
    shares = {each.carrier.name: each.buckets for each in seen.spread.firewalls} if seen.spread else {}
    plane: PlaneWord = seen.fleet.settings["plane"] if seen.fleet else "nftables"
    return [
        _make_row(
            known.get(name) or Firewall(name, plane, None),
            members.get(name),
            seen.late.get(name),
            shares.get(name),
            now,
        )
        for name in sorted({*known, *members})
    ]


def _make_row(
    firewall: Firewall, member: FleetMember | None, late: Lagging | None, buckets: int | None, now: dt.datetime
) -> dict[str, object]:
    state, kind, says = _state(member, late)
    load = firewall.load
    said = [each for each in (load and load.trouble, says) if each]
    return {
        "name": firewall.name,
        "plane": firewall.plane,
        "state": state,
        "kind": kind,
        "share": "" if buckets is None else f"{buckets} of {_BUCKETS} ({words.share(buckets / _BUCKETS)})",
        "packets": words.short(load.packets_pps) if load else "",
        "bits": words.short(load.bits_bps) if load else "",
        "cpu": f"{load.cpu_permille / 10:.1f} %" if load else "",
        "connections": words.count(load.connections) if load else "",
        "heard": words.ago(load.reported if load else None, now),
        "says": "; ".join(said),
    }


def _state(member: FleetMember | None, late: Lagging | None) -> tuple[str, str, str]:
    """Where a firewall stands, how that looks, and why."""
    if member is not None:
        state = member.state if member.well else f"{member.state}, not well"
        said = [member.because, member.progress, f"capped: {member.capped}" if member.capped else ""]
        kind = _KINDS.get(member.state, "info") if member.well else "bad"
        return state, kind, "; ".join(each for each in said if each)
    if late is None:
        return "in force", "good", ""
    if late.state is None:
        return "never reported", "bad", "its agent has not enrolled, or has not loaded its program yet"
    state = late.word
    return state, "warn", f"at generation {late.generation or 0}" + (f": {late.error}" if late.error else "")
