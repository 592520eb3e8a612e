"""Fake switches of a domain, and controllers as processes of the product that share them.

Each switch dials every controller, and again where a connection ends, as Open vSwitch does.
"""

from __future__ import annotations

import secrets
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from orchestrator.bench.scale.serviceprocesses import HERE, WholeService, run_product
from orchestrator.client import Host
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.lab.processes import free_port, wait_until_up
from orchestrator.store import Store, open_store

_SWITCHES = 12
"""So many that a controller whose share is none of them is one chance in two thousand."""
_FIRST_DATAPATH = 0xC0DE00
_AGAIN_S = 0.2


@contextmanager
def lead_switches(
    url: str, domain: str, services: Sequence[WholeService], token: str, folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run controllers that share a domain's switches, one a service; yield their processes.

    Raises Unreachable where one does not lead its share.
    """
    switches = [FakeSwitch({"port": 1, "up": 2}, datapath_id=_FIRST_DATAPATH + number) for number in range(_SWITCHES)]
    controllers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        client, store = stack.enter_context(services[0].open_client(token)), open_store(url)
        stack.callback(store.close)
        known = {host.name for host in client.domains.read_hosts(domain)}
        for number, switch in enumerate(switches):
            if (name := f"switch{number}") not in known:
                client.domains.add_host(domain, Host(name, switch.datapath_id, "up"))
        for place, service in enumerate(services):
            port, name = free_port(), f"controller-{secrets.token_hex(4)}"
            settings = {
                "ACLFLOW_STATE_DIR": str(folder / f"controller{place}"),
                "ACLFLOW_URL": service.url,
                "ACLFLOW_AUTHORITY": str(service.authority),
                "ACLFLOW_TOKEN": client.enrolment.invite(domain),
                "ACLFLOW_LOG_LEVEL": "error",
            }
            running = run_product("controller", "--listen", f"{HERE}:{port}", "--name", name, settings=settings)
            controllers.append(stack.enter_context(running))
            stack.enter_context(_dial(switches, port))
            wait_until_up(controllers[-1], lambda name=name: _leads_any(store, domain, name))  # type: ignore[misc]
        yield controllers


def _leads_any(store: Store, domain: str, name: str) -> bool:
    """Return whether a named controller reported a switch last, and no switch lags."""
    with store.read() as unit:
        numbers = {each.id for each in unit.enforcers.list(domain) if each.name == name}
        reported = {point.enforcer for point in unit.enforcers.points(domain)}
        state = unit.enforcers.enforced_state(domain, unit.domains.get(domain).generation)
    return bool(numbers & reported) and state.done


@contextmanager
def _dial(switches: Sequence[FakeSwitch], port: int) -> Iterator[None]:
    """Keep every switch connected to a port during the block."""
    links: dict[int, TcpLink] = {}
    stopping = threading.Event()

    def connect_switches() -> None:
        while not stopping.wait(_AGAIN_S):
            for switch in switches:
                link = links.get(switch.datapath_id)
                if link is None or not link.is_open:
                    with suppress(OSError):
                        links[switch.datapath_id] = TcpLink(switch, (HERE, port))

    dialling = threading.Thread(target=connect_switches, daemon=True)
    dialling.start()
    try:
        yield
    finally:
        stopping.set()
        dialling.join()
        for link in links.values():
            link.close()
