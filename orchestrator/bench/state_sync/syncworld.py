"""A client, a server, and firewalls between them in namespaces, with movable routes.

client ──c──▶ member 1 ──s──▶ server        each member has a link to both, and one (x) to the members' own network:
client ──c──▶ member 2 ──s──▶ server        a bridge, a router where members are not neighbours, or a cable (x1, x2 ...)
                                            to every other member
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import TypeVar

from orchestrator.bench.traffic.downloads import Ends
from orchestrator.errors import Unreachable
from orchestrator.lab import namespaces

Result = TypeVar("Result")

CLIENT, SERVER, MIDDLE = "c", "s", "x"
CLIENT4, SERVER4 = "10.10.0.1", "10.20.0.1"
CLIENT6, SERVER6 = "fd00:10::1", "fd00:20::1"
ENDS = Ends(CLIENT, SERVER, SERVER4)
"""The ends of downloads through the members."""
DATA = ("c", "s")
_PATIENCE_S = 20.0
_FORWARDING = {
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv6/conf/all/accept_dad": "0",
    "net/ipv6/conf/default/accept_dad": "0",
}

MEMBERS = (3, 6, 9)
"""Sizes of the cluster (paper, *Cluster Sizes*)."""
AT_ONCE = (25, 100)
"""Downloads at once (paper, *Methodology*)."""
ALONE = 1
"""One download after the other: what a held packet adds is not hidden behind others."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """`runs` of `downloads` each for every setting; `failovers` and as many scalings, with `connections` open."""

    runs: int
    downloads: int
    failovers: int
    connections: int

    @classmethod
    def full(cls) -> Sizes:
        """The paper's: 10 runs of 10,000 downloads."""
        return cls(10, 10_000, 10, 10_000)

    @classmethod
    def quick(cls) -> Sizes:
        """Return sizes of a shorter run with every setting."""
        return cls(5, 1500, 3, 10_000)


class Between(Enum):
    """The members' own network."""

    BRIDGE = "bridge"
    ROUTER = "router"
    CABLES = "cables"
    """A cable for each pair: a message costs this machine one virtual cable, and no bridge."""


