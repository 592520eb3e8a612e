"""One TCP stream through a line, as in the paper's figures 11 to 13.

Bandwidth, latency and processors.

Ways take turns: a kernel that only routes, hash sets of every size, an interval set, and the tunnel.

The tunnel is the paper's baseline: IPsec across a line, by strongSwan in user space.

    client ipsec0 ══ UDP 4500 over the line ══ ipsec0 server        AES-128-GCM, a shared secret

This kernel need not have ESP: charon encrypts and decrypts itself (kernel-libipsec). Each end has a charon of its own
in its namespace, with a folder of ours in the place of /run, and no service of the system is started or asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.bench.firewall_server import qperf
from orchestrator.bench.firewall_server.pairs import MARKED_ONLY, HashSet, pairs, traffic
from orchestrator.bench.firewall_server.qperf import Bandwidth
from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.bench.traffic import netcat
from orchestrator.bench.traffic.addresses import ECHO, EXCLUDED_ADDRESS, SERVER_ADDRESS, Clients
from orchestrator.bench.traffic.line import CLIENT, MIDDLE, SERVER, Line, serve_line
from orchestrator.errors import AclflowError, Drifted, Missing, Refused, Unreachable
from orchestrator.lab import processes
from orchestrator.lab.layout import Layout
from orchestrator.lab.processes import Process

ROUTING, TUNNEL = "routing", "IPsec tunnel"

CLIENT_INSIDE, SERVER_INSIDE = "192.0.2.1", "192.0.2.2"
"""The addresses that only the tunnel leads to."""

CHARON = Path("/usr/lib/ipsec/charon")
PACKAGES = "strongswan-charon strongswan-swanctl libcharon-extra-plugins libstrongswan-standard-plugins"
_PATIENCE_S = 30.0
_POLL_S = 0.1
_SETTINGS = """\
charon {
  load_modular = no
  load = random nonce openssl pem pkcs1 pkcs8 x509 pubkey sha1 sha2 hmac aes gcm kdf kernel-libipsec kernel-netlink \
socket-default vici updown
  install_virtual_ip = no
  plugins {
    kernel-netlink { fwmark = !0x42 }
    socket-default { fwmark = 0x42 }
    kernel-libipsec { allow_peer_ts = yes }
  }
  filelog { log { path = /run/charon.log } }
}
swanctl { load = random nonce openssl pem pkcs1 pkcs8 x509 pubkey sha1 sha2 hmac aes gcm }
"""
_CONNECTION = """\
connections {{
  tunnel {{
    local_addrs = {here}
    remote_addrs = {there}
    encap = yes
    version = 2
    proposals = aes128gcm16-prfsha256-ecp256
    local {{ auth = psk }}
    remote {{ auth = psk }}
    children {{
      net {{ local_ts = {inside}/32
             remote_ts = {beyond}/32
             esp_proposals = aes128gcm16 }}
    }}
  }}
}}
secrets {{ ike {{ secret = "of no value, this line is taken down again" }} }}
"""


@contextmanager
def tunnel(line: Line) -> Iterator[tuple[Process, ...]]:
    """Connect both gateways for the block; yield their processes.

    Raises Missing where strongSwan is not installed, Unreachable where the tunnel does not come up.
    """
    if not CHARON.exists():
        raise Missing(f"strongSwan is not installed: apt-get install {PACKAGES}")
    outside = {CLIENT: Clients.ONE.address, SERVER: SERVER_ADDRESS}
    inside = {CLIENT: CLIENT_INSIDE, SERVER: SERVER_INSIDE}
    running: list[Process] = []
    try:
        for role, other in ((CLIENT, SERVER), (SERVER, CLIENT)):
            folder = _make_folder(line, role)
            connection = _CONNECTION.format(
                here=outside[role], there=outside[other], inside=inside[role], beyond=inside[other]
            )
            (folder / "swanctl.conf").write_text(connection)
            line.run(role, "ip", "address", "add", f"{inside[role]}/32", "dev", "lo")
            running.append(_charon(line, role, folder))
        for role in (SERVER, CLIENT):
            _until_loaded(line, role)
        _run_swanctl(line, CLIENT, "--initiate", "--child", "net", "--timeout", str(int(_PATIENCE_S)))
        yield tuple(running)
    finally:
        processes.stop(running)


def _make_folder(line: Line, role: str) -> Path:
    folder = line.layout.run_dir / f"{line.name}-{role}-run"
    folder.mkdir()
    (folder / "strongswan.conf").write_text(_SETTINGS)
    return folder


def _charon(line: Line, role: str, folder: Path) -> Process:
    """Start a gateway whose /run is a folder of ours.

    Its socket's path is compiled in.
    """
    script = f"mount --bind '{folder}' /run && exec {CHARON}"
    name = f"{line.name}-{role}-charon"
    return processes.spawn(
        name,
        ("unshare", "--mount", "sh", "-c", script),
        mark=line.layout.run_dir,
        log=line.layout.logs / f"{name}.log",
        namespace=line.namespace(role),
        settings={"STRONGSWAN_CONF": "/run/strongswan.conf"},
    )


def _until_loaded(line: Line, role: str) -> None:
    """Give a gateway its connection, once it listens."""
    until = time.monotonic() + _PATIENCE_S
    configuration = line.layout.run_dir / f"{line.name}-{role}-run" / "swanctl.conf"
    while True:
        try:
            _run_swanctl(line, role, "--load-all", "--file", str(configuration))
        except Refused as error:
            if time.monotonic() > until:
                raise Unreachable(f"the {role}'s IPsec gateway does not answer: {error}") from None
            time.sleep(_POLL_S)
        else:
            return


def _run_swanctl(line: Line, role: str, *command: str) -> None:
    folder = line.layout.run_dir / f"{line.name}-{role}-run"
    settings = {"STRONGSWAN_CONF": str(folder / "strongswan.conf")}
    line.run(role, "swanctl", *command, "--uri", f"unix://{folder}/charon.vici", settings=settings)


def hash_set(count: int) -> str:
    """The way of a hash set with so many pairs."""
    return f"hash set of {count:,}"


@dataclass(slots=True)
class Streams:
    """Values by way, in the order of the rounds.

    `absent` says why there is no tunnel, if there is none.
    """

    bandwidth: dict[str, list[Bandwidth]] = field(default_factory=dict)
    latency_us: dict[str, list[float]] = field(default_factory=dict)
    absent: str | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    """A line with its traffic's address, and the processes that carry it beside the kernel."""

    line: Line
    address: str
    beside: Sequence[Process] = ()


