"""A user-space firewall between two ends: latency that queueing adds, and packet rate.

    left ── router: FORWARD ─▶ queue ─▶ classifier of this process ─▶ FORWARD ── right

One and the same router forwards without a filter, through iptables, and through queues, in turn. Words are those of RFC
2647 and RFC 3511: latency of one packet at a time; the forwarding rate under a load that nothing holds back (hping3's
flood, as in the paper: homogeneous traffic of one flow); illegal traffic, which must not be forwarded at any load. A
realistic mix stands beside the flood: packets drawn from all rules, in the sizes of the Internet mix (64, 576 and 1,500
bytes as 7 to 4 to 1).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle

from orchestrator.bench.classifier.classifierlists import drawn, generate_list
from orchestrator.bench.progress import Progress
from orchestrator.bench.results import Figure, Results
from orchestrator.classify.devices.choice import list_devices as listed_libraries
from orchestrator.classify.devices.guarded import OnDevice, Patience
from orchestrator.classify.packets import packet_of
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.queue.engine import Setup
from orchestrator.enforce.drivers.queue.tool import Led, QueueDriver, queue_driver
from orchestrator.errors import Missing, Refused
from orchestrator.lab.router import Flood, Router, RouterMachine, frame_packet
from orchestrator.policy.addresses import EVERY_IPV4, Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.rulelist import rule_rows
from orchestrator.wire.firewalls import Plane

RULES = 1_000
NAMES = ("queue_added_us_p50", "queue_added_cpu_us", "queue_hping3_kpps", "queue_illegal_forwarded")
_PROBES, _MIX = 200, 512
_SIZES = (64,) * 7 + (576,) * 4 + (1_500,)
_FLOOD_S = 1.0
_WEB, _CLIENT = "198.51.100.10", "192.0.2.5"
_OPEN, _SHUT = 80, 81
_BUILT_S = 60.0


@dataclass(frozen=True, slots=True)
class Side:
    """A router, and what filters there."""

    router: Router
    driver: FilterDriver | None


def measure(results: Results, *, quick: bool, progress: Progress) -> None:
    """Measure what queues add to a packet, beside no filter and iptables.

    iptables has the same list. Needs root.
    """
    if os.geteuid():
        results.absent.update(dict.fromkeys(NAMES, "needs root: network namespaces and NFQUEUE"))
        return
    rounds = 5 if quick else 15
    policy = _policy()
    try:
        with ExitStack() as stack:
            sides = dict(_sides(stack, results, policy))
            _compare(results, sides, policy, rounds, progress)
            _flood(results, sides, rounds, progress)
    except (Missing, Refused) as reason:
        results.absent.update({name: str(reason) for name in NAMES if name not in results.figures})


def _sides(stack: ExitStack, results: Results, policy: Policy) -> Iterator[tuple[str, Side]]:
    """A router for each way to filter; a device's only where one works."""
    routers = (stack.enter_context(Router(f"aclqueue{number}-")) for number in range(4))
    yield "no filter", Side(next(routers), None)
    router = next(routers)
    driver = iptables_driver("legacy", RouterMachine(router).run)
    _bring_driver(driver, policy, Plane.IPTABLES)
    yield "iptables", Side(router, driver)
    router = next(routers)
    yield "queue", Side(router, _queue(stack, router, Setup(queues=(0,)), policy))
    for device in (each for library in listed_libraries() for each in library.devices):
        router = next(routers)
        setup = Setup(queues=(0,), searching=OnDevice(device, Patience(answer_s=5.0)).search)
        queue = _queue(stack, router, setup, policy)
        if (trouble := queue.trouble()) is None:
            results.notes.append(f"queue on a device: {device.name}")
            yield "queue_device", Side(router, queue)
        else:
            results.absent["queue_device_added_us_p50"] = f"{device.name}: {trouble[:200]}"
        return
    results.absent["queue_device_added_us_p50"] = "no device of OpenCL or CUDA"


def _queue(stack: ExitStack, router: Router, setup: Setup, policy: Policy) -> QueueDriver:
    """A firewall in user space whose rows are built."""
    driver = queue_driver(setup, Led(), "legacy", RouterMachine(router))
    stack.callback(driver.stop)
    _bring_driver(driver, policy, Plane.QUEUE)
    ends = time.monotonic() + _BUILT_S
    while not driver.is_built and time.monotonic() < ends:
        time.sleep(0.05)
    return driver


