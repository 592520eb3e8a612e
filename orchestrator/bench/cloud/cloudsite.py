"""The file that says where the cloud to be measured is.

ML2/OVS and aclflow serve one compute host of it:

os_cloud: admin                    # the entry of clouds.yaml
clouds_file: /etc/openstack/clouds.yaml
host: compute-1                    # as Nova, Neutron and aclflow call it
enter: [ip, netns, exec, one]      # words before a command on that host; left out: it is this machine
namespace: one                     # its network namespace; left out: this machine's own
aclflow: {url: "https://192.0.2.10:8420", token_file: admin.token, authority: authority.pem, domain: cloud}
networks: {aclflow: net1, neutron_ovs: plain}
bridges: {aclflow: br-aclflow, neutron_ovs: br-int}
polling_interval_s: 2              # of Neutron's agent there
boot: {image: guest, flavor: small, reachable: false}

Paths may be relative to the file. `boot` may be left out: then no instance is booted. `reachable` says that instances
get their address on both networks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from orchestrator.bench.yamlfiles import read_yaml
from orchestrator.errors import BadInput, Missing, Refused
from orchestrator.policy.formats.json_node import Node

OURS, THEIRS = "aclflow", "neutron_ovs"
_BRIDGES: Mapping[str, str] = MappingProxyType({OURS: "br-aclflow", THEIRS: "br-int"})
_KEYS = frozenset(
    {"os_cloud", "clouds_file", "host", "enter", "namespace", "aclflow", "networks", "bridges", "polling_interval_s",
     "boot"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compute:
    """A compute host on this machine.

    Its interfaces are in `namespace`; `enter` are the words before a command that runs there.
    """

    name: str
    namespace: str = ""
    enter: tuple[str, ...] = ()

    def run(self, *command: str) -> str:
        """Run a command there; return its output. Raises Refused with what it said, Missing."""
        try:
            done = subprocess.run((*self.enter, *command), capture_output=True, text=True, check=False)
        except OSError as error:
            raise Missing(f"the program '{(*self.enter, *command)[0]}' cannot be run: {error.strerror}") from None
        if done.returncode:
            raise Refused(f"{self.name}: {' '.join(command)}: {done.stdout}{done.stderr}".strip())
        return done.stdout


@dataclass(frozen=True, slots=True)
class Service:
    """The service of aclflow, and an administrator's token."""

    url: str
    token: str
    domain: str
    authority: Path | None = None


@dataclass(frozen=True, slots=True)
class Boot:
    """The image and flavor of instances; `reachable` if they get an address on both networks."""

    image: str
    flavor: str
    reachable: bool = False


@dataclass(frozen=True, slots=True)
class CloudSite:
    """A cloud to be measured.

    `networks` and `bridges` have a name for each of the two firewalls.
    """

    os_cloud: str
    host: Compute
    service: Service
    networks: Mapping[str, str]
    bridges: Mapping[str, str]
    polling_interval_s: float
    clouds_file: Path | None = None
    boot: Boot | None = None


def read(path: Path) -> CloudSite:
    """Read the site from a file. Raises BadInput with file and place, and Missing."""
    return read_yaml(path, "cloud", partial(parse, folder=path.parent))


def parse(document: object, folder: Path) -> CloudSite:
    """Read a document whose paths are relative to a folder.

    Raises BadInput with the place, Missing.
    """
    top = Node(document)
    for key in top.object():
        if key not in _KEYS:
            raise BadInput(f"there is no such key; they are {', '.join(sorted(_KEYS))}", place=str(key))
    namespace, boot = top.member("namespace"), top.member("boot")
    enter = tuple(each.text() for each in top.members("enter"))
    return CloudSite(
        os_cloud=_read_word(top.needed("os_cloud")),
        host=Compute(_read_word(top.needed("host")), "" if namespace is None else namespace.text(), enter),
        service=_read_service(top.needed("aclflow"), folder),
        networks=_read_networks(top.needed("networks")),
        bridges=_read_bridges(top.member("bridges")),
        polling_interval_s=_read_seconds(top.needed("polling_interval_s")),
        clouds_file=_find_file(top.member("clouds_file"), folder),
        boot=None if boot is None else _read_boot(boot),
    )


def _read_word(said: Node) -> str:
    """Read a text that is not empty."""
    if not said.text():
        raise said.fault("a text is wanted here")
    return said.text()


def _read_networks(said: Node) -> Mapping[str, str]:
    """Read a name for each of the two."""
    if set(said.object()) != set(_BRIDGES):
        raise said.fault(f"{' and '.join(_BRIDGES)} are wanted here")
    return {side: _read_word(said.needed(side)) for side in _BRIDGES}


def _read_bridges(said: Node | None) -> Mapping[str, str]:
    """Read a bridge for each of the two; the usual one by default."""
    found = {} if said is None else {side: said.member(side) for side in _BRIDGES}
    return {**_BRIDGES, **{side: _read_word(name) for side, name in found.items() if name is not None}}


def _read_seconds(said: Node) -> float:
    value = said.value
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise said.fault("how often Neutron's agent looks, in seconds, as its configuration says")
    return float(value)


def _read_service(said: Node, folder: Path) -> Service:
    file = folder / _read_word(said.needed("token_file"))
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Missing(f"{file} cannot be read: {error.strerror}") from None
    url, domain = (_read_word(said.needed(key)) for key in ("url", "domain"))
    return Service(url, token, domain, _find_file(said.member("authority"), folder))


def _find_file(said: Node | None, folder: Path) -> Path | None:
    return None if said is None else folder / _read_word(said)


def _read_boot(said: Node) -> Boot:
    image, flavor = (_read_word(said.needed(key)) for key in ("image", "flavor"))
    reachable = said.member("reachable")
    return Boot(image, flavor, reachable is not None and reachable.truth())
