"""The lab as a cloud: each VNF is a namespace with `aclflow agent`.

    spread bridge ═ fl-fw-7 ══ left ─ VNF ─ right ══ fr-fw-7 ═ spread bridge
    root namespace ═ <prefix>m7 ══ mgmt: the agent's way to the service

What there is stands on the disk, one folder a VNF in the lab's run directory: made before anything else is, removed
after everything else was. So a service that is killed at any point finds it all again, and what is left half made is
seen as failed, by whoever lists it. Names begin with the lab's prefix and processes bear its mark, so that `aclflow lab
down` takes a fleet away too.

Two agents are kept loaded beforehand (`standby.py`), so that a VNF is not late for the time that Python takes to start.
A VNF's capacity can be capped (`cap_mbps`, a token bucket on both links): on one machine all VNFs share the processors,
and what spreading does is only seen where each of them is held down. Capped output says so.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from orchestrator.cloud.base import Pace, Vnf, VnfOrder, VnfState
from orchestrator.compile.spreadprogram import Side
from orchestrator.errors import BadInput, Missing, NotFound, Refused
from orchestrator.lab import bridges, namespaces, pop, processes, vnf
from orchestrator.lab.forwarders import cap_links
from orchestrator.lab.layout import DEFAULT_PREFIX, Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.processes import Process
from orchestrator.lab.spec import LEFT, RIGHT
from orchestrator.lab.standby import AtHand, Order

_MACS = 0x0AAC1F040000
_HIGHEST_NUMBER = 999
"""The root end of a link is called by prefix and number, and interfaces have 15 letters."""
_KEYS = frozenset({"kind", "prefix", "cap_mbps", "load_every_s"})
_COMMAND = (sys.executable, "-m", "orchestrator.cli")
_LOG_LINES = 3
_AT_HAND = 2
"""As many as a fleet grows by at a time, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class LabVnf:
    """The files of a VNF at its first start."""

    fleet: str
    name: str
    number: int

    @property
    def ports(self) -> vnf.Ports:
        macs = _MACS + 2 * self.number
        return (f"fl-{self.name}", LEFT, macs), (f"fr-{self.name}", RIGHT, macs + 1)

    @property
    def node(self) -> str:
        """The VNF's name among the lab's namespaces, logs and folders."""
        return f"{self.fleet}-{self.name}"


