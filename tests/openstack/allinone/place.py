"""Where one set-up lives: a directory, a block of ports on loopback, and the URLs that follow."""

from __future__ import annotations

import json
import random
import socket
from dataclasses import dataclass
from pathlib import Path

ADDRESS = "127.0.0.1"
"""Where services listen unless another address is given."""
REGION = "RegionOne"
PASSWORD = "only-on-loopback"
"""Of every user there is, and of no use anywhere else."""
PORTS = (
    "keystone",
    "placement",
    "glance",
    "nova",
    "neutron",
    "heat",
    "heat-cfn",
    "memcached",
    "rabbit",
    "rabbit-nodes",
    "rabbit-names",
    "aclflow",
    "console",
)
_FIRST, _LAST = 20000, 30000
"""Below those that the kernel gives to whoever connects."""
_PORTS_FILE = "ports.json"
_FOLDERS = ("etc", "log", "run", "lock", "images", "nova/instances", "neutron", "fernet", "credential", "plugins/heat")


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, the ports that belong to it, by name, and the address that services listen on."""

    root: Path
    ports: dict[str, int]
    address: str = ADDRESS
    authority: str = ""
    """The certificate that signs that of aclflow's service, if it speaks TLS."""

    @classmethod
    def at(cls, root: Path, address: str = ADDRESS, authority: str = "") -> Place:
        """The place in a directory; its ports are chosen once, and kept in a file there."""
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        root.chmod(0o711)
        file = root / _PORTS_FILE
        if not file.exists():
            file.write_text(json.dumps(_free_ports(address)))
        return cls(root, json.loads(file.read_text()), address, authority)

    def url(self, name: str, path: str = "") -> str:
        """Where a service is reached."""
        return f"http://{self.address}:{self.ports[name]}{path}"

    @property
    def aclflow(self) -> str:
        """Where aclflow's service is to be."""
        url = self.url("aclflow")
        return url.replace("http:", "https:") if self.authority else url

    @property
    def keystone(self) -> str:
        """Where to authenticate."""
        return self.url("keystone", "/v3")

    @property
    def mysql_socket(self) -> Path:
        """The only way to the database: it does not listen on the network."""
        return self.root / "run" / "mysql.sock"

    def database(self, name: str) -> str:
        """SQLAlchemy's URL of one database."""
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={self.mysql_socket}&charset=utf8"

    def config(self, name: str) -> Path:
        """One service's configuration."""
        return self.root / "etc" / f"{name}.conf"


def _free_ports(address: str) -> dict[str, int]:
    """A block of ports of which nobody listens on any."""
    for first in random.sample(range(_FIRST, _LAST, len(PORTS)), 50):
        block = dict(zip(PORTS, range(first, first + len(PORTS)), strict=True))
        if all(_is_free(address, port) for port in block.values()):
            return block
    raise RuntimeError("no block of ports is free")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind((address, port))
        except OSError:
            return False
    return True
