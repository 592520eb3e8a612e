"""The state of a firewall cluster as its members report it.

It says who owns what, who follows whom, and how many packets each holds. The service does not speak with members, so
the console asks them where `aclflow console --cluster` says that they are; one that does not answer is shown to be
silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from nicegui import ui

from api.console import words
from api.console.parts.pieces import heading
from api.console.parts.table import CHIP_CELL, WRAPPED_CELL, columns, fill, plain_table
from orchestrator.client.spread import SpreadSeen
from orchestrator.statesync.status import Status, ask_all

Members = Mapping[str, Status | str]
"""By where each was asked: what it says, or why it says nothing."""

_BUCKETS = 256
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
    state, kind = _state(member)
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


def _state(member: Status) -> tuple[str, str]:
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