class World:
    """The namespaces. Use it with `with`; `via` moves all traffic to a member."""

    def __init__(self, members: int, prefix: str = "ss-", *, between: Between = Between.BRIDGE) -> None:
        self.members = range(1, members + 1)
        self._prefix = prefix
        self._between = between

    def __enter__(self) -> World:
        namespaces.need_root()
        self._remove_namespaces()
        for name in self._list_names():
            namespaces.create(self.namespace(name))
            self.inside(name, lambda: namespaces.set_kernel(_FORWARDING))
        self._batch([line for member in self.members for line in self._write_member_commands(member)])
        ends = ((CLIENT, CLIENT4, CLIENT6), (SERVER, SERVER4, SERVER6))
        for end, four, six in ends:
            self.ip(end, ["link set lo up", f"addr add {four}/32 dev lo", f"addr add {six}/128 dev lo nodad"])
        if self._between is Between.BRIDGE:
            bridge = ["link add name bridge0 type bridge", "link set bridge0 up"]
            self.ip(MIDDLE, bridge + [f"link set m{member} master bridge0" for member in self.members])
        for member in self.members:
            self._wait_passing(member)
        self.via(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_namespaces()

    def namespace(self, name: str | int) -> str:
        """The namespace of the client, the server, the middle, or a member by its number."""
        return f"{self._prefix}{name}"

    def inside(self, name: str | int, call: Callable[[], Result]) -> Result:
        """Run `call` in one of the namespaces and return its result."""
        return namespaces.inside(self.namespace(name), call)

    def ip(self, name: str | int, lines: Sequence[str]) -> None:
        """Run `ip` with some lines in a namespace."""
        command = ["ip", "-n", self.namespace(name), "-batch", "-"]
        subprocess.run(command, input="\n".join(lines), text=True, check=True)

    def run(self, name: str | int, *command: str, text: str | None = None) -> str:
        """The output of a command in a namespace."""

        def run_command() -> str:
            return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

        return self.inside(name, run_command)

    def via(self, member: int) -> None:
        """Send the traffic of both directions through a member, new and old connections."""
        self.ip(
            CLIENT,
            [
                f"route replace {SERVER4} via 10.1.{member}.1 src {CLIENT4}",
                f"route replace {SERVER6} via fd01:{member}::1 src {CLIENT6}",
            ],
        )
        self.ip(
            SERVER,
            [
                f"route replace {CLIENT4} via 10.2.{member}.1 src {SERVER4}",
                f"route replace {CLIENT6} via fd02:{member}::1 src {SERVER6}",
            ],
        )

    def _wait_passing(self, member: int) -> None:
        """Return when both families pass a member: new IPv6 addresses take a second. Raises Unreachable."""
        self.via(member)
        until = time.monotonic() + _PATIENCE_S
        for address in (SERVER4, SERVER6):
            ping = ["ip", "netns", "exec", self.namespace(CLIENT), "ping", "-c", "1", "-W", "0.2", address]
            while subprocess.call(ping, stdout=subprocess.DEVNULL):
                if time.monotonic() > until:
                    raise Unreachable(f"{address} does not answer through member {member}")

    def address(self, member: int) -> str:
        """A member's address in the members' own network."""
        return f"10.9.{member}.1" if self._between is Between.ROUTER else f"10.9.0.{member}"

    def messages(self, member: int) -> tuple[str, ...]:
        """The interfaces by which other members' messages come to a member."""
        if self._between is not Between.CABLES:
            return (MIDDLE,)
        return tuple(f"{MIDDLE}{other}" for other in self.members if other != member)

    def dialler(self, member: int) -> Callable[[str, int, str], socket.socket]:
        """Return a function that connects from a member's namespace in any thread."""

        def dial(address: str, port: int, own: str) -> socket.socket:
            return self.inside(
                member, lambda: socket.create_connection((address, port), timeout=1, source_address=(own, 0))
            )

        return dial

    def _list_names(self) -> tuple[str, ...]:
        return (CLIENT, SERVER, MIDDLE, *map(str, self.members))

    def _write_member_commands(self, member: int) -> list[str]:
        mine = self.namespace(member)
        lines = []
        for end, network in ((CLIENT, 1), (SERVER, 2)):
            other = self.namespace(end)
            lines += [
                f"link add {end} netns {mine} type veth peer name m{member} netns {other}",
                f"-n {mine} addr add 10.{network}.{member}.1/24 dev {end}",
                f"-n {other} addr add 10.{network}.{member}.2/24 dev m{member}",
                f"-n {mine} addr add fd0{network}:{member}::1/64 dev {end} nodad",
                f"-n {other} addr add fd0{network}:{member}::2/64 dev m{member} nodad",
                f"-n {mine} link set {end} up",
                f"-n {other} link set m{member} up",
            ]
        lines += [
            f"-n {mine} route add {CLIENT4} via 10.1.{member}.2",
            f"-n {mine} route add {SERVER4} via 10.2.{member}.2",
            f"-n {mine} route add {CLIENT6} via fd01:{member}::2",
            f"-n {mine} route add {SERVER6} via fd02:{member}::2",
            f"-n {mine} link set lo up",
        ]
        return lines + (self._cables(member) if self._between is Between.CABLES else self._network(member))

    def _network(self, member: int) -> list[str]:
        """A member's link to the middle."""
        mine, middle = self.namespace(member), self.namespace(MIDDLE)
        lines = [
            f"link add {MIDDLE} netns {mine} type veth peer name m{member} netns {middle}",
            f"-n {mine} link set {MIDDLE} up",
            f"-n {middle} link set m{member} up",
            f"-n {mine} addr add {self.address(member)}/24 dev {MIDDLE}",
        ]
        if self._between is Between.ROUTER:
            lines += [
                f"-n {middle} addr add 10.9.{member}.254/24 dev m{member}",
                f"-n {mine} route add 10.9.0.0/16 via 10.9.{member}.254",
            ]
        return lines

    def _cables(self, member: int) -> list[str]:
        """A member's cables to those before it."""
        mine = self.namespace(member)
        lines = [f"-n {mine} addr add {self.address(member)}/32 dev lo"]
        for other in range(1, member):
            theirs = self.namespace(other)
            lines += [
                f"link add {MIDDLE}{other} netns {mine} type veth peer name {MIDDLE}{member} netns {theirs}",
                f"-n {mine} link set {MIDDLE}{other} up",
                f"-n {theirs} link set {MIDDLE}{member} up",
                f"-n {mine} route add {self.address(other)} dev {MIDDLE}{other} src {self.address(member)}",
                f"-n {theirs} route add {self.address(member)} dev {MIDDLE}{member} src {self.address(other)}",
            ]
        return lines

    def _batch(self, lines: Sequence[str]) -> None:
        """Lines of `ip`; those that begin with -n are of a namespace."""
        for line in lines:
            subprocess.run(["ip", *line.split()], check=True)

    def _remove_namespaces(self) -> None:
        for name in (CLIENT, SERVER, MIDDLE, *map(str, range(1, 16))):
            namespaces.remove(self.namespace(name))
