"""Is there a packet in a box that nothing rules out?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.policy.model import Packet
from orchestrator.policy.space.box import Box


def find_uncovered(box: Box, covers: Sequence[Box]) -> Packet | None:
    """A packet of `box` that none of `covers` holds; None if together they cover it."""
    return search(box, lambda packet: next((cover for cover in covers if cover.holds(packet)), None))


def search(box: Box, ruled_out: Callable[[Packet], Box | None]) -> Packet | None:
    """A packet of `box` for which `ruled_out` gives no box; None if there is none.

    `ruled_out` gives a box that holds the packet it is asked about and nothing that is searched for. Depth first, led
    by packets: take a packet of what is left, cut away the box that rules it out, go on with the pieces. Where there is
    something to find, the first packets find it; only a search in vain pays for all the pieces.
    """
    pieces = [box]
    while pieces:
        piece = pieces.pop()
        packet = piece.witness()
        cut = ruled_out(packet)
        if cut is None:
            return packet
        pieces += reversed(piece.minus(cut))
    return None
