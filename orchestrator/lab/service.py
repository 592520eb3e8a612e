"""A lab's control plane: the service and the controller as processes of their own, and what the lab tells the service.

    ControlPlane(lab).start(acls)
      service     `aclflow serve` with SQLite in the lab's run directory, on a free port of 127.0.0.1
      onboarding  domain, hosts, tenants, endpoints, lists: over REST, as anybody would
      controller  `aclflow controller`, listening on the root namespace's end of the management link
      agents      `aclflow agent`, one in each firewall VNF
      console     `aclflow console` on a free port of 127.0.0.1, where somebody will look at it

Each can be killed and started again: ports, tokens and credentials are in the run directory.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from orchestrator.client import Client, Enforced, Host
from orchestrator.errors import Missing, Unreachable
from orchestrator.lab import processes
from orchestrator.lab.expect import endpoint_of
from orchestrator.lab.ovs import DATABASE, SWITCH
from orchestrator.lab.pop import Lab, Progress
from orchestrator.lab.processes import Process
from orchestrator.lab.spec import LEFT, RIGHT, FirewallSpec
from orchestrator.policy.model import Acl, ReturnTraffic, TenantId
from orchestrator.store import open_store
from orchestrator.store.records import Role

SERVICE = "service"
CONTROLLER = "controller"
CONSOLE = "console"

COMMAND = (sys.executable, "-m", "orchestrator.cli")
"""How this program calls itself."""

_PATIENCE_S = 30.0
_LOG_LINES = 15
_LISTEN = "0A"
"""How /proc/net/tcp writes the state of a listening socket."""


def agent_of(firewall: FirewallSpec) -> str:
    """What a firewall's agent is called among the lab's processes."""
    return f"agent-{firewall.name}"


class ControlPlane:
    """The service and the controller of one lab."""

    def __init__(self, lab: Lab, command: Sequence[str] = COMMAND) -> None:
        self._lab = lab
        self._command = tuple(command)
        self._console_port: int | None = None

    @property
    def token(self) -> str:
        """An administrator's token. Raises FileNotFoundError before the service was started."""
        return self._token_file.read_text()

    @property
    def url(self) -> str:
        """Where the service answers. Raises Unreachable before it was started."""
        if self._lab.state.api is None:
            raise Unreachable("this lab has no service yet")
        return self._lab.state.api

    def client(self) -> Client:
        """An administrator's client; close it when done."""
        return Client(self.url, self.token)

    # ------------------------------------------------------------------------------------------------------ processes

    def start(
        self,
        acls: Mapping[TenantId, Acl],
        returns: ReturnTraffic = ReturnTraffic.ESTABLISHED,
        progress: Progress = lambda _: None,
    ) -> None:
        """Start everything, and return once every host was read back to hold the policy. Raises Unreachable."""
        progress("service")
        self.start_service()
        progress("controller")
        with self.client() as client:
            client.create_domain(self._lab.spec.domain, return_traffic=returns)
            self.start_controller(client.invite_enforcer(self._lab.spec.domain))
            progress("tenants and their access lists")
            generation = self._onboard(client, acls)
            for firewall in self._lab.spec.firewalls:
                progress(f"agent of {firewall.name}")
                self.start_agent(firewall, client.invite_enforcer(self._lab.spec.domain))
            progress("waiting until it is enforced")
            self.wait_enforced(client, generation)

    def start_service(self) -> None:
        """Start the service (again), and wait until it is ready. The first start makes the administrator's token."""
        if self._lab.state.api is None:
            self._make_token()
            # where a firewall's agent must reach it: still on this machine alone
            host = self._lab.state.management.controller if self._lab.spec.firewalls else "127.0.0.1"
            self._lab.serving_at(f"http://{host}:{_free_port()}")
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        settings = {
            "ACLFLOW_STATE_DIR": str(self._service_dir),
            "ACLFLOW_LISTEN_HOST": host,
            "ACLFLOW_LISTEN_PORT": port,
        }
        process = self._lab.start(SERVICE, [*self._command, "serve"], settings=settings)
        with self.client() as client:
            self._wait_for(process, client.is_ready)

    def start_controller(self, invitation: str = "") -> None:
        """Start the controller (again), and wait until switches can reach it; the first start needs an invitation."""
        settings = {
            "ACLFLOW_STATE_DIR": str(self._lab.layout.run_dir / CONTROLLER),
            "ACLFLOW_URL": self.url,
            "ACLFLOW_TOKEN": invitation,
        }
        address, port = self._lab.controller_address
        arguments = [*self._command, "controller", "--listen", f"{address}:{port}"]
        process = self._lab.start(CONTROLLER, arguments, settings=settings)
        self._wait_for(process, lambda: _is_listening(address, port))
        self._lab.redial()

    def start_console(self) -> str:
        """Start the web console (again), and wait until it listens; where to sign in, as the administrator."""
        self._console_port = self._console_port or _free_port()
        arguments = [*self._command, "console", "--url", self.url, "--port", str(self._console_port)]
        process = self._lab.start(CONSOLE, arguments)
        port = self._console_port
        self._wait_for(process, lambda: _is_listening("127.0.0.1", port))
        return f"http://127.0.0.1:{port}/login#token={self.token}"

    def start_agent(self, firewall: FirewallSpec, invitation: str = "") -> None:
        """Start the agent of a firewall (again), inside it; the first start needs an invitation."""
        settings = {
            "ACLFLOW_STATE_DIR": str(self._lab.layout.run_dir / agent_of(firewall)),
            "ACLFLOW_URL": self.url,
            "ACLFLOW_TOKEN": invitation,
        }
        interfaces = [word for name in (LEFT, RIGHT) for word in ("--interface", name)]
        arguments = ["agent", "--driver", firewall.plane.value, "--name", firewall.name, *interfaces]
        namespace = self._lab.layout.namespace(firewall.name)
        self._lab.start(agent_of(firewall), [*self._command, *arguments], namespace=namespace, settings=settings)

    def supervise(self) -> tuple[str, ...]:
        """Start again what has ended; the names of what had."""
        restart: dict[str, Callable[[], object]] = {
            DATABASE: self._lab.start_database,
            SWITCH: self._lab.start_switch,
            SERVICE: self.start_service,
            CONTROLLER: self.start_controller,
            CONSOLE: self.start_console,
            **{agent_of(each): partial(self.start_agent, each) for each in self._lab.spec.firewalls},
        }
        ended = {process.name for process in self._lab.state.processes if not processes.alive(process)}
        for name, start in restart.items():
            if name in ended:
                start()
        return tuple(sorted(ended))

    def wait_enforced(self, client: Client, generation: int, patience_s: float = _PATIENCE_S) -> Enforced:
        """Wait until every host holds a generation. Raises Unreachable, naming who lags and why."""
        enforced = client.wait_enforced(self._lab.spec.domain, generation, timeout_s=patience_s)
        if not enforced.done:
            laggards = ", ".join(f"{each.host} ({each.state or 'never reported'})" for each in enforced.laggards)
            raise Unreachable(f"not enforced within {patience_s:.0f} s: {laggards}{self._log_of(CONTROLLER)}")
        return enforced

    # ------------------------------------------------------------------------------------------------------ onboarding

    def _onboard(self, client: Client, acls: Mapping[TenantId, Acl]) -> int:
        """Tell the service all that the lab consists of; the generation that holds everything."""
        spec = self._lab.spec
        generation = 0
        for host in spec.hosts:
            generation = client.add_host(spec.domain, Host(host.name, int(host.datapath_id, 16), host.uplink))
        for tenant in spec.tenants:
            client.create_tenant(tenant.id, domain=spec.domain, prefixes=tenant.prefixes)
        for firewall in spec.firewalls:
            generation = client.add_firewall(spec.domain, firewall.name, firewall.plane.value)
        for endpoint in spec.endpoints:
            generation = client.put_endpoint(spec.domain, endpoint_of(endpoint)).generation
        for tenant_id, acl in acls.items():
            generation = client.put_acl(tenant_id, acl).generation
        return generation

    # -------------------------------------------------------------------------------------------------------- the rest

    @property
    def _service_dir(self) -> Path:
        return self._lab.layout.run_dir / SERVICE

    @property
    def _token_file(self) -> Path:
        return self._service_dir / "token"

    def _make_token(self) -> None:
        self._service_dir.mkdir(mode=0o700)
        store = open_store(f"sqlite:///{self._service_dir / 'aclflow.db'}")
        try:
            with store.write() as unit:
                token = unit.tokens.create(Role.ADMIN, description="made by the lab")
        finally:
            store.close()
        self._token_file.touch(mode=0o600)
        self._token_file.write_text(token.secret)

    def _wait_for(self, process: Process, is_ready: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            if not processes.alive(process):
                raise Missing(f"the {process.name} ended at once{self._log_of(process.name)}")
            if is_ready():
                return
            time.sleep(0.05)
        raise Unreachable(f"the {process.name} is not ready after {_PATIENCE_S:.0f} s{self._log_of(process.name)}")

    def _log_of(self, name: str) -> str:
        """The end of a process's log, for an error."""
        log = self._lab.layout.logs / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:] if log.exists() else []
        return "\n".join([f"; the end of {log}:", *lines])


def _is_listening(address: str, port: int) -> bool:
    """Whether somebody in this namespace listens there; asked of the kernel, for a connection would be noticed."""
    wanted = f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return any(row[1] == wanted and row[3] == _LISTEN for row in rows)


def _free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
