"""The packet filters' contract over the kernel's own nftables and both kinds of iptables, with real packets."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from enforce.contract_filters import SHOP, Bench, FilterContract, bring, corner_packets, policy, program
from enforce.contract_stateless import StatelessContract
from enforce.contract_tracked import TrackedBench, TrackedContract

from orchestrator.compile.filters.legs import Legs
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables import tool
from orchestrator.enforce.drivers.nftables.scripts import Incremental, incremental
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import RIGHT, ROUTER, Router
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Packet, Policy, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Program
from orchestrator.wire.firewalls import Plane

TAKING_TURNS_S, LEAST_TURNS = 4.0, 20
"""Two programs take turns for so long, and so often however slow the machine is."""


class RealBench:
    """`variant`: which iptables; None: nftables."""

    def __init__(self, router: Router, variant: str | None) -> None:
        self._router = router
        self._variant = variant
        some = corner_packets()
        self.packets = [packet for packet, came in zip(some, router.fire(some), strict=True) if came]
        self.plane = Plane.NFTABLES if variant is None else Plane.IPTABLES
        self.driver = nftables_driver(self._run) if variant is None else iptables_driver(variant, self._run)

    def declare(self, legs: Legs) -> None:
        run, variant = self._run, self._variant
        self.driver = nftables_driver(run, legs) if variant is None else iptables_driver(variant, run, legs)

    def _run(self, command: Sequence[str], text: str) -> str:
        return self._router.run(*command, text=text)

    def run(self, command: Sequence[str], text: str) -> str:
        """As a foreign hand: the same kind of iptables as the driver's."""
        program, *options = command
        if self._variant is not None:
            program = program.replace("tables-", f"tables-{self._variant}-")
        return self._run((program, *options), text)

    def forward(self, packets: Sequence[Packet]) -> list[bool]:
        return self._router.fire(packets)

    def answer(self, packets: Sequence[Packet]) -> list[bool]:
        return self._router.fire(packets, RIGHT)

    def fill_table(self) -> None:
        self._router.inside(ROUTER, _fill_table)

    def empty_table(self) -> None:
        self._router.inside(ROUTER, _empty_table)

    def fail(self, words: str) -> None:
        raise NotImplementedError(words)


