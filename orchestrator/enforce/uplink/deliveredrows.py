"""The endpoints that a switch delivers to, read back from its table `local`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.compile.cookies import MARK
from orchestrator.compile.pipelines.host import OUTPUT_PORT, Table
from orchestrator.hosts.ovs import LocalSwitch
from orchestrator.policy.addresses import Prefix

_COOKIE = re.compile(r"\bcookie=0x([0-9a-f]+)")
_DESTINATION = re.compile(r"[, ](?:nw_dst|ipv6_dst)=([^, ]+)")
_DELIVERS = re.compile(rf"set_field:(\w+)->{OUTPUT_PORT.field.name}\b")


def delivered_prefixes(lines: Iterable[str]) -> dict[Prefix, int]:
    """Return the prefixes of local endpoints, each with its port, from printed rows.

    A row that aclflow did not write delivers to nobody of ours. The prefix of all addresses is left out: it is a
    router's, and nothing to be announced.
    """
    found = {}
    for line in lines:
        cookie, destination = _COOKIE.search(line), _DESTINATION.search(line)
        if cookie is None or destination is None or int(cookie[1], 16) >> 56 != MARK:
            continue
        delivers = _DELIVERS.search(line.partition("actions=")[2])
        if delivers is not None:
            found[Prefix.parse(destination[1])] = int(delivers[1], 0)
    return found


@dataclass(frozen=True, slots=True)
class SwitchRows:
    """The switch of this machine, seen through its table `local`."""

    switch: LocalSwitch
    bridge: str

    def read(self) -> dict[Prefix, int]:
        """Read the table back: prefixes, each with the port that it is delivered to.

        Raises Unreachable while the switch does not answer, Missing where there is none.
        """
        return delivered_prefixes(self.switch.flows(self.bridge, Table.LOCAL))

    def count_received(self) -> dict[int, int]:
        """Count the frames that came in by each port. Raises what `read` raises."""
        return self.switch.count_received(self.bridge)
