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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.bench.qualify.inventory import read_yaml
from orchestrator.errors import BadInput, Missing, Refused

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
    said = _read_mapping(document, "")
    for key in said:
        if key not in _KEYS:
            raise BadInput(f"there is no such key; they are {', '.join(sorted(_KEYS))}", place=str(key))
    service = _read_mapping(said.get("aclflow"), "aclflow")
    networks = _read_sides(said.get("networks"), "networks")
    return CloudSite(
        os_cloud=_read_text(said, "os_cloud"),
        host=Compute(_read_text(said, "host"), _read_text(said, "namespace", ""), _read_words(said.get("enter", ()))),
        service=_read_service(service, folder),
        networks=networks,
        bridges={**_BRIDGES, **_read_mapping(said.get("bridges", {}), "bridges")},
        polling_interval_s=_read_seconds(said.get("polling_interval_s")),
        clouds_file=_find_file(said, "clouds_file", folder),
        boot=_read_boot(said.get("boot")),
    )


def _read_mapping(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput("names with values are wanted here", place=place)
    return value


def _read_sides(value: object, place: str) -> Mapping[str, str]:
    """One name for each of the two."""
    said = _read_mapping(value, place)
    if set(said) != set(_BRIDGES):
        raise BadInput(f"{' and '.join(_BRIDGES)} are wanted here", place=place)
    return {side: _read_text(said, side, place=f"{place}.{side}") for side in _BRIDGES}


def _read_text(said: Mapping[str, Any], key: str, default: str | None = None, *, place: str = "") -> str:
    found = said.get(key, default)
    if not isinstance(found, str) or (default is None and not found):
        raise BadInput("a text is wanted here", place=place or key)
    return found


def _read_words(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise BadInput("a list of words is wanted here", place="enter")
    return tuple(value)


def _read_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise BadInput(
            "how often Neutron's agent looks, in seconds, as its configuration says", place="polling_interval_s"
        )
    return float(value)


def _read_service(said: Mapping[str, Any], folder: Path) -> Service:
    file = _find_file(said, "token_file", folder)
    if file is None:
        raise BadInput("the file with an administrator's token is wanted here", place="aclflow.token_file")
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Missing(f"{file} cannot be read: {error.strerror}") from None
    url, domain = (_read_text(said, key, place=f"aclflow.{key}") for key in ("url", "domain"))
    return Service(url, token, domain, _find_file(said, "authority", folder))


def _find_file(said: Mapping[str, Any], key: str, folder: Path) -> Path | None:
    return folder / _read_text(said, key) if key in said else None


def _read_boot(value: object) -> Boot | None:
    if value is None:
        return None
    said = _read_mapping(value, "boot")
    image, flavor = (_read_text(said, key, place=f"boot.{key}") for key in ("image", "flavor"))
    reachable = said.get("reachable", False)
    if not isinstance(reachable, bool):
        raise BadInput("true or false is wanted here", place="boot.reachable")
    return Boot(image, flavor, reachable)
