"""The comment of a filter's line or element, which names its counter.

A flow entry says it in its cookie (`cookies.py`); iptables and nftables keep a comment beside every counter instead, in
words that a reader of a dump understands: ``rule 17``, ``ingress-default 3``. The same rule may stand in several
places; its hits are the sum over all of them.
"""

from __future__ import annotations

from orchestrator.compile.cookies import HIGHEST_NUMBER, Kind

_COUNTED = (
    Kind.RULE, Kind.OPERATOR_RULE, Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT, Kind.INGRESS_RETURN, Kind.EGRESS_RETURN,
)  # fmt: skip
_WORDS: dict[Kind, str] = {kind: kind.name.lower().replace("_", "-") for kind in _COUNTED}
_KINDS = {word: kind for kind, word in _WORDS.items()}


def comment(kind: Kind, number: int) -> str:
    """The comment of a rule's, a default's or return traffic's counter."""
    return f"{_WORDS[kind]} {number}"


def read_comment(text: str) -> tuple[Kind, int] | None:
    """Take a comment apart; None if it is not one of ours."""
    word, _, digits = text.partition(" ")
    if word not in _KINDS or not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(HIGHEST_NUMBER))):
        return None
    number = int(digits)
    return (_KINDS[word], number) if number <= HIGHEST_NUMBER and comment(_KINDS[word], number) == text else None
