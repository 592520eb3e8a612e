"""The WAN's end: packets and bytes of attacks and of permitted traffic, by port."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from orchestrator.bench.pop.links import WAN, Links
from orchestrator.bench.pop.world import ATTACKED_PORT, PERMITTED_PORT
from orchestrator.errors import Missing, Refused

_KINDS = {"attack": ATTACKED_PORT, "permitted": PERMITTED_PORT}
_TABLE = "aclbench"


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets and bytes, with their IP headers."""

    packets: int
    bytes: int

    def since(self, before: Counted) -> Counted:
        """Return what was counted since an earlier count."""
        return Counted(self.packets - before.packets, self.bytes - before.bytes)


@dataclass(frozen=True, slots=True)
class Arrived:
    """The arrivals so far."""

    attack: Counted
    permitted: Counted

    def since(self, before: Arrived) -> Arrived:
        """Return what arrived since an earlier count."""
        return Arrived(self.attack.since(before.attack), self.permitted.since(before.permitted))


class Wan:
    """The WAN's end of a point of presence.

    It counts arrivals before its kernel looks at them.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        counters = "\n".join(f"counter {name} {{ }}" for name in _KINDS)
        rules = "\n".join(f'udp dport {port} counter name "{name}"' for name, port in _KINDS.items())
        hook = "type filter hook prerouting priority raw; policy accept;"
        self._run_nft(text=f"table inet {_TABLE} {{\n{counters}\nchain arriving {{ {hook}\n{rules}\n}}\n}}\n")

    def count_arrived(self) -> Arrived:
        """Count everything that has arrived so far."""
        document = json.loads(self._run_nft("-j", "list", "counters", "table", "inet", _TABLE))
        found = {
            each["counter"]["name"]: Counted(each["counter"]["packets"], each["counter"]["bytes"])
            for each in document["nftables"]
            if "counter" in each
        }
        return Arrived(found["attack"], found["permitted"])

    def _run_nft(self, *arguments: str, text: str = "") -> str:
        command = ["nft", *(arguments or ("-f", "-"))]
        try:
            done = self._links.inside(
                WAN, lambda: subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            )
        except FileNotFoundError:
            raise Missing("there is no program 'nft' here: apt-get install nftables") from None
        if done.returncode:
            raise Refused(f"nft: {done.stderr.strip()[:500]}")
        return done.stdout
