"""Open Virtual Network as a baseline, with its own databases, daemons and Open vSwitch.

    one OVSDB transaction ──▶ northbound ──▶ ovn-northd ──▶ southbound ──▶ ovn-controller ──▶ br-int
    `hv_cfg` has followed `nb_cfg` ◀────────────────────────────────────────────────────────────┘

Rules go into the northbound database in one transaction over its socket, without a client program, and the clock stops
when every hypervisor (there is one) has said that its switch holds them: what `ovn-nbctl --wait=hv` waits for.

Where it could be done in several ways it is the one that is best for OVN: its processes run before the clock starts, no
program is started for a change, rules are of the logical switch (of a port group they become more flows), and its
databases do not sync to the disk, which ours does. Its hypervisor reads nothing back; that its switch has answered a
barrier is enough.

A rule that permits is `allow-related` where the domain admits return traffic or tracks connections, as the rules of
Neutron's security groups are, and `allow-stateless` where a list says itself which answers may come (`ReturnTraffic`).
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.bench.benchlab import resident_mib
from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.lab import processes
from orchestrator.lab.bridges import EDGE_BRIDGE
from orchestrator.lab.ovs import answers, run_program
from orchestrator.lab.pop import Lab
from orchestrator.lab.processes import Process
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Acl, Action, ReturnTraffic, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange

HIGHEST_PRIORITY = 32767
"""Of an ACL of OVN's; every rule of a list takes one, so that is how long a list may be."""

SWITCH = "tenant"
_SCHEMAS = {"nb": Path("/usr/share/ovn/ovn-nb.ovsschema"), "sb": Path("/usr/share/ovn/ovn-sb.ovsschema")}
_PATIENCE_S = 120.0
_POLL_S = 0.001
_PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp"}
_PERMIT = {
    ReturnTraffic.ESTABLISHED: "allow-related",
    ReturnTraffic.TRACKED: "allow-related",
    ReturnTraffic.EXPLICIT: "allow-stateless",
}


@dataclass(frozen=True, slots=True)
class LogicalPort:
    """A port of OVN's logical switch: its own interface, or one of the lab's edge.

    `address` is what OVN calls one: the MAC and the IP address of who is behind it. Without one nobody is.
    """

    name: str
    address: str = ""


_NOBODYS = (LogicalPort("ovn1"), LogicalPort("ovn2"))


@contextmanager
def ovn(lab: Lab, returns: ReturnTraffic, ports: Sequence[LogicalPort] = _NOBODYS) -> Iterator[Ovn]:
    """Run OVN in a lab's namespace for switches.

    Raises Missing where it is not installed.
    """
    folder = lab.layout.run_dir / "ovn"
    if not _SCHEMAS["nb"].exists():
        raise Missing("OVN is not installed: apt-get install ovn-central ovn-host")
    folder.mkdir(mode=0o700)
    site = _Site(folder, lab, ports)
    try:
        site.start()
        yield Ovn(_Database(folder / "nb.sock", "OVN_Northbound"), site, returns)
    finally:
        processes.stop(site.running)


