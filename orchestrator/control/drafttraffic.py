"""Run a tenant's recorded packets through its list and through a draft of it.

This is done before the draft is committed. The records are the tenant's packet log: headers that its rules with `log`
have sampled, the newest of them. Each packet is asked as `aclflow replay` asks: egress, then ingress, with the domain's
return traffic.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.classify.listdecider import NOBODY, Decider, Deciding
from orchestrator.classify.packets import PACKET, record
from orchestrator.control.dryruns import tried_list
from orchestrator.policy.addresses import Prefix, format_address
from orchestrator.policy.findings import Checks
from orchestrator.policy.model import Acl, Packet
from orchestrator.wire.lists import ChangedTraffic, DraftTraffic, PeerTraffic

MOST_PEERS, MOST_CHANGES = 20, 200
"""Peers of a change, and changes, that are told; counts are of all."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A recorded packet: its headers, the length that it had, when it was seen."""

    packet: Packet
    length: int
    time: dt.datetime


def tried_traffic(current: Acl, text: bytes, checks: Checks, sampled: Sequence[Sampled]) -> DraftTraffic:
    """Return which recorded packets a draft, in its native form, would newly refuse or permit.

    Raises BadInput, and BadPolicy where the list names what is not the tenant's.
    """
    draft = tried_list(text, checks)
    lists = [Deciding(acl, own=checks.own, returns=checks.returns) for acl in (draft, current)]
    packets = np.array([record(each.packet, each.length) for each in sampled], PACKET)
    now, before = (each.verdicts(packets) for each in lists)
    asked = now.decider != NOBODY
    permitted, did = (each.permits[found.decider] for each, found in zip(lists, (now, before), strict=True))
    changed = np.flatnonzero(asked & (permitted != did))
    changes: dict[tuple[int, int], _Change] = {}
    for place in changed.tolist():
        key = int(now.decider[place]), int(before.decider[place])
        if key not in changes:
            changes[key] = _Change(lists[0].deciders[key[0]], lists[1].deciders[key[1]], Counter(), Counter())
        changes[key].add(sampled[place], checks.own)
    told = sorted((each.to_document() for each in changes.values()), key=lambda each: -each.packets)
    becomes = {way: sum(each.packets for each in told if each.becomes == way) for way in ("permit", "deny")}
    return DraftTraffic(
        packets=int(asked.sum()),
        since=min((each.time for each in sampled), default=None),
        newly_permitted=becomes["permit"],
        newly_denied=becomes["deny"],
        changes=tuple(told[:MOST_CHANGES]),
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """Packets that a line of the draft decides otherwise than the list did.

    One line of the list decided them before.
    """

    after: Decider
    before: Decider
    packets: Counter[str]
    byte_counts: Counter[str]
    """Of each peer."""

    def add(self, sampled: Sampled, own: Sequence[Prefix]) -> None:
        """Count a sampled packet under its peer."""
        peer = _peer(sampled.packet, own)
        self.packets[peer] += 1
        self.byte_counts[peer] += sampled.length

    def to_document(self) -> ChangedTraffic:
        return ChangedTraffic(
            direction=self.after.direction.value,
            becomes=self.after.action.value,
            rule=_name_decider(self.after),
            rule_before=_name_decider(self.before),
            packets=self.packets.total(),
            octets=self.byte_counts.total(),
            peers_in_all=len(self.packets),
            peers=tuple(self._list_peers()),
        )

    def _list_peers(self) -> Iterator[PeerTraffic]:
        for peer, packets in self.packets.most_common(MOST_PEERS):
            yield PeerTraffic(peer, packets, self.byte_counts[peer])


def _name_decider(decider: Decider) -> str | None:
    return None if decider.is_default else decider.id


def _peer(packet: Packet, own: Sequence[Prefix]) -> str:
    """The end of a packet that is not the tenant's; the sender where both are."""
    source, destination = (
        any(prefix.family is packet.family and prefix.holds(address) for prefix in own)
        for address in (packet.source, packet.destination)
    )
    return format_address(packet.family, packet.destination if source and not destination else packet.source)