class RealFilter(FilterContract, TrackedContract):
    fails_at_will: ClassVar[bool] = False
    variant: ClassVar[str | None] = None

    @pytest.fixture
    def bench(self, layout: Layout) -> Iterator[TrackedBench]:
        with Router(layout.prefix) as router:
            yield RealBench(router, self.variant)

    @pytest.mark.parametrize("whole", [False, True], ids=["in part", "as a whole"])
    def test_nothing_passes_while_two_policies_that_both_deny_it_take_turns(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, whole: bool
    ) -> None:
        """What the sender's list permits the receiver's denies, and the other way round: a mix would let it through."""
        if whole:
            monkeypatch.setattr(tool, "incremental", lambda *_: None)
        web, shut = SHOP[1], Acl(egress_default=Action.DENY)
        sides = ((Acl(), Acl()), (Acl((web,)), shut))  # shop's list and bank's
        programs = [program(bench, _between_tenants(*side), 7 + turn) for turn, side in enumerate(sides)]
        packet = Packet(Family.IPV4, _number("203.0.113.9"), _number("198.51.100.10"), TCP, 40000, 80)
        bring(bench, program(bench, _between_tenants(Acl((web,)), Acl()), 6))
        assert all(bench.forward([packet] * 8))
        bring(bench, programs[0])
        take_turns_while_nothing_passes(bench, programs, lambda: sum(bench.forward([packet] * 256)))

    def test_nothing_passes_while_a_list_that_always_denies_it_is_changed_in_place(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same packet is denied by one rule or by another, and permitted by the last one: a half would pass."""
        made: list[Incremental | None] = []

        def noted(*tables: Any) -> Incremental | None:
            made.append(incremental(*tables))
            return made[-1]

        monkeypatch.setattr(tool, "incremental", noted)
        others = [_deny(f"r{number}", f"192.0.2.{number}/32", number) for number in range(1, 60)]
        ways = [_deny("x", "203.0.113.9/32", 80)], [_deny("x", "203.0.113.0/24", None)]
        rest = Rule(RuleId("rest"), Action.PERMIT)
        lists = [Acl((*others[:30], *way, *others[30:], rest)) for way in ways]
        policies = [_between_tenants(acl, Acl(), numbered=True) for acl in lists]
        programs = [program(bench, each, 7 + turn) for turn, each in enumerate(policies)]
        packet = Packet(Family.IPV4, _number("203.0.113.9"), _number("198.51.100.10"), TCP, 40000, 80)
        bring(bench, program(bench, _between_tenants(Acl((rest,)), Acl(), numbered=True), 6))
        assert all(bench.forward([packet] * 8))
        bring(bench, programs[0])
        made.clear()
        take_turns_while_nothing_passes(bench, programs, lambda: sum(bench.forward([packet] * 256)))
        assert None not in made

    def test_what_is_not_ours_stays(self, bench: Bench) -> None:
        foreign = 'table ip other {\n chain c {\n  counter comment "not ours"\n }\n}\n'
        text = "*filter\n:theirs - [0:0]\n-A INPUT -p tcp --dport 22 -j theirs\n-A theirs -j ACCEPT\nCOMMIT\n"
        if bench.plane is Plane.NFTABLES:
            bench.run(("nft", "-f", "-"), foreign)
        else:
            bench.run(("iptables-restore",), text)
        self.test_a_delta_leads_from_one_program_to_another_and_back(bench, "without a rule")
        if bench.plane is Plane.NFTABLES:
            assert "not ours" in bench.run(("nft", "list", "table", "ip", "other"), "")
        else:
            saved = bench.run(("iptables-save",), "")
            assert "-A INPUT -p tcp -m tcp --dport 22 -j theirs" in saved
            assert "-A theirs -j ACCEPT" in saved


def take_turns_while_nothing_passes(bench: Bench, programs: Sequence[Program], fire: Callable[[], int]) -> None:
    """Have two programs take turns while packets are sent again and again.

    `fire` sends them, and returns how many came through of those that may not.
    """
    done, turns, sent, passed = threading.Event(), 0, 0, 0

    def keep_firing() -> None:
        nonlocal sent, passed
        while not done.is_set():
            passed += fire()
            sent += 1

    firing = threading.Thread(target=keep_firing)
    firing.start()
    until = time.monotonic() + TAKING_TURNS_S
    while firing.is_alive() and (time.monotonic() < until or min(turns, sent) < LEAST_TURNS):
        turns += 1
        here, there = programs[(turns + 1) % 2], programs[turns % 2]
        bench.driver.apply(gap.step(here, there, (), bench.driver.resolve), gap.stamp_of(there))
    done.set()
    firing.join()
    assert passed == 0
    assert min(turns, sent) >= LEAST_TURNS


def _between_tenants(shop: Acl, bank: Acl, *, numbered: bool = False) -> Policy:
    owners = policy().tenants
    numbers = {rule.id: number for number, rule in enumerate(shop.rules, 1)} if numbered else owners[0].rule_numbers
    return Policy((replace(owners[0], acl=shop, rule_numbers=numbers), replace(owners[1], acl=bank)), ())


def _deny(name: str, source: str, port: int | None) -> Rule:
    ports = () if port is None else (PortRange(port, port),)
    some = Rule(RuleId(name), Action.DENY, protocol=TCP, source=Addresses((Prefix.parse(source),)))
    return replace(some, destination_ports=ports) if ports else some


def _number(address: str) -> int:
    return Prefix.parse(address).network


class TestNftables(RealFilter, StatelessContract):
    """Everything is inherited."""


class TestIptablesLegacy(RealFilter):
    variant = "legacy"


class TestIptablesNft(RealFilter):
    variant = "nft"


del RealFilter, FilterContract


# ------------------------------------------------------------------------------------- the kernel's table, by netlink

_NETFILTER, _NEW, _DELETE, _REQUEST, _CREATE = 12, 0x100, 0x102, 0x01, 0x600
_ORIGINAL, _REPLY, _STATUS, _TIMEOUT = 1, 2, 3, 7
_ANSWERED_AND_ASSURED = 0x0E
"""Such a connection does not give way to a new one."""
_SOURCE, _DESTINATION, _AT_ONCE = b"\xde\xad\xbe\xef", b"\x0a\xff\xff\xff", 400


def _attribute(kind: int, *parts: bytes, nested: bool = False) -> bytes:
    body = b"".join(parts)
    return struct.pack("=HH", 4 + len(body), kind | nested << 15) + body + bytes(-len(body) % 4)


def _ends(kind: int, source: bytes, destination: bytes) -> bytes:
    """A direction of UDP from port 9 to port 9."""
    ports = (_attribute(number, b"\0\x09") for number in (2, 3))
    addresses = _attribute(1, _attribute(1, source), _attribute(2, destination), nested=True)
    return _attribute(kind, addresses, _attribute(2, _attribute(1, b"\x11"), *ports, nested=True), nested=True)


def _message(kind: int, flags: int, family: int, *parts: bytes) -> bytes:
    body = struct.pack("=BBH", family, 0, 0) + b"".join(parts)
    return struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, 0, 0) + body


def _kernel() -> socket.socket:
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return kernel


def _fill_table() -> None:
    """Have the kernel of this namespace remember as many connections as it takes, between addresses of nobody."""
    most = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
    ends = _ends(_ORIGINAL, _SOURCE, _DESTINATION), _ends(_REPLY, _DESTINATION, _SOURCE)
    lasting = (
        _attribute(_STATUS, struct.pack("!I", _ANSWERED_AND_ASSURED)),
        _attribute(_TIMEOUT, struct.pack("!I", 600)),
    )
    one = _message(_NEW, _CREATE, socket.AF_INET, *ends, *lasting)
    places = [at for at in range(len(one)) if one[at : at + 4] == _SOURCE]
    with _kernel() as kernel:
        for start in range(0, most, _AT_ONCE):
            several = np.tile(np.frombuffer(one, np.uint8), (_AT_ONCE, 1))
            addresses = (np.arange(start, start + _AT_ONCE) + 0x0A000000).astype(">u4").view(np.uint8)
            for at in places:
                several[:, at : at + 4] = addresses.reshape(_AT_ONCE, 4)
            kernel.send(several.tobytes())
    assert int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text()) >= most


def _empty_table() -> None:
    with _kernel() as kernel:
        kernel.send(_message(_DELETE, 0, socket.AF_UNSPEC))
