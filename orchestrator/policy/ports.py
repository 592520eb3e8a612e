"""Transport ports: ranges, their cover by value/mask pairs, and names such as ``ssh`` or ``ms-sql``.

The names are a table of our own, of IANA's registry and of what people type beside it. A machine's ``/etc/services``
differs from machine to machine, and a list must mean the same wherever it is read. A name is read as its port at once:
lists hold numbers, and a later edit of this table changes no list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.errors import BadInput

HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Ports `low`..`high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        for port in (self.low, self.high):
            if not 0 <= port <= HIGHEST_PORT:
                raise BadInput(f"port {port} is not in 0..{HIGHEST_PORT}")
        if self.low > self.high:
            raise BadInput(f"port range {self.low}-{self.high} is empty: the lower end is above the upper end")

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Read ``80`` or ``1024-65535``. Raises BadInput."""
        low, dash, high = text.partition("-")
        ends = (low, high) if dash else (low, low)
        if not all(end.isascii() and end.isdigit() and len(end) <= 9 for end in ends):
            raise BadInput(f"'{text}' is not a port or a range of ports")
        return cls(int(ends[0]), int(ends[1]))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


EVERY_PORT = (PortRange(0, HIGHEST_PORT),)


def normalise_ranges(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """The same ports as sorted, disjoint, non-adjacent ranges."""
    merged: list[PortRange] = []
    for item in sorted(ranges):
        if merged and item.low <= merged[-1].high + 1:
            merged[-1] = PortRange(merged[-1].low, max(merged[-1].high, item.high))
        else:
            merged.append(item)
    return tuple(merged)


def masks(ports: PortRange) -> tuple[tuple[int, int], ...]:
    """Return the fewest 16-bit (value, mask) pairs for exactly a range, ascending.

    At most 30 for any range of 16-bit ports (2w - 2 for w bits).
    """
    pairs = []
    low = ports.low
    while low <= ports.high:
        size = low & -low or HIGHEST_PORT + 1
        while low + size - 1 > ports.high:
            size >>= 1
        pairs.append((low, HIGHEST_PORT + 1 - size))
        low += size
    return tuple(pairs)


_TABLE = """
    ftp-data 20, ftp 21, ssh 22, telnet 23, smtp 25, domain 53, dns 53, bootps 67, bootpc 68, tftp 69, http 80,
    kerberos 88, pop3 110, sunrpc 111, ident 113, nntp 119, ntp 123, epmap 135, msrpc 135, netbios-ns 137,
    netbios-dgm 138, netbios-ssn 139, imap 143, snmp 161, snmptrap 162, bgp 179, irc 194, ldap 389, https 443,
    microsoft-ds 445, smb 445, kpasswd 464, submissions 465, smtps 465, isakmp 500, ike 500, syslog 514, printer 515,
    submission 587, ipp 631, ldaps 636, rsync 873, ftps 990, imaps 993, pop3s 995, socks 1080, openvpn 1194,
    ms-sql 1433, ms-sql-s 1433, mssql 1433, ms-sql-m 1434, oracle 1521, l2tp 1701, pptp 1723, radius 1812,
    radius-acct 1813, mqtt 1883, nfs 2049, etcd-client 2379, etcd-server 2380, iscsi 3260, iscsi-target 3260,
    mysql 3306, ms-wbt-server 3389, rdp 3389, stun 3478, svn 3690, ipsec-nat-t 4500, vxlan 4789, sip 5060, sips 5061,
    xmpp-client 5222, xmpp-server 5269, postgresql 5432, postgres 5432, amqps 5671, amqp 5672, vnc 5900, winrm 5985,
    winrms 5986, x11 6000, geneve 6081, redis 6379, kubernetes 6443, ovsdb 6640, openflow 6653, syslog-tls 6514,
    http-alt 8080, https-alt 8443, secure-mqtt 8883, prometheus 9090, kafka 9092, elasticsearch 9200, git 9418,
    zabbix-agent 10050, zabbix-trapper 10051, memcached 11211, mongodb 27017, wireguard 51820
"""

PORTS: Mapping[str, int] = MappingProxyType(
    {name: int(port) for name, _, port in (entry.strip().partition(" ") for entry in _TABLE.split(","))}
)
"""The port of each name."""


def parse_ports(text: str) -> PortRange:
    """Read a port, a range, or the name of a well-known port. Raises BadInput."""
    port = PORTS.get(text.lower())
    return PortRange.parse(text) if port is None else PortRange(port, port)
