"""Prove that no packet reaches the WAN directly through an edge without a rule.

The claim
    A row of the program sends packets to the WAN only in table `heavy`, and a row there does so only with packets that
    a line of the receiver's composed list decides, and permits. Other rows of the table hold packets of lines that
    deny, and pass them on. So whatever goes past the firewall servers is what they would have let pass.

That is what rows ahead of lists are held to on hosts (`liftedproof.py`), in another place: the same proof reads these
rows. Packets that come from outside with a tenant's address are dropped before; without that, the sender's egress list
would have had a say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.equivalence.items import decode
from orchestrator.compile.equivalence.liftedproof import Ahead, LiftedProof, Row, packets_of, receiver
from orchestrator.compile.equivalence.lines import Line
from orchestrator.compile.lifting.edgeheavy import PASSED_ON, TO_WAN
from orchestrator.compile.openflow.instructions import output
from orchestrator.compile.pipelines.edge import EdgeTable
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Direction, Policy
from orchestrator.program.flows import SYMBOL_BASE, FlowTable
from orchestrator.program.program import Tier

_OUT = output(SYMBOL_BASE)


def _does(line: Line, _: Direction) -> bytes:
    return TO_WAN if line.permits else PASSED_ON


def _read(policy: Policy, flows: FlowTable) -> Iterator[Row]:
    """Yield rows of table `heavy` read from their bytes.

    Raises NotEquivalent for one that is not in its place.
    """
    decoded = decode(flows)
    for place, flow in enumerate(flows.rows()):
        cookie = Cookie.unpack(flow.cookie)
        if cookie is None or cookie.tier is not Tier.EDGE or np.count_nonzero(decoded.registers[place]["mask"]):
            raise NotEquivalent(f"the entry of cookie {flow.cookie:#x} is not a heavy hitter's", place="heavy")
        box = packets_of(flow, decoded.items[place])
        claimed = replace(flow, cookie=replace(cookie, tier=Tier.HOST).pack())
        yield Row(claimed, receiver(policy, box, flow), Direction.INGRESS, box)


AT_THE_EDGE = Ahead(_read, _does)


class EdgeProof:
    """The proven heavy hitters of an edge, so that only changes are proven again.

    For one thread at a time.
    """

    def __init__(self) -> None:
        self._proof: LiftedProof | None = None
        self._shown = FlowTable.of(())

    def check(self, policy: Policy, heavy: FlowTable, program: FlowTable | None) -> None:
        """Prove a program whose heavy hitters have the rows `heavy`. Raises NotEquivalent.

        None: the program that was proven last, for another policy.
        """
        if program is not None:
            _check_ways(heavy, program)
        if self._proof is None:
            self._proof = LiftedProof.of(policy, heavy, AT_THE_EDGE)
        else:
            before, after = self._shown.rows(), heavy.rows()
            removed, added = set(before) - set(after), set(after) - set(before)
            self._proof = self._proof.after(policy, FlowTable.of(removed), FlowTable.of(added))
        self._shown = heavy


def _check_ways(heavy: FlowTable, program: FlowTable) -> None:
    """Nothing but a heavy hitter leads to the WAN. Raises NotEquivalent."""
    leading = [number for number, what in enumerate(program.instruction_set) if _OUT in what]
    to_wan = program.take(np.isin(program.instructions, leading))
    known = set(heavy.keys())
    for flow in to_wan.rows():
        if flow.table != EdgeTable.HEAVY or flow.key not in known:
            raise NotEquivalent(f"the entry of cookie {flow.cookie:#x} leads past the firewall servers", place="edge")
