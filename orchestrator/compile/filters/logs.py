"""Packet filters' reports of rules with `log`: packet starts to NFLOG group `GROUP`.

    nftables   verdict ──▶ chain of the rule: limit of the tenant, log with the rule's comment; then the verdict
    iptables   a line of the same matches in front: hashlimit of the tenant, -j NFLOG with the rule's comment

Every tenant has one measure in each IP version, whatever the number of its rules, so its floods hide nobody else's
packets. Packets beyond it meet the same verdict, unreported. iptables keeps a measure by its name for as long as any
rule uses it, so the name says how much it is.
"""

from __future__ import annotations

from orchestrator.policy.loglimit import LogLimit

GROUP = 4720
"""The group of NFLOG that an enforcement point listens to in its network namespace."""
OCTETS = 128
"""So much of a packet is copied: its headers."""

_UNSAID_BURST = 5
_MICROSECONDS = 1_000_000


def measure(tenant: int) -> str:
    """The name of a tenant's measure in nftables (0: the operator's)."""
    return f"logs_{tenant}"


def limit_text(limit: LogLimit) -> str:
    """Return an nftables limit as nft lists it.

    It leaves out a burst of 5 packets.
    """
    burst = "" if limit.burst == _UNSAID_BURST else f" burst {limit.burst} packets"
    return f"rate {limit.rate}/second{burst}"


def nftables_rule(tenant: int, comment: str) -> str:
    """The rule that reports, without a verdict of its own."""
    return f'limit name "{measure(tenant)}" log prefix "{comment}" group {GROUP} snaplen {OCTETS}'


def iptables_words(tenant: int, limit: LogLimit, comment: str) -> str:
    """Return the words after the matches of a reporting line.

    iptables keeps whole microseconds between two packets, so rates above 1,000 become the next that it can say.
    """
    rate = _MICROSECONDS // (_MICROSECONDS // limit.rate)
    name = f"{measure(tenant)}_{rate}_{limit.burst}"
    upto = f"--hashlimit-upto {rate}/sec --hashlimit-burst {limit.burst} --hashlimit-name {name}"
    return f'-m hashlimit {upto} -j NFLOG --nflog-prefix "{comment}" --nflog-group {GROUP} --nflog-size {OCTETS}'
