"""Names of one lab's namespaces, links and files, all made of its prefix.

prefix  aclflow-                    one dash, at the end, so that no prefix is the beginning of another lab's names
namespaces  aclflow-ovs, aclflow-web1, ...; with routed uplinks aclflow-host1, aclflow-router too
link        aclflow-mgmt            the root namespace's end of the link over which switches reach their controller
files       /run/aclflow-labs/aclflow/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.lab.spec import HostSpec

DEFAULT_PREFIX = "aclflow-"
RUNS = Path("/run/aclflow-labs")
MARK = "ACLFLOW_LAB"
"""Environment variable that every process of a lab carries: the lab's run directory."""

_PREFIX = re.compile(r"[a-z][a-z0-9]{0,9}-\Z")


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of one lab.

    Raises BadInput for a prefix that could be mistaken for another lab's.
    """

    prefix: str = DEFAULT_PREFIX
    runs: Path = RUNS

    def __post_init__(self) -> None:
        if not _PREFIX.match(self.prefix):
            raise BadInput(
                f"{self.prefix!r} cannot be a lab's prefix: use up to ten small letters and digits, then one dash",
                place="prefix",
            )

    @property
    def run_dir(self) -> Path:
        return self.runs / self.prefix.rstrip("-")

    @property
    def ovs_namespace(self) -> str:
        return f"{self.prefix}ovs"

    @property
    def management_link(self) -> str:
        return f"{self.prefix}mgmt"

    def firewall_link(self, number: int = 0) -> str:
        """The root namespace's end of the link over which a firewall's agent reaches the service."""
        return f"{self.prefix}fw{number or ''}"

    def host_link(self, number: int | str = "") -> str:
        """The root namespace's end of a routed host's management link."""
        return f"{self.prefix}ho{number}"

    def bridge_namespace(self, host: HostSpec) -> str:
        """The namespace of a host's bridge: its own, or the one that switches share."""
        return self.namespace(host.name) if host.routed else self.ovs_namespace

    def ovs_dir(self, host: HostSpec | None = None) -> Path:
        """The run directory of a host's Open vSwitch.

        It is the edge's without a host, or where a host has none to itself.
        """
        return self.run_dir / (f"ovs-{host.name}" if host is not None and host.routed else "ovs")

    @property
    def state_file(self) -> Path:
        return self.run_dir / "lab.json"

    @property
    def logs(self) -> Path:
        return self.run_dir / "logs"

    def namespace(self, node: str) -> str:
        """The namespace of a client or an endpoint."""
        return f"{self.prefix}{node}"
