"""Tuple-space explosion: a tenant's short list and slow flood make the switch's cache slow.

Csikor et al. (TSE, 2018; TSE 2.0, 2020): an entry of Open vSwitch's cache holds as few bits as tell a packet from the
rules that it did not meet. A packet that differs from a rule's address and ports first in bit i, j and k makes an entry
with a mask of its own; three rules and 8,192 packets make thousands of masks, and a packet that is looked up tries mask
after mask. The cache has a set of masks for each port, so what comes by the uplink suffers together.

    known     the attacker knows the list, which is his own, and goes through i, j and k
    varied    the same masks, but hardly a packet comes twice: what entries do not look at is drawn, too
    random    he knows nothing (TSE 2.0): addresses and ports are drawn
    endpoint  the first, sent by an endpoint on the host
    ordinary  the first, by a list that asks for addresses and one port

What is under way when a flood begins has its entries before those of the flood; what comes later is held against all
of the flood's masks first, for a daemon that forwards itself keeps them in the order in which they came.

A list that asks for both ports has its destination ports read whole (`compile/pipelines/wholeports.py`); what that
does is seen beside the same without it, where settings of Open vSwitch are tried as well.

Measured are packets of another tenant's client that arrive, for each second of processor time of the switch's daemon:
that counts what the flood itself costs the daemon too, and does not depend on neighbours on the machine. Of a thread
that polls, the part counts in which it had packets.
"""

from __future__ import annotations

import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bench.benchlab import PREFIX, wait_connected
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import GATEWAY_MAC, Table
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.errors import Drifted, Refused, Unreachable
from orchestrator.hosts.ovs import join_commands
from orchestrator.hosts.polling import POLLERS
from orchestrator.hosts.switch import TRACKED, Wanted, prefix_tracking
from orchestrator.lab import pop, specfile
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import POLLING_CORE, SWITCH, OpenVSwitch, Ports
from orchestrator.lab.pop import Lab
from orchestrator.lab.wire import raw_socket
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, Rule, RuleId, TenantId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.policy.tcpflags import TcpFlag

SPEC = specfile.parse(
    """
    hosts: [{name: host1}]
    clients:
      - {name: client, silent: true, addresses: [192.0.2.0/24]}
      - {name: attacker, silent: true, addresses: [192.88.0.0/16]}
    tenants:
      - {id: shop, prefixes: [198.51.100.0/25]}
      - {id: evil, prefixes: [203.0.113.0/25]}
      - {id: plain, prefixes: [203.0.113.128/25]}
    endpoints:
      - {name: web, tenant: shop, host: host1, silent: true, addresses: [198.51.100.10]}
      - {name: evil1, tenant: evil, host: host1, silent: true, addresses: [203.0.113.10]}
      - {name: plain1, tenant: plain, host: host1, silent: true, addresses: [203.0.113.140]}
    """
)
PER_S = 2_000
_BATCH = 64
_LOOKED_AT = Prefix.parse("192.88.77.55/32")
_WEB, _OWN, _PLAIN, _CLIENTS = (
    Prefix.parse(f"{text}/32").network for text in ("198.51.100.10", "203.0.113.10", "203.0.113.140", "192.0.2.0")
)
_SOURCE_PORT, _PORT = 12345, 80
_AIM = _LOOKED_AT.network, _SOURCE_PORT, _PORT
"""Of which a packet differs in its address, its source and its destination port."""
_TICKS = os.sysconf("SC_CLK_TCK")
_SEED = 1
_MOST_S = 30.0
_SORTED_S = 8.0
"""How long others' packets are under way before a thread that polls is measured: it sorts masks, when busy seldom."""


@dataclass(frozen=True, slots=True)
class Lever:
    """Settings against the attack.

    `name` is how figures call it.
    """

    name: str
    settings: tuple[str, ...]
    reads_whole: bool = False
    """Whether destination ports are read whole by a list that asks for both."""
    polls: bool = False
    """Whether the uplink is an AF_XDP port, which a thread polls."""
    tracks_prefixes: bool = True
    """Whether an entry of the cache holds as few bits of an address as tell it apart (`Flow_Table prefixes`)."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A flood, and whether it comes before others' packets.

    Where it does, their entries are looked at after its own.
    """

    flood: str
    is_first: bool = False

    @property
    def figure(self) -> str:
        """The attack as names of figures spell it."""
        return ("" if self.flood == "known" else f"_{self.flood}") + ("_comes_first" if self.is_first else "")