def measure(place: Layout, sizes: Sizes, step: Callable[[str], None]) -> Streams:
    """All rounds. Raises Missing, Refused, Unreachable, Drifted."""
    found = Streams()
    with ExitStack() as stack:
        ways = {ROUTING: _Way(stack.enter_context(_serve_qperf_line(place, "routing")), SERVER_ADDRESS)}
        for count in sizes.counts:
            step(f"{hash_set(count)} on a line")
            line = stack.enter_context(_serve_qperf_line(place, f"hash{count}"))
            _permit(line, count)
            ways[hash_set(count)] = _Way(line, SERVER_ADDRESS)
        step(TUNNEL)
        try:
            line = stack.enter_context(_serve_qperf_line(place, "ipsec"))
            ways[TUNNEL] = _Way(line, SERVER_INSIDE, stack.enter_context(tunnel(line)))
        except (Missing, Unreachable) as error:
            found.absent = str(error)
        for turn in range(sizes.rounds):
            for name, way in ways.items():
                step(f"streams, round {turn + 1} of {sizes.rounds}: {name}")
                found.bandwidth.setdefault(name, []).append(
                    qperf.bandwidth(way.line, way.address, sizes.seconds, way.beside)
                )
                found.latency_us.setdefault(name, []).append(qperf.latency_us(way.line, way.address, sizes.seconds))
    return found


def steps(sizes: Sizes) -> int:
    """How many steps `measured` tells of."""
    return len(sizes.counts) + 1 + sizes.rounds * (len(sizes.counts) + 2)


@contextmanager
def _serve_qperf_line(place: Layout, name: str) -> Iterator[Line]:
    with serve_line(place, name) as line:
        qperf.start(line)
        yield line


def _permit(line: Line, count: int) -> None:
    """Load a set with the traffic's pair among others; check that it decides.

    Raises Drifted.
    """
    held = HashSet()
    line.run(MIDDLE, "nft", "-f", "-", text=MARKED_ONLY)
    line.inside(MIDDLE, held.create)
    line.inside(MIDDLE, lambda: held.load(pairs(count - 1)))
    line.inside(MIDDLE, lambda: held.load(traffic()))
    try:
        strangers = netcat.reached_sources(line, [(EXCLUDED_ADDRESS, ECHO)])
    except AclflowError as error:
        raise Drifted(f"{hash_set(count)}: the permitted pair is not heard: {error}") from None
    if any(strangers):
        raise Drifted(f"{hash_set(count)}: a pair that is not permitted is heard")
