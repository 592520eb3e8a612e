"""Real switches that do what those do which forward in the kernel: they answer a solicitation with another one."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv6Address

import pytest
from system.direct import Direct
from system.shooting import ADDRESS, F6, GATEWAY, MAC, POP, SHOP, Range, forged_discovery, true_question

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab import pop
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.wire import Wire
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import TenantId
from orchestrator.policy.protocols import ICMPV6

WEB = str(IPv6Address(ADDRESS["web1", F6]))


@pytest.fixture(scope="module")
def aim(layout: Layout) -> Iterator[Range]:
    lab = pop.up(layout, POP)
    policy = policy_of(POP, {TenantId("shop"): SHOP})
    with Direct(lab, in_kernel=True) as direct, Wire(lab) as wire:
        direct.enforce(policy)
        yield Range(lab, wire, policy)


@pytest.mark.parametrize("asked", [GATEWAY, ADDRESS["bank1", F6], Prefix.parse("2001:4860::8888").network])
def test_a_true_question_is_asked_back_in_the_gateways_name(aim: Range, asked: int) -> None:
    (landed,) = aim.wire.fire([true_question("web1", asked)])
    asker = ADDRESS["web1", F6]
    option = frames.link_address(frames.SOURCE_LINK_ADDRESS, GATEWAY_MAC)
    back = frames.neighbour(frames.SOLICITATION, 0, asker, option, frames.pseudo_v6(asked, asker))
    whole = frames.ethernet(GATEWAY_MAC, MAC["web1"], frames.IPV6, frames.ipv6(asked, asker, ICMPV6, back))
    assert landed.nodes == ("web1",)
    assert landed.frame.startswith(whole)


def test_forged_discovery_reaches_nobody_and_is_not_asked_back(aim: Range) -> None:
    forged = forged_discovery()
    assert aim.fire(forged) == [()] * len(forged)


def test_a_kernel_that_asks_sends_on_and_goes_on(aim: Range) -> None:
    """One way only, so that nothing ever confirms the gateway: every few hundred milliseconds the kernel gives it up
    and asks again."""

    def believed() -> str:
        return subprocess.check_output(["ip", "-6", "neigh", "show", "dev", INTERFACE], text=True)

    def impatient() -> None:
        subprocess.run(["ip", "-6", "neigh", "flush", "dev", INTERFACE], check=True)
        for setting, value in (("delay_first_probe_time", 1), ("retrans_time_ms", 50), ("ucast_solicit", 2)):
            with open(f"/proc/sys/net/ipv6/neigh/{INTERFACE}/{setting}", "w", encoding="ascii") as file:
                file.write(str(value))

    aim.lab.inside("bank1", impatient)
    with (
        aim.lab.inside("web1", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as receiver,
        aim.lab.inside("bank1", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as sender,
    ):
        receiver.bind((WEB, 100))
        receiver.settimeout(1.0)
        seen = ""
        for number in range(400):
            sender.sendto(number.to_bytes(4, "big"), (WEB, 100))
            assert int.from_bytes(receiver.recv(4), "big") == number
            if number % 5 == 0:
                seen += aim.lab.inside("bank1", believed)
            time.sleep(0.01)
    assert {line.split()[2] for line in seen.splitlines() if "lladdr" in line} == {"0a:ac:1f:00:00:01"}
    states = {line.split()[-1] for line in seen.splitlines()}
    assert {"DELAY", "PROBE"} <= states, states
    assert "REACHABLE" not in states
