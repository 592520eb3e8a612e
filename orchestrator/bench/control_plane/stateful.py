"""The cost of connections: against OVN's, and against stateless rules of our own.

Connections a second, against OVN: a client downloads a page of one byte again and again, through our switch and through
OVN's in turns. Both are bridges of one daemon and hold the same list; OVN's rules are `allow-related`, as those of
Neutron's security groups are, and ours are of a domain that tracks connections. Client and server share one processor,
so that the daemon has the other one, and both ways do the same work there.

    inside1 ── host1 (ours) ── inside2
    near ───── br-int (OVN) ── far            the same kind of virtual cable, the same programs at both ends

Connections are of clients whose addresses are among those that rules name, so that the daemon's cache has to hold more
than one entry for them; and of clients that no rule names, which it knows after the first. Each connection is of an
address of its own: OVN commits connections with NAT, and Open vSwitch 3.1.0 ends with a failed assertion (conntrack.c,
line 1063) where a client uses a port again.

Packets a second, against stateless rules: one flow of datagrams at its sender's maximum, under the same list with its
rules tracked or stateless. Here a switch is driven as the controller drives it, in the middle of a line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.bench.benchlab import ground, processor_s
from orchestrator.bench.control_plane.rest import PATIENCE_S, time_write
from orchestrator.bench.control_plane.sizes import TENANT, Sizes
from orchestrator.bench.ovn import LogicalPort, ovn
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.traffic import iperf
from orchestrator.bench.traffic.addresses import policy
from orchestrator.bench.traffic.downloads import MANY_PORTS, PORT, Ends, Web
from orchestrator.bench.traffic.httperf import compile_library
from orchestrator.bench.traffic.line import RIGHT, serve_line, site
from orchestrator.bench.traffic.rules import Kind, Listed
from orchestrator.bench.traffic.vnf import VnfAcl, vnf_acl
from orchestrator.compile.hostprogram import compile_host
from orchestrator.errors import Drifted, Missing
from orchestrator.lab import namespaces
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.ovs import Ports, run_program
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.spec import PopSpec
from orchestrator.lab.specfile import parse
from orchestrator.policy.addresses import Family, Prefix, format_address, format_mac
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Program

_CPS = Target(1.2, at_most=False, whole=True)
_RULES = 1_000
_AT_ONCE = 25
_WARM_UP = 200
_FLOOD_S = 3
_OURS, _THEIRS = "aclflow", "OVN"
NAMED, UNNAMED = Prefix.parse("10.128.0.0/9"), Prefix.parse("172.16.0.0/12")
"""The clients: `NAMED` have their addresses among those that rules name."""
_WAYS = {"": NAMED, "_unnamed": UNNAMED}
"""The endings of the names of figures."""
CLIENTS, SERVERS = ("10.0.0.171", "10.0.0.172"), ("198.18.29.42", "198.18.29.44")
_SPEC = f"""
domain: bench
clients:
  - {{name: near, addresses: [{CLIENTS[1]}]}}
  - {{name: far, addresses: [{SERVERS[1]}]}}
hosts: [{{name: host1}}]
tenants: [{{id: {TENANT}, prefixes: ["0.0.0.0/0"]}}]
endpoints:
  - {{name: inside1, tenant: {TENANT}, host: host1, addresses: [{CLIENTS[0]}, "{NAMED}", "{UNNAMED}"]}}
  - {{name: inside2, tenant: {TENANT}, host: host1, addresses: [{SERVERS[0]}]}}
"""


def web_list() -> Acl:
    """Return a list whose last rules permit the web and deny all else.

    No other rule meets a download.
    """
    web = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(PORT, PORT),))
    others = Listed(_RULES - 2, kind=Kind.FEW_SOURCE_PORTS).acl().rules
    named = [replace(rule, id=RuleId(f"other-{rule.id}")) for rule in others]
    return Acl((*named, web, Rule(RuleId("rest"), Action.DENY)))


def measure(results: Results, sizes: Sizes, progress: Callable[[str], None]) -> None:
    """Measure tracked connections beside OVN's, and beside ours without tracking."""
    try:
        _compare_with_ovn(results, sizes, progress)
    except (Missing, Drifted) as error:
        results.absent["stateful_cps_vs_ovn"] = str(error)
    try:
        _compare_with_stateless(results, sizes, progress)
    except (Missing, Drifted) as error:
        results.absent["stateful_pps_vs_stateless"] = str(error)