@dataclass(slots=True)
class _Site:
    """OVN's processes, and the switch they program."""

    folder: Path
    lab: Lab
    ports: Sequence[LogicalPort]
    running: list[Process] = field(default_factory=list)

    def start(self) -> None:
        """Everything, with the ports of one logical switch bound here."""
        for name, schema in _SCHEMAS.items():
            run_program(["ovsdb-tool", "create", str(self.folder / f"{name}.db"), str(schema)])
            self._spawn_program(
                "ovsdb-server", name, str(self.folder / f"{name}.db"), f"--remote=punix:{self._find_socket(name)}"
            )
            _until(partial(answers, self._find_socket(name)), f"{name} does not listen")
        remotes = {name: f"unix:{self._find_socket(name)}" for name in _SCHEMAS}
        self._spawn_program("ovn-northd", "northd", f"--ovnnb-db={remotes['nb']}", f"--ovnsb-db={remotes['sb']}")
        switch = self.lab.ovs
        switch.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev", "fail_mode=secure")
        switch.vsctl("set", "Open_vSwitch", ".", "external_ids:system-id=bench", "external_ids:ovn-encap-type=geneve",
                     "external_ids:ovn-encap-ip=127.0.0.1", f"external_ids:ovn-remote={remotes['sb']}")  # fmt: skip
        for port in self.ports:
            moved = ("del-port", EDGE_BRIDGE, port.name, "--") if port.address else ()
            kind = () if port.address else ("type=internal",)
            switch.vsctl(*moved, "add-port", "br-int", port.name, "--", "set", "interface", port.name, *kind,
                         f"external_ids:iface-id={port.name}")  # fmt: skip
        self._spawn_program("ovn-controller", "ovn-controller", f"unix:{switch.run_dir / 'db.sock'}")
        self._until_a_chassis()

    def _until_a_chassis(self) -> None:
        """Wait until ovn-controller has registered its chassis."""
        southbound = _Database(self._find_socket("sb"), "OVN_Southbound")
        asked = {"op": "select", "table": "Chassis", "where": [], "columns": ["name"]}
        _until(lambda: bool(southbound.transact([asked])[0]["rows"]), "ovn-controller did not register")

    def resident_mib(self) -> float:
        """Resident memory of all its processes."""
        return sum(resident_mib(each.pid) for each in self.running)

    def _find_socket(self, name: str) -> Path:
        return self.folder / f"{name}.sock"

    def _spawn_program(self, program: str, name: str, *arguments: str) -> None:
        lab = self.lab
        self.running.append(
            processes.spawn(
                name,
                [program, *arguments, "-vconsole:off", "-vsyslog:off", f"--log-file={self.folder / name}.log"],
                mark=lab.layout.run_dir,
                log=self.folder / f"{name}.out",
                namespace=lab.layout.ovs_namespace,
                settings={"OVS_RUNDIR": str(lab.ovs.run_dir), "OVN_RUNDIR": str(self.folder)},
            )
        )  # fmt: skip


class _Database:
    """A client of one OVSDB server, transactions only (RFC 7047, section 4.1.3)."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._rest = ""
        self._decoder = json.JSONDecoder()

    def transact(self, operations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The result of every operation. Raises Refused."""
        asked = {"method": "transact", "params": [self._name, *operations], "id": 0}
        self._socket.sendall(json.dumps(asked).encode())
        results: list[dict[str, Any]] = self._read_answer()["result"]
        for result in results:
            if result and "error" in result:
                raise Refused(f"OVN: {result['error']}: {result.get('details', '')}")
        return results

    def _read_answer(self) -> dict[str, Any]:
        while True:
            while self._rest:
                try:
                    answer, end = self._decoder.raw_decode(self._rest)
                except json.JSONDecodeError:
                    break
                self._rest = self._rest[end:].lstrip()
                if answer.get("method") == "echo":
                    self._socket.sendall(json.dumps({"result": answer["params"], "error": None, "id": "echo"}).encode())
                elif answer.get("id") == 0:
                    return dict(answer)
            chunk = self._socket.recv(1 << 20).decode()
            if not chunk:
                raise Unreachable("OVN's database has closed the connection")
            self._rest += chunk


