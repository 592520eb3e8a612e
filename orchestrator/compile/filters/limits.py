"""Limits of packet filters: reports of rules with `log`, and messages about path MTU.

Packet starts are reported to NFLOG group `GROUP`:

    nftables   verdict ──▶ chain of the rule: limit of the tenant, log with the rule's comment; then the verdict
    iptables   a line of the same matches in front: hashlimit of the tenant, -j NFLOG with the rule's comment

Packets beyond it meet the same verdict, unreported. Messages beyond their limit are dropped:

    nftables   verdict ──▶ chain of the row: limit of the tenant, accept; then drop
    iptables   two lines of the same matches: hashlimit of the tenant and ACCEPT; then DROP

Every tenant has one measure of each kind in each IP version, whatever the number of its rules, so its floods hide
nobody else's packets. iptables keeps a measure by its name for as long as any rule uses it, so the name says how much
it is.
"""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.policy.loglimit import USUAL, LogLimit
from orchestrator.policy.model import PATH_MTU_RATE, Policy

GROUP = 4720
"""The group of NFLOG that an enforcement point listens to in its network namespace."""
OCTETS = 128
"""So much of a packet is copied: its headers."""

_UNSAID_BURST = 5
_MICROSECONDS = 1_000_000


class Limits(NamedTuple):
    """A tenant's measures: of reports, and of messages about path MTU a second."""

    log: LogLimit = USUAL
    path_mtu_rate: int = PATH_MTU_RATE

    @classmethod
    def of_policy(cls, policy: Policy) -> Limits:
        return cls(policy.log_limit, policy.path_mtu_rate)


def reports_measure(tenant: int) -> str:
    """The name of a tenant's measure of reports in nftables (0: the operator's)."""
    return f"logs_{tenant}"


def messages_measure(tenant: int) -> str:
    """The name of a tenant's measure of messages about path MTU in nftables."""
    return f"path_mtu_{tenant}"


# ---------------------------------------------------------------------------------------------------------- nftables


def limit_text(rate: int, burst: int) -> str:
    """Return an nftables limit as nft lists it.

    It leaves out a burst of 5 packets.
    """
    said = "" if burst == _UNSAID_BURST else f" burst {burst} packets"
    return f"rate {rate}/second{said}"


def nftables_report(tenant: int, comment: str) -> str:
    """The rule that reports, without a verdict of its own."""
    return f'limit name "{reports_measure(tenant)}" log prefix "{comment}" group {GROUP} snaplen {OCTETS}'


def nftables_messages(tenant: int) -> list[str]:
    """The rules that decide messages about path MTU."""
    return [f'limit name "{messages_measure(tenant)}" accept', "drop"]


# ---------------------------------------------------------------------------------------------------------- iptables


def iptables_report(tenant: int, limit: LogLimit, comment: str) -> str:
    """Return the words after the matches of a reporting line.

    iptables keeps whole microseconds between two packets, so rates above 1,000 become the next that it can say.
    """
    rate = _MICROSECONDS // (_MICROSECONDS // limit.rate)
    measure = _match_hashlimit(reports_measure(tenant), rate, limit.burst)
    return f'{measure} -j NFLOG --nflog-prefix "{comment}" --nflog-group {GROUP} --nflog-size {OCTETS}'


def iptables_messages(tenant: int, rate: int) -> str:
    """The match of a line that lets messages about path MTU pass."""
    said = sayable_rate(rate)
    return _match_hashlimit(messages_measure(tenant), said, said)


def sayable_rate(rate: int) -> int:
    """Return the highest rate that iptables can say, up to some rate."""
    between_us = _MICROSECONDS // rate
    return _MICROSECONDS // (between_us + (_MICROSECONDS // between_us > rate))


def _match_hashlimit(name: str, rate: int, burst: int) -> str:
    options = f"--hashlimit-upto {rate}/sec --hashlimit-burst {burst} --hashlimit-name {name}_{rate}_{burst}"
    return f"-m hashlimit {options}"