_AS_CONFIGURED = f"max-idle={Wanted('pop', 'host1', 'up0', ('tcp:127.0.0.1:6653',)).max_idle_ms}"
"""What `aclflow host configure` sets."""
LEVERS = {
    Lever("", (_AS_CONFIGURED,), reads_whole=True): (
        Attack("known"), Attack("known", is_first=True), Attack("varied"), Attack("random"), Attack("endpoint"),
        Attack("ordinary"), Attack("ordinary", is_first=True),
    ),
    Lever("without_whole_ports", (_AS_CONFIGURED,)): (
        Attack("known"), Attack("known", is_first=True), Attack("varied"), Attack("endpoint"),
    ),
    Lever("polled", (_AS_CONFIGURED, POLLING_CORE), reads_whole=True, polls=True): (
        Attack("known"), Attack("known", is_first=True), Attack("varied"), Attack("ordinary", is_first=True),
    ),
    Lever("without_prefixes", (_AS_CONFIGURED,), reads_whole=True, tracks_prefixes=False): (
        Attack("known", is_first=True), Attack("varied"), Attack("ordinary", is_first=True),
    ),
    Lever("idle_10_s", ("max-idle=10000",)): (Attack("known"),),
    Lever("signature_cache", ("max-idle=10000", "smc-enable=true")): (Attack("known"), Attack("varied")),
}  # fmt: skip
"""Each lever, and the attacks that are tried against it."""
_FIGURE = "pps_of_others_under_tse"
_HELD = Target(0.5, at_most=False)
"""What others keep as configured. Less means that the cache has become easier to fill."""
NOTE = (
    "pps_of_others_under_tse: another tenant's packets for each second of the daemon's processor time, under a flood "
    "of 2,000 packets/s that makes thousands of masks, to those without it; by attack, and by other "
    "levers than destination ports read whole (docs/threats.md); comes_first: its entries are looked at first; polled: "
    "the uplink is an AF_XDP port, and of the thread that polls it the part counts in which it had packets"
)
_KNOWN_SETTINGS = ("max-idle", "smc-enable", POLLERS)
_VARIED = 65_536
"""Packets of the flood in which hardly one comes twice in half a minute."""


def lists() -> dict[TenantId, Acl]:
    """Return the victim's list, the attacker's, and one that asks for one port."""
    evil: list[Rule] = []
    for direction, action in ((Direction.INGRESS, Action.PERMIT), (Direction.EGRESS, Action.DENY)):
        looked_at = Addresses((_LOOKED_AT,))
        source, destination = (looked_at, ANY) if direction is Direction.INGRESS else (ANY, looked_at)
        source_port, port = ((PortRange(number, number),) for number in (_SOURCE_PORT, _PORT))
        name = direction.value
        evil += [
            Rule(RuleId(f"port-{name}"), action, direction, protocol=TCP, destination_ports=port),
            Rule(RuleId(f"address-{name}"), action, direction, source=source, destination=destination),
            Rule(RuleId(f"source-{name}"), action, direction, protocol=TCP, source_ports=source_port),
        ]
    web = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(_PORT, _PORT),))
    plain = tuple(rule for rule in evil if rule.direction is Direction.INGRESS and rule.source_ports == EVERY_PORT)
    return {TenantId("shop"): Acl((web,)), TenantId("evil"): Acl(tuple(evil)), TenantId("plain"): Acl(plain)}


