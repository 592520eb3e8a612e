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
_DELIVERS = f"->{OUTPUT_PORT.field.name}"


def delivered_prefixes(lines: Iterable[str]) -> frozenset[Prefix]:
    """The prefixes of local endpoints, from rows as `ovs-ofctl dump-flows` prints them.

    A row that aclflow did not write delivers to nobody of ours. The prefix of all addresses is left out: it is a
    router's, and nothing to be announced.
    """
    found = set()
    for line in lines:
        cookie, destination = _COOKIE.search(line), _DESTINATION.search(line)
        if cookie is None or destination is None or int(cookie[1], 16) >> 56 != MARK:
            continue
        if _DELIVERS in line.partition("actions=")[2]:
            found.add(Prefix.parse(destination[1]))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class SwitchRows:
    """The switch of this machine, seen through its table `local`."""

    switch: LocalSwitch
    bridge: str

    def read(self) -> frozenset[Prefix]:
        """Read the table back.

        Raises Unreachable while the switch does not answer, Missing where there is none.
        """
        return delivered_prefixes(self.switch.flows(self.bridge, Table.LOCAL))
