"""Security domains: endpoints, machines that become hosts, how far generations have got."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from orchestrator.wire.common import describe, document

ReturnTrafficWord = Literal["established", "explicit", "path-mtu", "tracked"]

RETURN_TRAFFIC = (
    "how replies come back in. `established`: TCP segments that look like replies. `path-mtu`: the same, and from "
    "anybody to any endpoint ICMP errors that say which size of packet a path takes, forged ones among them, up to "
    "`path_mtu_rate`. `tracked`: packets of a connection that the lists permit. `explicit`: what rules permit"
)

PATH_MTU_LIMIT = (
    "under `path-mtu`: a switch or firewall VNF lets through at most so many of these ICMP errors a second "
    "to each tenant"
)


@document(kw_only=True)
class Domain:
    """A security domain: hosts that hold the same rules."""

    id: str
    return_traffic: ReturnTrafficWord = describe(RETURN_TRAFFIC)
    path_mtu_rate: int = describe(PATH_MTU_LIMIT)
    untracked: tuple[str, ...] = describe("kinds of enforcement points that stay at `established` where it is tracked")
    generation: int
    version: int
    created: dt.datetime


@document(kw_only=True)
class WrittenHost:
    """A host just onboarded, and the generation that it must reach."""

    name: str
    datapath_id: str
    uplink: str
    generation: int


@document(kw_only=True)
class EndpointSeen:
    """An endpoint."""

    name: str
    tenant: str
    port: str
    mac: str
    prefixes: tuple[str, ...]
    version: int
    shared: bool = describe("whether other endpoints of its tenant may live behind the same port", default=False)


@document(kw_only=True)
class HostEndpoints:
    """The endpoints on a host whose present rows were read back there.

    An endpoint is on the host that has its interface.
    """

    host: str
    state: str | None = describe("what was reported of the host last; null: nothing")
    generation: int | None = describe("what it was read back at; null unless its state is `enforced`")
    endpoints: tuple[str, ...]


@document()
class Lagging:
    """A host that does not hold a generation yet.

    Tenants are not told which, nor why.
    """

    host: str | None
    generation: int | None
    state: str | None
    error: str | None

    @property
    def word(self) -> str:
        """The host's state in the common words: `behind`, or something worse."""
        return "never reported" if self.state is None else _WORDS.get(self.state, self.state)


_WORDS = {"enforced": "behind", "applying": "behind"}
"""A host that was read back at another generation, or is on its way to this one, is behind."""


@document()
class Enforced:
    """How many hosts have reached a generation, and which have not.

    It is enforced when every host was read back at it or at a later one.
    """

    domain: str
    generation: int
    state: Literal["enforced", "pending"]
    hosts: int
    laggards: tuple[Lagging, ...]

    @property
    def done(self) -> bool:
        """Whether every host was read back at the generation, or at a later one."""
        return self.state == "enforced"

    def describe_done(self) -> str:
        """Say where a finished generation is in force; a domain may have no hosts."""
        return "in force on every host" + ("" if self.hosts else " (the domain has none yet)")


MAX_IDLE_MS = 60_000
"""How long a host's switch keeps a cache entry that no packet meets, where nothing else was said: as in the ACLFLOW
paper."""


@document(kw_only=True)
class MachineOnboarding:
    """A machine that joins or leaves a domain, with its progress.

    Its progress is what was done last, or why it failed and what to change.
    """

    name: str
    machine: str
    bridge: str
    datapath_id: str
    uplink: str
    controllers: tuple[str, ...]
    state: Literal["adding", "done", "failed", "removing"]
    step: str
    error: str | None
    changed: dt.datetime

    @property
    def under_way(self) -> bool:
        """Whether something is still being done to the machine."""
        return self.state in ("adding", "removing")