# ------------------------------------------------------------------------------------------------------- against OVN


@dataclass(slots=True)
class _Rates:
    """Connections a second, and the daemon's processor time for each, of one way."""

    per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


def _compare_with_ovn(results: Results, sizes: Sizes, progress: Callable[[str], None]) -> None:
    spec: PopSpec = parse(_SPEC)
    acl = web_list()
    with ExitStack() as stack:
        lab = stack.enter_context(ground(spec))
        ports = [_make_logical_port(lab, name) for name in ("near", "far")]
        baseline = stack.enter_context(ovn(lab, ReturnTraffic.TRACKED, ports))
        for near, far in (("near", "far"), ("far", "near")):
            _see_directly(lab, near, far)
        baseline.replace(acl)
        plane = ControlPlane(lab)
        plane.start({TENANT: Acl()}, ReturnTraffic.TRACKED, progress=progress)
        with plane.client() as client:
            time_write(client.waiting(PATIENCE_S).acls.put, TENANT, acl)
        ways = {
            _OURS: stack.enter_context(_make_web(lab, stack, "inside1", "inside2")),
            _THEIRS: stack.enter_context(_make_web(lab, stack, "near", "far")),
        }
        bench = _Bench(lab, ways, compile_library(Path(stack.enter_context(TemporaryDirectory()))))
        bench.round(_WARM_UP)
        bench.found.clear()
        for turn in range(1, sizes.rounds + 1):
            progress(f"connections, tracked and OVN's, round {turn} of {sizes.rounds}")
            bench.round(sizes.downloads)
        flows = baseline.flows()
    for ending in _WAYS:
        _record_connections(results, ending, bench.found[_OURS, ending], bench.found[_THEIRS, ending])
    results.notes.append(
        f"connections: {sizes.downloads} downloads of one byte, {_AT_ONCE} at once, {_RULES} rules; client and server"
        f" on one processor; OVN's switch held {flows} flows; the clock covers the client program from start to end"
    )


def _make_logical_port(lab: Lab, name: str) -> LogicalPort:
    node = lab.spec.node(name)
    return LogicalPort(node.port, f"{format_mac(node.mac)} {_find_address(lab, name)}")


def _find_address(lab: Lab, name: str) -> str:
    prefix, *_ = lab.spec.node(name).addresses
    return format_address(Family.IPV4, prefix.network)


def _see_directly(lab: Lab, near: str, far: str) -> None:
    """Make one end of OVN's switch the other's gateway: there is no other."""
    address, mac = _find_address(lab, far), format_mac(lab.spec.node(far).mac)
    for words in (
        ("neighbour", "replace", address, "lladdr", mac, "dev", INTERFACE, "nud", "permanent"),
        ("route", "replace", "default", "via", address, "dev", INTERFACE, "onlink"),
    ):
        lab.inside(near, partial(run_program, ["ip", *words]))


def _make_web(lab: Lab, stack: ExitStack, client: str, server: str) -> Web:
    for node in (client, server):
        lab.inside(node, partial(namespaces.set_kernel, MANY_PORTS))
    for block in (NAMED, UNNAMED):
        lab.inside(client, partial(run_program, ["ip", "route", "add", "local", str(block), "dev", "lo"]))
    folder = Path(stack.enter_context(TemporaryDirectory()))
    return Web(lab, folder, Ends(client, server, _find_address(lab, server)))


@dataclass(slots=True)
class _Bench:
    """Both ways side by side; `passed` counts the clients that each has had."""

    lab: Lab
    ways: Mapping[str, Web]
    library: Path
    found: dict[tuple[str, str], _Rates] = field(default_factory=dict)
    passed: int = 0
    turns: int = 0

    def round(self, count: int) -> None:
        """Add a run of each way, in another order than the last round.

        Raises Drifted where a download failed.
        """
        self.turns += 1
        for ending, block in _WAYS.items():
            sources = {"ACLBENCH_SOURCES": str(block), "ACLBENCH_PASSED": str(self.passed)}
            for name in list(self.ways)[:: 1 if self.turns % 2 else -1]:
                rates = self.found.setdefault((name, ending), _Rates())
                self._run_downloads(self.ways[name], rates, count, sources)
        self.passed += count

    def _run_downloads(self, web: Web, rates: _Rates, count: int, sources: Mapping[str, str]) -> None:
        self.lab.ovs.forget()  # else one way's entries are asked for the other way's packets
        daemon = self.lab.state.process(self.lab.ovs.switch_process).pid
        before, started = processor_s(daemon), time.perf_counter()
        downloads = web.download(count, min(count, _AT_ONCE), {**sources, "LD_PRELOAD": str(self.library)})
        seconds = time.perf_counter() - started
        if downloads.failed:
            raise Drifted(f"{downloads.failed} of {count} downloads failed")
        rates.per_s.append(count / seconds)
        rates.cpu_us.append(1e6 * (processor_s(daemon) - before) / count)


