"""Two firewalls with the kernel's connection tracking and a real conntrackd each: connections pass through both.

left ── firewall ── right        the ends of either are others, but bear the same addresses
           │ share
left ── firewall ── right
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyroute2 import IPRoute, netns
from system.test_filters_tracked import CHANGED, TRACKED, Both, firsts
from tracked_domain import conversation

from orchestrator.lab.layout import Layout
from orchestrator.lab.processes import wait_until
from orchestrator.lab.router import ROUTER, Router
from orchestrator.policy.connections import decide_tracked
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.statesync.conntrackd import SharedTracking

pytestmark = pytest.mark.system

LINK = "share"
ADDRESSES = ("10.9.0.1", "10.9.0.2")
SHARED = (ICMP, ICMPV6, TCP, UDP)
"""The protocols of which conntrackd tells others; GRE is not one."""
Talk = list[Packet]


class Pair:
    """Two firewalls that share a link. What either lets through is known to the oracle of both."""

    def __init__(self, prefix: str, stack: ExitStack, variant: str | None, folder: Path) -> None:
        self._names = [f"{prefix}{letter}{ROUTER}" for letter in "ab"]
        self._routers = [stack.enter_context(Router(f"{prefix}{letter}")) for letter in "ab"]
        self._folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._routers[0].inside(ROUTER, partial(_link, self._names[1]))
        for router, address in zip(self._routers, ADDRESSES, strict=True):
            router.inside(ROUTER, partial(_bring_up, address))
        self._filters = [Both(router, variant) for router in self._routers]
        stack.callback(lambda: [self.stop(place) for place in list(self._running)])

    def load(self, wanted: Policy) -> None:
        for each in self._filters:
            each.load(wanted)

    def start(self, place: int) -> None:
        """Start conntrackd, with our configuration."""
        run_dir = self._folder / str(place)
        run_dir.mkdir(exist_ok=True)
        settings = SharedTracking.read(ADDRESSES[place], LINK, [ADDRESSES[1 - place]])
        file = run_dir / "conntrackd.conf"
        file.write_text(replace(settings, run_dir=run_dir).text())
        command = ["conntrackd", "-C", str(file)]
        self._running[place] = self._routers[place].inside(ROUTER, lambda: subprocess.Popen(command))
        wait_until((run_dir / "conntrackd.ctl").exists, "conntrackd does not start", 10)

    def stop(self, place: int) -> None:
        process = self._running.pop(place)
        process.terminate()
        process.wait(10)

    def say(self, place: int, talks: Sequence[Talk], step: int) -> list[Talk]:
        """Send a packet of each talk through a firewall; the talks whose packet came through."""
        through = [talk for talk in talks if self._filters[place].meet([talk[step]])[0]]
        self._filters[1 - place].known = self._filters[place].known
        return through

    def permits(self, talk: Talk, step: int) -> bool:
        """The oracle's word."""
        one = self._filters[0]
        return decide_tracked(one.policy, talk[step], one.known).decision.permitted

    def wait_told(self, talks: Sequence[Talk]) -> None:
        """Return when the second firewall lets answers through in all talks; it drops what it does not know."""
        wait_until(lambda: self.say(1, talks, 3) == talks, "the other firewall is not told of all connections", 20)


def _link(other: str) -> None:
    with IPRoute() as routes:
        descriptor = netns.getnsfd(other)
        try:
            routes.link("add", ifname=LINK, kind="veth", peer={"ifname": LINK, "net_ns_fd": descriptor})
        finally:
            os.close(descriptor)


def _bring_up(address: str) -> None:
    with IPRoute() as routes:
        index = routes.link_lookup(ifname=LINK)[0]
        routes.addr("add", index=index, address=address, prefixlen=24)
        routes.link("set", index=index, state="up")


@pytest.fixture(params=[None, "legacy", "nft"], ids=["nftables", "iptables-legacy", "iptables-nft"])
def pair(request: pytest.FixtureRequest, layout: Layout, tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(layout.prefix, stack, request.param, tmp_path)


def test_connections_go_on_through_the_other_firewall(pair: Pair) -> None:
    pair.load(TRACKED)
    began = [first for first in dict.fromkeys(firsts(random.Random(7), 100)) if first.protocol in SHARED]
    talks = [talk for talk in map(list, map(conversation, began)) if pair.permits(talk, 0)]
    answered_by_state = [talk for talk in talks if not pair.permits(talk, 1)]
    late, strangers = answered_by_state[:3], answered_by_state[3:5]
    talks = [talk for talk in talks if talk not in (*late, *strangers)]
    pair.start(0)
    pair.start(1)
    begun = pair.say(0, pair.say(0, talks, 0), 1)
    assert len(begun) > 7
    pair.wait_told(begun)
    assert pair.say(1, begun, 2) == begun
    assert pair.say(0, begun, 3) == begun
    assert not [*pair.say(1, strangers, 1), *pair.say(0, strangers, 1)], "answers to nothing"
    pair.load(CHANGED)
    permitted = [talk for talk in begun if pair.permits(talk, 2)]
    assert 0 < len(permitted) < len(begun)
    assert pair.say(1, begun, 2) == permitted, "the list of now is asked for what opened the connection"
    pair.load(TRACKED)
    pair.stop(1)
    begun = pair.say(0, pair.say(0, late, 0), 1)
    assert begun == late
    assert not pair.say(1, late, 3), "nobody told it"
    pair.start(1)
    pair.wait_told(begun)
