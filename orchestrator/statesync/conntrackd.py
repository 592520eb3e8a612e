"""conntrackd's configuration: how firewalls that track connections in the kernel share them.

A filter of nftables or iptables asks the kernel's table of connections. conntrackd tells the other firewalls of each
change in it, and writes what it hears straight into the kernel's table, so packets of a connection pass wherever they
come. Each filter still asks its list for the packet that opened the connection, so what a list forbids stays forbidden.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orchestrator.errors import BadInput

GROUP = "225.0.0.50"
PORT = 3780
MOST_CONNECTIONS = 262_144
RUN_DIR = Path("/run")

_INTERFACE = re.compile(r"[^\s/{}#]{1,15}")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class SharedTracking:
    """A firewall, the others that it shares its connections with, and the link between them.

    One other is told by datagrams that it confirms; several are told by multicast, and nobody confirms.

    `own`: further addresses of this firewall, whose connections are nobody else's. `most`: connections kept in memory.
    """

    address: _Address
    interface: str
    others: tuple[_Address, ...]
    own: tuple[_Address, ...] = ()
    port: int = PORT
    most: int = MOST_CONNECTIONS
    run_dir: Path = RUN_DIR

    @classmethod
    def read(
        cls, address: str, interface: str, others: Sequence[str], own: Sequence[str] = (), port: int = PORT
    ) -> Self:
        """Read what an operator says. Raises BadInput."""
        if not _INTERFACE.fullmatch(interface):
            raise BadInput(f"'{interface}' is not the name of an interface", place="--interface")
        this = _read_address(address, "--address")
        peers = tuple(_read_address(text, "--peer") for text in others)
        if not peers:
            raise BadInput("name at least one other firewall", place="--peer")
        if this in peers:
            raise BadInput(f"{this} is this firewall itself", place="--peer")
        if len(set(peers)) < len(peers):
            raise BadInput("a firewall is named twice", place="--peer")
        if any(peer.version != this.version for peer in peers):
            raise BadInput(f"a peer is of another IP version than {this}", place="--peer")
        if len(peers) > 1 and isinstance(this, ipaddress.IPv6Address):
            raise BadInput("conntrackd tells several others by multicast, and this over IPv4 only", place="--address")
        return cls(this, interface, peers, tuple(_read_address(text, "--own") for text in own), port)

    def text(self) -> str:
        """The file `conntrackd.conf`."""
        local = map(_read_address, ("127.0.0.1", "::1"))
        ignored = (f"            IPv{each.version}_address {each}\n" for each in (*local, self.address, *self.own))
        mode, transport = ("FTFW", _UNICAST) if len(self.others) == 1 else ("NOTRACK", _MULTICAST)
        return _FILE.format(
            mode=mode,
            transport=transport.format(
                version=self.address.version, address=self.address, other=self.others[0], group=GROUP, port=self.port,
                interface=self.interface,
            ),
            ignored="".join(ignored), most=self.most, buckets=self.most // 4, run_dir=self.run_dir,
        )  # fmt: skip


def _read_address(text: str, place: str | None = None) -> _Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise BadInput(f"'{text}' is not an address", place=place) from None


_UNICAST = """UDP {{
        IPv{version}_address {address}
        IPv{version}_Destination_Address {other}
        Port {port}
        Interface {interface}
        SndSocketBuffer 4194304
        RcvSocketBuffer 4194304
        Checksum on
    }}"""
_MULTICAST = """Multicast {{
        IPv4_address {group}
        Group {port}
        IPv4_interface {address}
        Interface {interface}
        SndSocketBuffer 4194304
        RcvSocketBuffer 4194304
        Checksum on
    }}"""
_FILE = """# Written by `aclflow firewall conntrackd`. Messages are not signed: the link belongs to the firewalls alone.
Sync {{
    Mode {mode} {{
        DisableExternalCache On
        StartupResync On
    }}
    {transport}
}}
General {{
    Systemd on
    Syslog on
    LogFile off
    HashSize {buckets}
    HashLimit {most}
    LockFile {run_dir}/conntrackd.lock
    UNIX {{
        Path {run_dir}/conntrackd.ctl
    }}
    NetlinkBufferSize 8388608
    NetlinkBufferSizeMaxGrowth 16777216
    NetlinkOverrunResync On
    Filter From Userspace {{
        Address Ignore {{
{ignored}        }}
    }}
}}
"""