def floods() -> dict[str, tuple[str, list[Packet]]]:
    """Return each attack's sender and packets."""
    draw = random.Random(_SEED)  # noqa: S311  (no secret: the same flood every time)
    bits = [(i, j, k) for i in range(32) for j in range(16) for k in range(16)]
    draw.shuffle(bits)
    away = [(_LOOKED_AT.network ^ 1 << i, _SOURCE_PORT ^ 1 << j, _PORT ^ 1 << k) for i, j, k in bits]
    varied = [
        tuple(each ^ draw.randrange(1 << bit, 2 << bit) for each, bit in zip(_AIM, place, strict=True))
        for place in bits * (_VARIED // len(bits))
    ]
    drawn = [(draw.getrandbits(31) | 1 << 26, draw.getrandbits(16), draw.getrandbits(16)) for _ in bits]
    return {
        "known": ("attacker", [_make_packet(source, _OWN, *ports) for source, *ports in away]),
        "varied": ("attacker", [_make_packet(source, _OWN, *ports) for source, *ports in varied]),
        "random": ("attacker", [_make_packet(source, _OWN, *ports) for source, *ports in drawn]),
        "endpoint": ("evil1", [_make_packet(_OWN, destination, *ports) for destination, *ports in away]),
        "ordinary": ("attacker", [_make_packet(source, _PLAIN, *ports) for source, *ports in away]),
    }


def _make_packet(source: int, destination: int, source_port: int, port: int) -> Packet:
    return Packet(Family.IPV4, source, destination, TCP, source_port, port, tcp_flags=TcpFlag.SYN)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The repetitions, the seconds of each measurement and of the flood before it.

    Seconds are of the daemon's processor time.
    """

    rounds: int = 2
    cpu_s: float = 1.0
    flooded_s: float = 6.0


FULL = Sizes(rounds=3, cpu_s=1.5)


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure this alone. `quick` takes fewer and shorter rounds."""
    sizes = Sizes() if quick else FULL
    settings = {"rounds": sizes.rounds, "cpu_seconds": sizes.cpu_s, "flood_packets_s": PER_S}
    results = Results("attack-tse", settings)
    measure(results, Steps(progress, sizes.rounds * len(LEVERS)), sizes, None)
    return results


def measure(results: Results, steps: Steps, sizes: Sizes, layout: Layout | None) -> None:
    """Add the figures."""
    rounds, cpu_s = sizes.rounds, sizes.cpu_s
    found: dict[str, list[float]] = {}
    made = floods()
    with pop.temporary(layout or Layout(PREFIX), SPEC) as lab, _load_lists(lab) as load:
        victim, ovs = Victim(lab), lab.ovs_of(lab.spec.hosts[0].name)
        for turn in range(rounds):
            for lever, attacks in LEVERS.items():
                steps.next(f"round {turn + 1} of {rounds}: tuple-space explosion, {lever.name or 'as configured'}")
                try:
                    _set_lever(lab, lever, load)
                except Unreachable as error:
                    results.absent[f"{_FIGURE}_{lever.name}"] = f"AF_XDP ports do not work here: {error}"
                    continue
                for attack in attacks:
                    ovs.forget()
                    quiet = victim.packets_per_cpu_s(cpu_s)
                    if attack.is_first:
                        ovs.forget()
                    with flooding(lab, *made[attack.flood]):
                        time.sleep(sizes.flooded_s)
                        victim.keep_sending(_SORTED_S if lever.polls else 0.0)
                        attacked = victim.packets_per_cpu_s(cpu_s)
                    name = attack.figure + (lever.name and f"_{lever.name}")
                    found.setdefault(name, []).append(attacked / quiet)
        victim.close()
    for name, values in found.items():
        results.figures[f"{_FIGURE}{name}"] = Figure.of(values, "ratio", None if name else _HELD)
    results.notes += (NOTE,)


class Victim:
    """Another tenant's client: packets that are permitted, from many sources and ports."""

    def __init__(self, lab: Lab) -> None:
        self._work = _DaemonWork(lab)
        self._out, self._in = (lab.inside(name, raw_socket) for name in ("client", "web"))
        draw = random.Random(_SEED)  # noqa: S311
        packets = [
            _make_packet(_CLIENTS + draw.randrange(256), _WEB, draw.randrange(1024, 65536), _PORT) for _ in range(4000)
        ]
        self._frames = _make_frames(lab, "client", packets)

    def packets_per_cpu_s(self, cpu_s: float) -> float:
        """Send until the daemon worked that CPU time; return packets arrived per second of it."""
        self._count_arrived()
        began, arrived = time.monotonic(), 0
        self._work.begin()
        while self._work.read_cpu_s() < cpu_s and time.monotonic() - began < _MOST_S:
            arrived += self._send_all()
        return arrived / max(self._work.read_cpu_s(), 1 / _TICKS)

    def keep_sending(self, seconds: float) -> None:
        """Send for some time, and measure nothing."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            self._send_all()

    def close(self) -> None:
        """Give the sockets back."""
        self._out.close()
        self._in.close()

    def _send_all(self) -> int:
        """Send each packet once; return how many arrived meanwhile."""
        arrived = 0
        for start in range(0, len(self._frames), _BATCH):
            for frame in self._frames[start : start + _BATCH]:
                with suppress(OSError):
                    self._out.send(frame)
            arrived += self._count_arrived()
        return arrived

    def _count_arrived(self) -> int:
        count = 0
        while True:
            try:
                self._in.recv(256)
            except BlockingIOError:
                return count
            count += 1


class _DaemonWork:
    """The processor time of a switch's daemon, without what its polling threads waited."""

    def __init__(self, lab: Lab) -> None:
        self._process = Path("/proc", str(lab.state.process(SWITCH).pid))
        self._ovs = lab.ovs_of(lab.spec.hosts[0].name)
        self.begin()

    def begin(self) -> None:
        """Count from here."""
        self._pollers = [task / "stat" for task in (self._process / "task").iterdir() if _polls(task)]
        self._cycles, self._polling_s = self._read_cycles(), self._read_polling_s()
        self._began_s, self._waited_s = _cpu_s_of(self._process / "stat"), 0.0

    def read_cpu_s(self) -> float:
        """Return the seconds since the beginning."""
        (waited, worked), polling_s = self._read_cycles(), self._read_polling_s()
        idle, busy = waited - self._cycles[0], worked - self._cycles[1]
        self._waited_s += (polling_s - self._polling_s) * idle / max(idle + busy, 1)
        self._cycles, self._polling_s = (waited, worked), polling_s
        return _cpu_s_of(self._process / "stat") - self._began_s - self._waited_s

    def _read_polling_s(self) -> float:
        return sum(map(_cpu_s_of, self._pollers))

    def _read_cycles(self) -> tuple[int, int]:
        """Return the cycles that polling threads waited, and those in which they had packets."""
        text = self._ovs.appctl("dpif-netdev/pmd-stats-show") if self._pollers else ""
        waited, worked = (sum(map(int, re.findall(rf"{kind} cycles: (\d+)", text))) for kind in ("idle", "processing"))
        return waited, worked


def _polls(task: Path) -> bool:
    return task.joinpath("comm").read_text(encoding="ascii").startswith("pmd")


def _cpu_s_of(stat: Path) -> float:
    """Return a process's or thread's processor time in seconds."""
    fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def flooding(lab: Lab, sender: str, packets: Sequence[Packet]) -> Iterator[None]:
    """Send packets in turn at a slow, steady rate during the block."""
    stopping, made = threading.Event(), _make_frames(lab, sender, packets)
    out = lab.inside(sender, raw_socket)
    thread = threading.Thread(target=_send_flood, args=(out, made, stopping))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        out.close()


def _send_flood(out: socket.socket, made: Sequence[bytes], stopping: threading.Event) -> None:
    began, sent = time.monotonic(), 0
    while not stopping.wait(0.002):
        due = int((time.monotonic() - began) * PER_S)
        for number in range(sent, due):
            with suppress(OSError):
                out.send(made[number % len(made)])
        sent = due


def _make_frames(lab: Lab, sender: str, packets: Sequence[Packet]) -> list[bytes]:
    mac = lab.spec.node(sender).mac
    return [frames.frame(each, src_mac=mac, dst_mac=GATEWAY_MAC, payload=bytes(20)) for each in packets]


def _set_lever(lab: Lab, lever: Lever, load: Callable[[], None]) -> None:
    """Set a lever, and no other. Raises Unreachable where the uplink cannot be polled."""
    host = lab.spec.hosts[0]
    name, ovs = host.name, lab.ovs_of(host.name)
    for key in _KNOWN_SETTINGS:
        ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", key)
    for setting in lever.settings:
        ovs.configure(setting)
    ovs.open_port(name, host.uplink, Ports.AF_XDP if lever.polls else Ports.SYSTEM)
    _set_prefixes(ovs, name, is_tracked=lever.tracks_prefixes)
    load()
    if not lever.reads_whole:
        for table in (Table.SENDER_PORTS, Table.RECEIVER_PORTS):
            ovs.ofctl("del-flows", name, f"table={table:d},ip")


def _set_prefixes(ovs: OpenVSwitch, bridge: str, *, is_tracked: bool) -> None:
    """Have tables of sources and lists track prefixes as configured, or none."""
    wanted = TRACKED if is_tracked else dict.fromkeys(TRACKED, ("tun_id",))
    ovs.vsctl(*join_commands(prefix_tracking(bridge, {}, wanted)))


@contextmanager
def _load_lists(lab: Lab) -> Iterator[Callable[[], None]]:
    """Yield what loads the lists into the host's switch. Raises Refused, Drifted."""
    host = lab.spec.hosts[0]
    datapath = int(host.datapath_id, 16)
    program = compile_host(policy_of(lab.spec, lists()), domain=lab.spec.domain, generation=1)
    with wait_connected(lambda observer: Launcher(Listen(*lab.controller_address), observer), {datapath}) as channels:
        switch = Switch(channels[datapath], uplink=host.uplink)
        if not switch.claim(1):
            raise Refused("the switch has another master")

        def load() -> None:
            switch.apply(gap.correction(switch.observe(), program, switch.resolve), gap.stamp_of(program))
            wrong = gap.mismatch(switch.observe(), switch.resolve(program.flows, program.ports), gap.stamp_of(program))
            if wrong is not None:
                raise Drifted(wrong.text)

        yield load
