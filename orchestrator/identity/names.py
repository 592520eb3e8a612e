"""The subject and the usages of a certificate.

    usage        who bears it                      TLS client   TLS server   bears other names
    enforcer     agent in a firewall VNF           yes          no           -
    controller   OpenFlow controller of a domain   yes          yes          -
    switch       Open vSwitch of a host            yes          no           -
    service      the service itself                no           yes          host names and addresses
    console      the web console                   no           yes          host names and addresses

The name stands in the certificate as a URI: ``aclflow://pop1/switch/host1``. The common name is for people to read; it
holds spaces, so that no verifier can take it for the name of a host.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from orchestrator.errors import BadInput

OPENFLOW = "openflow"
"""The kind of enforcement point that switches connect to."""

FILTERS = ("nftables", "iptables", "queue")
"""The kinds of enforcement points that are firewalls: each is named by what it filters with."""

SPREADING_SWITCH = "spread"
"""The name of a domain's spreading switch at its controller, and in its certificate where that speaks TLS."""

SWITCH = "switch"
"""The kind that a switch's one-time token is for. A switch is no enforcement point: its controller is."""

_URI = re.compile(r"aclflow://(?P<domain>[^/?#]+)/(?P<usage>[a-z]+)/(?P<name>[^/?#]+)\Z")
_LONGEST_COMMON_NAME = 64


class Usage(enum.Enum):
    """The usage of a certificate."""

    ENFORCER = "enforcer"
    CONTROLLER = "controller"
    SWITCH = "switch"
    SERVICE = "service"
    CONSOLE = "console"

    @property
    def is_client(self) -> bool:
        """Whether its bearer opens connections with it."""
        return not self.bears_hosts

    @property
    def is_server(self) -> bool:
        """Whether its bearer accepts connections with it."""
        return self is Usage.CONTROLLER or self.bears_hosts

    @property
    def bears_hosts(self) -> bool:
        """Return whether its bearer is known by machine names and addresses, as in HTTPS."""
        return self in (Usage.SERVICE, Usage.CONSOLE)

    @classmethod
    def of_kind(cls, kind: str) -> Usage:
        """The usage of an enforcement point of a kind."""
        return cls.CONTROLLER if kind == OPENFLOW else cls.ENFORCER


def check_kind(kind: str) -> None:
    """Raises BadInput for what is no kind of enforcement point."""
    if kind not in (OPENFLOW, *FILTERS):
        raise BadInput(f"'{kind}' is no kind of enforcement point: {OPENFLOW}, {', '.join(FILTERS)}", place="kind")


@dataclass(frozen=True, slots=True)
class Subject:
    """The bearer of a certificate."""

    usage: Usage
    domain: str
    name: str

    @property
    def uri(self) -> str:
        """The subject's URI, as it stands in the certificate."""
        return f"aclflow://{self.domain}/{self.usage.value}/{self.name}"

    @property
    def common_name(self) -> str:
        """The name that people see in a certificate."""
        return f"{self.usage.value} {self.name} of {self.domain}"[:_LONGEST_COMMON_NAME]

    @classmethod
    def of_uri(cls, uri: str) -> Subject:
        """Read the name of a certificate's bearer.

        Raises BadInput for what is not such a name.
        """
        found = _URI.match(uri)
        if found is None or found["usage"] not in (usage.value for usage in Usage):
            raise BadInput(f"'{uri}' is not the name of a machine of aclflow")
        return cls(Usage(found["usage"]), found["domain"], found["name"])