def _bring_driver(driver: FilterDriver, policy: Policy, plane: Plane) -> None:
    wanted = filter_program(policy, [plane], domain="bench", generation=1)
    driver.apply(gap.correction(driver.observe(), wanted, driver.resolve), gap.stamp_of(wanted))


def _compare(results: Results, sides: dict[str, Side], policy: Policy, rounds: int, progress: Progress) -> None:
    """Compare single-packet latency and CPU time of the mix, in each round."""
    acl = policy.tenants[0].acl
    boxes = [row.box for row in rule_rows(acl, Direction.INGRESS)[Family.IPV4]]
    packets = [packet_of(each) for each in drawn(boxes, 4 * _MIX)]
    mix = [
        each for each in packets if each.protocol in (TCP, UDP) and not each.later_fragment and each.source >> 24 < 224
    ]
    legal = [packet for packet in mix if decide(policy, packet).permitted][:_PROBES]
    crafts = [partial(_pad_frame, *pair) for pair in zip(mix[:_MIX], cycle(_SIZES), strict=False)]
    delays: dict[str, list[float]] = {name: [] for name in sides}
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        progress(f"queueing, round {turn + 1} of {rounds}")
        for name, side in sides.items():
            delays[name].append(statistics.median(side.router.delays_us(legal)))
            began = time.process_time()
            side.router.fire_frames(crafts)
            spent[name].append(1e6 * (time.process_time() - began) / len(crafts))
    for name in [each for each in sides if each.startswith("queue") or each == "iptables"]:
        results.figures[f"{name}_added_us_p50"] = Figure.of(_subtract_unfiltered(delays, name), "us")
        results.figures[f"{name}_added_cpu_us"] = Figure.of(_subtract_unfiltered(spent, name), "us")
    results.notes.append(
        f"latency (RFC 2647) without a filter: {statistics.median(delays['no filter']):.0f} us from end to end, one "
        f"packet at a time; {RULES:,} rules, permitted packets drawn from all of them; CPU of the Internet mix, "
        f"{len(crafts)} packets a round"
    )


def _subtract_unfiltered(found: dict[str, list[float]], name: str) -> list[float]:
    """Return a side's latency above no filter, round by round."""
    return [ours - bare for ours, bare in zip(found[name], found["no filter"], strict=True)]


def _flood(results: Results, sides: dict[str, Side], rounds: int, progress: Progress) -> None:
    """hping3's homogeneous traffic, permitted and not, as fast as it goes."""
    illegal = 0
    for name, side in sides.items():
        progress(f"hping3 through {name}")
        side.router.address_left(_CLIENT, _WEB)
        legal = [side.router.flood(_FLOOD_S, "-S", "-p", str(_OPEN), _WEB) for _ in range(min(rounds, 5))]
        key = f"{name.replace(' ', '_')}_hping3_kpps"
        results.figures[key] = Figure.of([each.came / each.seconds / 1e3 for each in legal], "kpps")
        results.notes.append(_describe_floods(name, legal))
        if name.startswith("queue"):
            illegal += side.router.flood(_FLOOD_S, "-S", "-p", str(_SHUT), _WEB).came
            trouble = side.driver.trouble() if isinstance(side.driver, QueueDriver) else None
            results.notes.append(f"{name} after the flood: {trouble or 'nothing was dropped for overload'}")
    results.figures["queue_illegal_forwarded"] = Figure.of([float(illegal)], "packets")


def _describe_floods(name: str, floods: Sequence[Flood]) -> str:
    sent = statistics.median(each.sent / each.seconds for each in floods)
    came = statistics.median(each.came / max(1, each.sent) for each in floods)
    return f"hping3 --flood -S through {name}: offered {sent / 1e3:.0f} kpps, {100 * came:.1f} % of it forwarded"


def _policy() -> Policy:
    """One tenant that owns all receivers, whose list ends with the flood's two rules."""
    web = Addresses((Prefix.parse(f"{_WEB}/32"),))
    ends = [
        Rule(RuleId(f"port-{port}"), action, protocol=TCP, destination=web, destination_ports=(PortRange(port, port),))
        for port, action in ((_OPEN, Action.PERMIT), (_SHUT, Action.DENY))
    ]
    acl = Acl((*generate_list("acl", RULES - len(ends)).rules, *ends))
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    return Policy((Tenant(TenantId("all"), 1, (EVERY_IPV4,), acl, numbers),))


def _pad_frame(packet: Packet, size: int, marker: bytes) -> bytes:
    """A frame of at least a size, Ethernet's header included."""
    return frame_packet(packet, marker + bytes(max(0, size - _HEADERS - len(marker))))


_HEADERS = 14 + 20 + 20
