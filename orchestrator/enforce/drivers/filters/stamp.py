"""The stamp as words inside a rule set: ``generation 17 digest 00112233445566778899aabbccddeeff``.

It stands in the comment of a rule that no packet meets, in a chain of its own that is written in the same transaction
as all the rest.
"""

from __future__ import annotations

import re

from orchestrator.enforce.driver import Stamp
from orchestrator.program.canonical import DIGEST_BYTES

_WORDS = re.compile(rf"generation (\d{{1,19}}) digest ([0-9a-f]{{{2 * DIGEST_BYTES}}})\Z")


def stamp_words(stamp: Stamp) -> str:
    """The stamp as a comment."""
    return f"generation {stamp.generation} digest {stamp.digest.hex()}"


def read_stamp(words: str) -> Stamp | None:
    """The stamp of a comment; None if it is not one."""
    found = _WORDS.match(words)
    return Stamp(int(found[1]), bytes.fromhex(found[2])) if found else None
