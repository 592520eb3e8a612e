"""Whole packets in ip6tables: one line for unfragmented packets, one for first fragments.

ip6tables finds the protocol of a later fragment too, so `-p esp` alone matches them, and it has no match for "not a
later fragment": together these two lines say it.
"""

from __future__ import annotations

from orchestrator.policy.formats.iptables.quoting import Quoted

UNFRAGMENTED = ("-m", "ipv6header", "!", "--header", "ipv6-frag", "--soft")
FIRST_FRAGMENT = ("-m", "frag", "--fragfirst")


def for_whole_packets(one: list[str], other: list[str]) -> list[str] | None:
    """Return the words of the single line that two lines are equal to, or None.

    The result starts with ``! -f``, which reads as "no later fragments" in either IP version.
    """
    for first, second in ((UNFRAGMENTED, FIRST_FRAGMENT), (FIRST_FRAGMENT, UNFRAGMENTED)):
        rest = _leave_out(one, first)
        if rest is not None and rest == _leave_out(other, second):
            return ["!", "-f", *rest]
    return None


def _leave_out(words: list[str], part: tuple[str, ...]) -> list[str] | None:
    size = len(part)
    for start in range(len(words) - size + 1):
        found = words[start : start + size]
        if tuple(found) == part and not any(isinstance(word, Quoted) for word in found):
            return words[:start] + words[start + size :]
    return None
