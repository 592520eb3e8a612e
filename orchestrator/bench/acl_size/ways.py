"""The ways in which a list is enforced: one line each in the plots."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.bench.traffic.addresses import Clients
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.rules import Listed, Position


@dataclass(frozen=True, slots=True)
class Way:
    """A way: its family (same speed without rules), the deciding rule's place, the requests."""

    family: str
    position: Position = Position.LAST
    clients: Clients = Clients.ONE

    def __str__(self) -> str:
        if self.family in LINEAR:
            return f"{self.family}, {self.position.value} match"
        return self.family if self.clients is Clients.ONE else f"{self.family}, many clients"

    def load_list(self, rules: int) -> Listed:
        return Listed(rules, self.position)

    def name_of_run(self, rules: int) -> str:
        """Under which name it is recorded: without rules there is no position to speak of."""
        return str(self) if rules else self.family


LINEAR = (Filter.IPTABLES_LEGACY.value, Filter.IPTABLES_NFT.value)
MAPS = "nftables maps"
VNF_ACL, VNF_ACL_AF_XDP, VNF_ACL_LIBC = "VNF-ACL", "VNF-ACL on AF_XDP", "VNF-ACL with the C library's malloc"

FAMILIES = {
    Filter.IPTABLES_LEGACY: Filter.IPTABLES_LEGACY.value,
    Filter.IPTABLES_NFT: Filter.IPTABLES_NFT.value,
    Filter.NFTABLES: MAPS,
}
KERNEL_WAYS = (*(Way(family, position) for position in Position for family in LINEAR), Way(MAPS))
SWITCH_WAYS = (Way(VNF_ACL), Way(VNF_ACL, clients=Clients.OUTSIDE))
AF_XDP_WAYS = (Way(VNF_ACL_AF_XDP), Way(VNF_ACL_AF_XDP, clients=Clients.OUTSIDE))

LAST_MATCH = Way(LINEAR[0])
"""The paper's worst case, in the faster of iptables' two backends."""
