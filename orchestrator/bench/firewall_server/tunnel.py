"""The paper's baseline: an IPsec tunnel across a line, by strongSwan in user space.

    client ipsec0 ══ UDP 4500 over the line ══ ipsec0 server        AES-128-GCM, a shared secret

This kernel need not have ESP: charon encrypts and decrypts itself (kernel-libipsec). Each end has a charon of its own
in its namespace, with a folder of ours in the place of /run, and no service of the system is started or asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.bench.traffic.addresses import SERVER_ADDRESS, Clients
from orchestrator.bench.traffic.line import CLIENT, SERVER, Line
from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.lab import processes
from orchestrator.lab.processes import Process

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
