"""The switches of a domain: each one's host, loop and present connection.

A switch is known by its datapath id. One that belongs to no host is left alone, connected and unwritten: its host may
be onboarded later. Of two connections with the same datapath id the first one counts while it lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import structlog

from orchestrator.client import Host
from orchestrator.enforce import changing
from orchestrator.enforce.counting import Counting
from orchestrator.enforce.drivers.openflow import headers
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.loop import Loop
from orchestrator.enforce.standing import Goal, Point, Timing
from orchestrator.enforce.succession import Share, lead_all
from orchestrator.policy.model import Packet
from orchestrator.program.program import Tier

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Member:
    """A host of the domain with its loop."""

    host: Host
    loop: Loop


def _looked_away(_host: str, _cookie: int, _packet: Packet, _octets: int) -> None:
    """Ignore a reported packet."""


def _ignore_impostor(_host: str, _came: Channel, _holder: Channel | None) -> None:
    """Leave it at the line in the log."""


def ignore_links(_down: frozenset[str]) -> None:
    """Take no note of interfaces that are down."""


class Fleet:
    """Loops for the hosts of a domain; an observer of switches (`app.SwitchObserver`).

    Reports within a block of `together` may go out at its end.
    """

    def __init__(
        self,
        report: Callable[[Point], None],
        counting: Counting,
        on_stranger: Callable[[], None],
        timing: Timing,
        together: Callable[[], AbstractContextManager[None]] = nullcontext,
        tier: Tier = Tier.HOST,
        seen: Callable[[str, int, Packet, int], None] = _looked_away,
        note_impostor: Callable[[str, Channel, Channel | None], None] = _ignore_impostor,
        note_links: Callable[[frozenset[str]], None] = ignore_links,
    ) -> None:
        self._report = report
        self._counting = counting
        self._on_stranger = on_stranger
        self._timing = timing
        self._together = together
        self._tier = tier
        self._seen = seen
        self._note_impostor = note_impostor
        self._note_links = note_links
        self._lock = threading.Lock()
        self.members: dict[int, _Member] = {}
        self._channels: dict[int, Channel] = {}
        self._twins: dict[int, list[Channel]] = {}  # of datapath ids that another connection has, the oldest first
        self.devices: dict[int, Switch] = {}
        self._goal: Goal | None = None
        self._epoch = 0
        self._share: Share = lead_all
        self._led: Set[str] = frozenset()
        self._stopped = False

    # -------------------------------------------------------------------------------------------- what is to be held

    def aim(self, goal: Goal, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Set the program of all switches; small changes are done at return.

        `meanwhile` is done before any of them commits, and before anything is reported.
        """
        with self._lock:
            self._goal = goal
            members = tuple(self.members.values())
            strangers = self._channels.keys() - self.members.keys()
        with self._together():
            works = ((member.loop, work) for member in members if (work := member.loop.take(goal)) is not None)
            changing.advance((changing.Member(work, loop.take_over) for loop, work in works), meanwhile)
        if strangers:
            self._on_stranger()

    def lead(self, epoch: int, share: Share = lead_all, *, led: Set[str] = frozenset()) -> None:
        """Claim the switches of a share with this epoch from now on.

        Those of hosts that come later too. Others are left to other controllers, unless we lead them. Of hosts that are
        `led` by another one nothing is said while they are not connected to us.
        """
        with self._lock:
            self._epoch, self._share, self._led = epoch, share, led
            for member in self.members.values():
                self._lead_share(member)

    def lead_hosts(self, epoch: int, hosts: Set[str]) -> None:
        """Claim the switches of some hosts too; this epoch is for all from now on."""
        with self._lock:
            self._epoch = epoch
            for member in self.members.values():
                if member.host.name in hosts:
                    member.loop.lead(epoch, yields=True)
                else:
                    member.loop.keep_epoch(epoch)

    def set_share(self, share: Share) -> None:
        """Claim the switches of these hosts when they come."""
        self._share = share

    def leads_any(self) -> bool:
        """Whether we lead the switch of any host."""
        with self._lock:
            return any(member.loop.leads for member in self.members.values())

    def standing_by(self) -> frozenset[str]:
        """The hosts whose switches are connected, and led by other controllers."""
        with self._lock:
            return frozenset(member.host.name for member in self.members.values() if member.loop.stands_by)

    def set_hosts(self, hosts: Iterable[Host]) -> None:
        """Set the domain's hosts.

        Switches of hosts that are gone keep what they hold.
        """
        wanted = {host.datapath_id: host for host in hosts}
        with self._lock:
            if self._stopped:  # the list was asked for before
                return
            gone = [key for key, member in self.members.items() if wanted.get(key) != member.host]
            left = [self.members.pop(key) for key in gone]
            for key in gone:
                self.devices.pop(key, None)
            for key in wanted.keys() - self.members.keys():
                self._add_host(wanted[key])
        for member in left:
            log.info("host.left", host=member.host.name)
            member.loop.stop()
            self._counting.forget(member.host.name)

    def is_busy(self) -> bool:
        """Whether some switch is about to reach its goal."""
        with self._lock:
            return any(member.loop.is_busy for member in self.members.values())

    def stop(self) -> None:
        """End every loop, for good."""
        with self._lock:
            self._stopped = True
            members = tuple(self.members.values())
            self.members.clear()
            self.devices.clear()
        for member in members:
            member.loop.stop()

    # ----------------------------------------------------------------------------------------- what happens to switches

    def switch_connected(self, channel: Channel) -> None:
        """Take a new switch.

        One whose certificate is of another host than its datapath id is passed over: it must not take the place of the
        one that it pretends to be.

        A datapath id that another connection has stays with that one as long as it lives: it may be somebody else's
        switch that comes. Where it is the same one, which has lost its connection, the old one dies within seconds.
        """
        with self._lock:
            member = self.members.get(channel.datapath_id)
            if member is not None and self._report_if_impostor(channel, member.host):
                return
            there = self._channels.get(channel.datapath_id)
            if there is not None and there is not channel and not there.closed:
                self._twins.setdefault(channel.datapath_id, []).append(channel)
                self._report_twin(channel, there, member)
                return
            self._channels[channel.datapath_id] = channel
            if member is not None:
                self._attach_channel(member, channel)
        if member is None:
            log.warning("switch.unknown", datapath=f"{channel.datapath_id:016x}")
            self._on_stranger()

    def switch_disconnected(self, channel: Channel) -> None:
        """Let go of a switch whose connection is gone."""
        with self._lock:
            others = [each for each in self._twins.pop(channel.datapath_id, []) if each is not channel]
            if others:
                self._twins[channel.datapath_id] = others
            if self._channels.get(channel.datapath_id) is not channel:
                return
            del self._channels[channel.datapath_id]
            device = self.devices.pop(channel.datapath_id, None)
            if device is not None:
                self.members[channel.datapath_id].loop.detach(device)
            waiting = self._twins.pop(channel.datapath_id, [])
        for each in waiting:  # the first has the place, and the others wait for it again
            if not each.closed:
                self.switch_connected(each)

    def ports_changed(self, channel: Channel) -> None:
        """A switch's ports have other names or numbers."""
        self._pass_event_on(channel, Loop.ports_changed)

    def links_changed(self, channel: Channel) -> None:
        """A switch finds other interfaces down than before."""
        with self._lock:
            device = self.devices.get(channel.datapath_id)
            if device is not None and device.channel is channel:
                self._note_links(channel.down_ports)

    def switch_demoted(self, channel: Channel) -> None:
        """Give a switch up that another controller leads."""
        self._pass_event_on(channel, Loop.give_way)

    def seen(self, channel: Channel, message: bytes) -> None:
        """A switch shows us a packet that a rule with `log` decided."""
        member = self.members.get(channel.datapath_id)
        shown = headers.read_packet_in(message)
        if member is not None and shown is not None and member.loop.leads:  # a switch shows it to all that it knows
            self._seen(member.host.name, *shown)

    def _pass_event_on(self, channel: Channel, event: Callable[[Loop, Switch], None]) -> None:
        with self._lock:
            device = self.devices.get(channel.datapath_id)
            if device is not None and device.channel is channel:
                event(self.members[channel.datapath_id].loop, device)

    # --------------------------------------------------------------------------------------------------- with the lock

    def _add_host(self, host: Host) -> None:
        log.info("host.joined", host=host.name, datapath=f"{host.datapath_id:016x}")
        member = _Member(host, Loop(host.name, self._report, self._counting, timing=self._timing))
        self.members[host.datapath_id] = member
        self._lead_share(member)
        if self._goal is not None:
            member.loop.aim(self._goal)
        channel = self._find_true_channel(host)
        if channel is not None:
            self._attach_channel(member, channel)
            for twin in self._twins.get(host.datapath_id, ()):
                self._report_twin(twin, channel, member)
        member.loop.start()

    def _lead_share(self, member: _Member) -> None:
        if self._share(member.host.name):
            member.loop.lead(self._epoch, yields=self._share is not lead_all)
            if member.host.name in self._led:
                member.loop.expect_nothing()
        else:
            member.loop.stand_by(self._epoch)

    def _find_true_channel(self, host: Host) -> Channel | None:
        """Return the connection of a host's datapath id that proves to be that host.

        A connection that took the id before the host was known, with another certificate, loses the place.
        """
        there = self._channels.get(host.datapath_id)
        if there is None or not self._report_if_impostor(there, host):
            return there
        del self._channels[host.datapath_id]
        twins = [each for each in self._twins.pop(host.datapath_id, []) if not each.closed]
        true = [each for each in twins if not self._report_if_impostor(each, host)]
        if not true:
            return None
        self._channels[host.datapath_id], self._twins[host.datapath_id] = true[0], true[1:]
        return true[0]

    def _attach_channel(self, member: _Member, channel: Channel) -> None:
        device = Switch(channel, uplink=member.host.uplink, tier=self._tier)
        self.devices[channel.datapath_id] = device
        member.loop.attach(device)
        self._note_links(channel.down_ports)

    def _report_twin(self, channel: Channel, there: Channel, member: _Member | None) -> None:
        """Report a switch whose datapath id another connection has."""
        host = None if member is None else member.host.name
        log.error("switch.twin", datapath=f"{channel.datapath_id:016x}", host=host, address=channel.address)
        if host is not None:
            self._note_impostor(host, channel, there)

    def _report_if_impostor(self, channel: Channel, host: Host) -> bool:
        """Report a switch whose certificate names other hosts only; return whether it is one."""
        if channel.hosts is None or host.name in channel.hosts:
            return False
        datapath, proven = f"{channel.datapath_id:016x}", sorted(channel.hosts)
        log.warning("switch.impostor", datapath=datapath, host=host.name, certificate=proven, address=channel.address)
        self._note_impostor(host.name, channel, None)
        return True