def _record_connections(results: Results, ending: str, ours: _Rates, theirs: _Rates) -> None:
    faster = [mine / other for mine, other in zip(ours.per_s, theirs.per_s, strict=True)]
    cheaper = [mine / other for mine, other in zip(ours.cpu_us, theirs.cpu_us, strict=True)]
    results.figures[f"stateful_cps_vs_ovn{ending}"] = Figure.of(faster, "ratio", None if ending else _CPS)
    results.figures[f"stateful_cpu_vs_ovn{ending}"] = Figure.of(cheaper, "ratio")
    turns = tuple(float(turn) for turn in range(1, len(faster) + 1))
    chart = f"tracked connections a second{ending.replace('_', ' ')} (1/s)"
    for prefix, label, each in (("", _OURS, ours), ("ovn_", _THEIRS, theirs)):
        results.figures[f"{prefix}stateful_cps{ending}"] = Figure.of(each.per_s, "1/s")
        results.figures[f"{prefix}stateful_cpu_us{ending}"] = Figure.of(each.cpu_us, "us")
        results.series.append(Series(label, turns, tuple(each.per_s), "round", chart))


# -------------------------------------------------------------------------------------------- against stateless rules


def tracked_and_stateless() -> dict[str, Program]:
    """Return a tracking domain's programs of one list: tracked, and all of it stateless."""
    acl = Listed(_RULES).acl()
    back = Rule(RuleId("back"), Action.PERMIT, Direction.EGRESS, stateless=True)
    lists = {
        "stateful": acl,
        "stateless": Acl((*(replace(rule, stateless=True) for rule in acl.rules), back)),
    }
    return {
        name: compile_host(
            replace(policy(each, server_port=RIGHT), return_traffic=ReturnTraffic.TRACKED),
            domain="bench", generation=generation,
        )
        for generation, (name, each) in enumerate(lists.items(), 1)
    }  # fmt: skip


def _compare_with_stateless(results: Results, sizes: Sizes, progress: Callable[[str], None]) -> None:
    programs = tracked_and_stateless()
    found: dict[str, list[float]] = {name: [] for name in programs}
    with site() as place, serve_line(place, "stateful") as line, vnf_acl(line, Ports.SYSTEM) as vnf:
        for turn in range(sizes.rounds):
            progress(f"packets, tracked and stateless, round {turn + 1} of {sizes.rounds}")
            for name in list(programs)[:: 1 if turn % 2 else -1]:
                vnf.load(programs[name])
                found[name].append(iperf.flood(line, seconds=_FLOOD_S).per_s)
                _check_look_ups(vnf, tracked=name == "stateful")
    ratios = [mine / other for mine, other in zip(found["stateful"], found["stateless"], strict=True)]
    results.figures["stateful_pps_vs_stateless"] = Figure.of(ratios, "ratio")
    for name, values in found.items():
        results.figures[f"{name}_pps"] = Figure.of(values, "1/s")
    results.notes.append(
        f"packets: datagrams of {iperf.DATAGRAM_BYTES} bytes in one flow for {_FLOOD_S} s, {_RULES} rules, at the"
        " sender's maximum; the list is the same, in the one program tracked and in the other one stateless"
    )


def _check_look_ups(vnf: VnfAcl, *, tracked: bool) -> None:
    """Raise Drifted unless the flood's packets had their connection looked up, or had not."""
    looks = any("proto=17" in line and "recirc(" in line for line in vnf.switch.appctl("dpctl/dump-flows").splitlines())
    if looks is not tracked:
        raise Drifted(f"datagrams' connection is {'' if looks else 'not '}looked up")