class LabCloud:
    """The lab as a cloud.

    `cap_mbps` limits each VNF's rate on either side; None: no limit.
    """

    kind = "lab"
    pace = Pace()
    """At once: what there is stands on this machine's disk."""

    def __init__(self, layout: Layout, *, cap_mbps: float | None = None, load_every_s: float = 0.5) -> None:
        self._layout = layout
        self._cap_mbps = cap_mbps
        self._load_every_s = load_every_s
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._at_hand = AtHand(layout.run_dir, layout.logs / "standby.log", _AT_HAND)

    def create(self, orders: Sequence[VnfOrder]) -> None:
        """See `Cloud`. Raises NotFound where the lab is not up."""
        lab = pop.find(self._layout)
        for order in orders:
            one = LabVnf(order.fleet, order.name, order.number)
            if order.fleet != lab.spec.domain:
                raise Refused(f"this lab is the domain '{lab.spec.domain}', and has no place for '{order.fleet}'")
            if order.number > _HIGHEST_NUMBER:
                raise Refused(f"the lab has no names for VNFs beyond {_HIGHEST_NUMBER}: remove the fleet, make it anew")
            with self._lock:
                if self._find_folder(one).exists():
                    continue
                self._begin_vnf(one)
            try:
                self._build_vnf(lab, one, order)
            finally:
                self._busy.discard(one.node)
        with self._lock:
            self._at_hand.fill()

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        """See `Cloud`."""
        found = [self._describe_vnf(one) for one in self._known_vnfs() if fleet in (None, one.fleet)]
        return tuple(sorted(found, key=lambda each: (each.fleet, each.name)))

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        """Delete VNFs as a power failure would: everything in them ends at once."""
        for one in self._known_vnfs():
            if one.fleet == fleet and one.name in names:
                self._remove_vnf(one)

    def close(self) -> None:
        """See `Cloud`."""
        with self._lock:
            self._at_hand.close()

    # ------------------------------------------------------------------------------------------------------- building

    def _begin_vnf(self, one: LabVnf) -> None:
        folder = self._find_folder(one)
        self._busy.add(one.node)
        fresh = folder.with_name(f".{folder.name}")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True, mode=0o700)
        (fresh / "vnf.json").write_text(json.dumps(asdict(one)))
        fresh.rename(folder)  # it is there with all that is needed to remove it, or it is not there

    def _build_vnf(self, lab: Lab, one: LabVnf, order: VnfOrder) -> None:
        layout, name = self._layout, self._layout.namespace(one.node)
        link = f"{layout.prefix}m{one.number}"
        mine = vnf.create_one(layout, lab.spec, lab.state.management, name, one.ports, link)
        if self._cap_mbps is not None:
            namespaces.inside(name, partial(cap_links, round(self._cap_mbps * 1e6)))
        if lab.spec.spread:
            bridges.attach_firewall(lab.ovs, tuple(port for port, _, _ in one.ports))
        settings = {
            "ACLFLOW_STATE_DIR": str(self._find_folder(one) / "agent"),
            "ACLFLOW_URL": order.url,
            "ACLFLOW_TOKEN": order.token,
        }
        legs = ["--outside", LEFT, "--inside", RIGHT]
        words = ["agent", "--driver", order.plane.value, "--name", order.name, "--trial", *legs]
        often = ["--load-every", str(self._load_every_s)]
        process = self._start_agent(f"agent-{one.node}", name, [*words, *often], settings)
        (self._find_folder(one) / "process.json").write_text(json.dumps({**asdict(process), "address": mine.switches}))

    def _start_agent(self, called: str, namespace: str, words: Sequence[str], settings: Mapping[str, str]) -> Process:
        """An agent in a namespace: one that is loaded already, where there is one."""
        log = self._layout.logs / f"{called}.log"
        with self._lock:
            loaded = self._at_hand.send_order(called, Order(namespace, str(log), settings, tuple(words)))
        if loaded is not None:
            return loaded
        command = [*_COMMAND, *words]
        mark = self._layout.run_dir
        return processes.spawn(called, command, mark=mark, log=log, namespace=namespace, settings=settings)

    def _remove_vnf(self, one: LabVnf) -> None:
        process = self.process_of(one)
        if process is not None:
            processes.kill(process)
        with suppress(NotFound, Missing, Refused):  # the lab, or its switch, is gone, and its ports with it
            lab = pop.find(self._layout)
            if lab.spec.spread:
                bridges.detach_firewall(lab.ovs, tuple(port for port, _, _ in one.ports))
        with IPRoute() as root, suppress(NetlinkError):  # a link may go with its other end just now
            for place in root.link_lookup(ifname=f"{self._layout.prefix}m{one.number}"):
                root.link("del", index=place)
        namespaces.remove(self._layout.namespace(one.node))
        shutil.rmtree(self._find_folder(one), ignore_errors=True)

    # -------------------------------------------------------------------------------------------------------- looking

    def _known_vnfs(self) -> Iterator[LabVnf]:
        for path in sorted(self._folders.glob("*/vnf.json")):
            try:
                yield LabVnf(**json.loads(path.read_text()))
            except FileNotFoundError:  # it was removed meanwhile
                continue

    def _describe_vnf(self, one: LabVnf) -> Vnf:
        state, progress = self._find_state(one)
        (left, _, left_mac), (right, _, right_mac) = one.ports
        capped = None if self._cap_mbps is None else f"{self._cap_mbps:g} Mb/s, by a token bucket on both links"
        known = self._read_note(one)
        return Vnf(
            one.fleet,
            one.name,
            state,
            progress,
            instance_id=self._layout.namespace(one.node),
            addresses=(str(known["address"]),) if known else (),
            left=Side(left, left_mac),
            right=Side(right, right_mac),
            capped=capped,
        )

    def _find_state(self, one: LabVnf) -> tuple[VnfState, str]:
        if one.node in self._busy:
            return VnfState.COMING, "its namespace is made"
        process = self.process_of(one)
        if process is None:
            return VnfState.FAILED, "the service ended while it was made"
        if processes.alive(process):
            return VnfState.RUNNING, "its agent runs"
        if (self._find_folder(one) / "agent" / "credentials.json").exists():
            return VnfState.RUNNING, "its agent has ended; its filter stays as it was"
        return VnfState.FAILED, f"its agent ended before it had enrolled: {self._read_last_words(one)}"

    def process_of(self, one: LabVnf) -> Process | None:
        known = self._read_note(one)
        return None if known is None else Process(str(known["name"]), int(known["pid"]), int(known["started"]))

    def _read_note(self, one: LabVnf) -> dict[str, str | int] | None:
        try:
            found: dict[str, str | int] = json.loads((self._find_folder(one) / "process.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return found

    def _read_last_words(self, one: LabVnf) -> str:
        log = self._layout.logs / f"agent-{one.node}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return " ".join(" ".join(lines[-_LOG_LINES:]).split()) or "it said nothing"

    @property
    def _folders(self) -> Path:
        return self._layout.run_dir / "vnfs"

    def _find_folder(self, one: LabVnf) -> Path:
        return self._folders / one.node


def open_lab(settings: Mapping[str, object]) -> LabCloud:
    """Open the lab that a cloud file names.

    Raises BadInput with the key as its place, Missing without root.
    """
    unknown = next((key for key in settings if key not in _KEYS), None)
    if unknown is not None:
        raise BadInput(f"'{unknown}' is nothing that a lab has: {', '.join(sorted(_KEYS))}", place=unknown)
    namespaces.need_root()
    cap, often = settings.get("cap_mbps"), settings.get("load_every_s", 0.5)
    for name, value in (("cap_mbps", cap), ("load_every_s", often)):
        if value is not None and not (isinstance(value, (int, float)) and 0 < value < 1e6):
            raise BadInput(f"{value!r} is not a number above zero", place=name)
    layout = Layout(str(settings.get("prefix", DEFAULT_PREFIX)))
    return LabCloud(layout, cap_mbps=None if cap is None else float(str(cap)), load_every_s=float(str(often)))
