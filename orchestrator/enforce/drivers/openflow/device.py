"""A switch for the loop: the OpenFlow driver, which becomes master before it writes."""

from __future__ import annotations

from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.messages import Role

CLAIM_TIMEOUT_S = 5.0

ROLE_REFUSED, STALE_EPOCH = 11, 0
"""Type and code of the error that answers a role request older than one that the switch has granted."""


class Switch(OpenFlowDriver):
    """One switch over one connection."""

    def claim(self, epoch: int) -> bool:
        """Become the switch's master. False when a controller with a later epoch was.

        A switch that refuses this leaves us its equal, whose writes it would take: without this answer, nothing may be
        written. Raises Refused when the switch cannot do what programs need, Unreachable.
        """
        xids = self.channel.reserve(2)
        request = messages.role_request(xids[0], Role.MASTER, epoch) + messages.barrier_request(xids[1])
        answers = self.channel.exchange(request, xids, timeout_s=CLAIM_TIMEOUT_S)
        for error in messages.errors_in(answers):
            if error.type == ROLE_REFUSED and error.code == STALE_EPOCH:
                return False
        self.start(epoch)
        return True