class Ovn:
    """OVN with one logical switch, whose rules admit return traffic or do not."""

    def __init__(self, database: _Database, site: _Site, returns: ReturnTraffic) -> None:
        self._permit = _PERMIT[returns]
        self._database = database
        self._site = site
        self._turn = 0
        names = [f"p{index}" for index in range(len(site.ports))]
        ports = [
            {"op": "insert", "table": "Logical_Switch_Port", "uuid-name": name,
             "row": {"name": port.name, **({"addresses": port.address} if port.address else {})}}
            for name, port in zip(names, site.ports, strict=True)
        ]  # fmt: skip
        row = {"name": SWITCH, "ports": ["set", [["named-uuid", name] for name in names]]}
        _until(lambda: self._read_progress() >= 0, "northd did not begin its work")
        self._change([*ports, {"op": "insert", "table": "Logical_Switch", "row": row}])

    def replace(self, acl: Acl) -> float:
        """Load a whole first list; return seconds until the switch holds it.

        Raises BadInput, Refused.
        """
        return self._change(_insert_operations(acl.rules, HIGHEST_PRIORITY, self._permit))

    def insert(self, rule: Rule, priority: int) -> float:
        """Add one rule; seconds until the switch holds it."""
        return self._change(_insert_operations([rule], priority, self._permit))

    def clear(self) -> float:
        """Remove every rule; seconds until the switch holds none."""
        everything = {"op": "update", "table": "Logical_Switch", "where": [["name", "==", SWITCH]],
                      "row": {"acls": ["set", []]}}  # fmt: skip
        return self._change([everything])

    def flows(self) -> int:
        """How many flow entries the switch holds."""
        return self._site.lab.ovs.appctl("bridge/dump-flows", "br-int").count("\n")

    def resident_mib(self) -> float:
        """Resident memory of its databases, northd and ovn-controller together."""
        return self._site.resident_mib()

    def _change(self, operations: list[dict[str, Any]]) -> float:
        """One transaction; seconds until every hypervisor has followed."""
        self._turn += 1
        following = {"op": "update", "table": "NB_Global", "where": [], "row": {"nb_cfg": self._turn}}
        started = time.perf_counter()
        self._database.transact([*operations, following])
        _until(lambda: self._read_progress() >= self._turn, "the hypervisor did not follow")
        return time.perf_counter() - started

    def _read_progress(self) -> int:
        """How far the hypervisors are; -1 before northd has made the row that says so."""
        asked = {"op": "select", "table": "NB_Global", "where": [], "columns": ["hv_cfg"]}
        rows = self._database.transact([asked])[0]["rows"]
        return int(rows[0]["hv_cfg"]) if rows else -1


def _insert_operations(rules: Sequence[Rule], priority: int, permit: str) -> list[dict[str, Any]]:
    """Return the operations that add rules to the logical switch.

    The first at `priority` and the others below it; `permit` is what OVN calls permitting.
    """
    rows = [
        {
            "op": "insert", "table": "ACL", "uuid-name": f"a{index}",
            "row": {"priority": priority - index, "direction": "to-lport", "match": match_of(rule),
                    "action": permit if rule.action is Action.PERMIT else "drop"},
        }
        for index, rule in enumerate(rules)
    ]  # fmt: skip
    named = [["named-uuid", f"a{index}"] for index in range(len(rules))]
    added = {"op": "mutate", "table": "Logical_Switch", "where": [["name", "==", SWITCH]],
             "mutations": [["acls", "insert", ["set", named]]]}  # fmt: skip
    return [*rows, added]


def match_of(rule: Rule) -> str:
    """Translate an ingress rule to OVN: IPv4, at most one prefix a side.

    Raises Refused for IPv6.
    """
    terms = ["ip4"]
    for side, addresses in (("src", rule.source), ("dst", rule.destination)):
        if addresses.prefixes:
            (prefix,) = addresses.prefixes
            if prefix.family is not Family.IPV4:
                raise Refused("the baseline takes IPv4 rules only")
            terms.append(f"ip4.{side} == {prefix}")
    if rule.protocol is not None:
        name = _PROTOCOLS[rule.protocol]
        terms.append(name)
        for side, ports in (("src", rule.source_ports), ("dst", rule.destination_ports)):
            if ports != EVERY_PORT:
                terms.append(_spell_ports(f"{name}.{side}", ports))
    return " && ".join(terms)


def _spell_ports(field_name: str, ports: Sequence[PortRange]) -> str:
    parts = [
        f"{field_name} == {each.low}" if each.low == each.high else f"{each.low} <= {field_name} <= {each.high}"
        for each in ports
    ]
    return parts[0] if len(parts) == 1 else "(" + " || ".join(parts) + ")"


def _until(true: Callable[[], bool], otherwise: str) -> None:
    """Wait; raises Unreachable when patience ends."""
    until = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise Unreachable(f"OVN: {otherwise} within {_PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)
