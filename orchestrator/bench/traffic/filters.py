"""Packet filters of a line: iptables over either backend, nftables, or none, loaded afresh.

Both iptables backends get the same text, one line a rule, as the paper has it; our comments are left out, for they are
read by nobody here. The nftables script is loaded as it is shipped, with its counters.
"""

from __future__ import annotations

import enum
import re

from orchestrator.bench.traffic.line import MIDDLE, Line
from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.nftables import nftables_script
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Policy

_COMMENT = re.compile(r' -m comment --comment (?:"[^"]*"|\S+)')


class Filter(enum.Enum):
    """A packet filter in a kernel that routes; the value reads its text."""

    IPTABLES_LEGACY = "iptables-legacy"
    IPTABLES_NFT = "iptables-nft"
    NFTABLES = "nft"


def text_of(kind: Filter, policy: Policy) -> str:
    """Return the text of a filter for a policy."""
    if kind is Filter.NFTABLES:
        return nftables_script(policy)
    return drop_comments(iptables_texts(policy)[Family.IPV4])


def load(line: Line, kind: Filter, text: str) -> None:
    """Replace a filter's text in the middle's kernel.

    Raises Missing, Refused.
    """
    clear(line, kind)
    if kind is Filter.NFTABLES:
        line.run(MIDDLE, "nft", "-f", "-", text=text)
    else:
        line.run(MIDDLE, f"{kind.value}-restore", text=text)


def clear(line: Line, kind: Filter) -> None:
    """Take the packet filter away, so that everything passes."""
    if kind is Filter.NFTABLES:
        line.run(MIDDLE, "nft", "flush", "ruleset")
    else:
        text = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
        line.run(MIDDLE, f"{kind.value}-restore", text=text)


def drop_comments(text: str) -> str:
    """iptables lines without the comments that name their rules."""
    return _COMMENT.sub("", text)
