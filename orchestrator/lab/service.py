"""A lab's control plane: service and controller as processes, and the lab's onboarding.

    ControlPlane(lab).start(acls)
      service     `aclflow serve` with SQLite in the lab's run directory, on a free port of 127.0.0.1
      onboarding  domain, hosts, tenants, endpoints, lists: over REST, as anybody would
      controller  `aclflow controller`, listening on the root namespace's end of the management link
      agents      `aclflow agent`, one in each firewall VNF
      tls         where asked for: an authority in the service's directory, everybody enrolled with a certificate of it,
                  OpenFlow by a certificate of the switches'
      console     `aclflow console` on a free port of 127.0.0.1, where somebody will look at it

Each can be killed and started again: ports, tokens and credentials are in the run directory.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.client import Client, Host
from orchestrator.errors import Missing, Unreachable
from orchestrator.identity.files import AuthorityDir, write_file, write_key
from orchestrator.identity.names import SPREADING_SWITCH
from orchestrator.identity.requests import new_key, request_of
from orchestrator.lab import processes
from orchestrator.lab.bridges import EDGE_NAME, POP_OUTSIDE_PORT, POP_SWITCH, POP_UPLINK_PORT, SPREAD_SWITCH, SideBridge
from orchestrator.lab.expect import endpoint_of
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.pop import CONTROLLER_PORT, Lab, Progress
from orchestrator.lab.processes import Process, free_port
from orchestrator.lab.spec import LEFT, RIGHT, FirewallSpec
from orchestrator.policy.addresses import format_mac
from orchestrator.policy.model import Acl, ReturnTraffic, TenantId
from orchestrator.store import open_store
from orchestrator.store.records import Role
from orchestrator.store.sql.clock import utc_now
from orchestrator.wire.domains import Enforced

SERVICE = "service"
CONTROLLER = "controller"
CONSOLE = "console"
SPREADER = "spreader"
EDGE_CONTROLLER = "edge-controller"
COUNT_EVERY_S = 1.0
COUNTING = ("--count-every", str(COUNT_EVERY_S))
"""How often the PoP's edge and its servers are asked what they have counted."""
POP = "pop"
"""The name of the lab's point of presence at the service."""

COMMAND = (sys.executable, "-m", "orchestrator.cli")
"""How this program calls itself."""

_PATIENCE_S = 30.0
_LOG_LINES = 15
_LISTEN = "0A"
"""How /proc/net/tcp writes the state of a listening socket."""


@dataclass(frozen=True, slots=True)
class Around:
    """The surroundings of a control plane's processes, where they are not simply this machine.

    `openflow_port` and `enforcers_url` are where the controller listens and where enforcement points find the service,
    if something stands between them; `service_port` is where the service listens. `environment` is for all processes.
    """

    openflow_port: int = CONTROLLER_PORT
    enforcers_url: str = ""
    database_url: str = ""
    service_port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def agent_of(firewall: FirewallSpec) -> str:
    """Return the name of a firewall's agent among the lab's processes."""
    return f"agent-{firewall.name}"


class ControlPlane:
    """The service and the controller of one lab."""

    def __init__(
        self,
        lab: Lab,
        command: Sequence[str] = COMMAND,
        *,
        tls: bool = False,
        cap_mbps: float | None = None,
        around: Around | None = None,
    ) -> None:
        """Prepare the control plane.

        `cap_mbps` limits each VNF of a fleet, where the lab spreads traffic over one.
        """
        self._cap_mbps = cap_mbps
        self._lab = lab
        self._tls = tls or lab.is_secured
        self._command = tuple(command)
        self._console_port: int | None = None
        self._around = around or Around()

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
        return Client(self.url, self.token, authority=self.authority, plain_http=True)

    @property
    def authority(self) -> Path | None:
        """The file of the service's authority; None in a lab without TLS."""
        return self._authority_dir.certificate if self._tls else None

    # ------------------------------------------------------------------------------------------------------ processes

    def start(
        self,
        acls: Mapping[TenantId, Acl],
        returns: ReturnTraffic = ReturnTraffic.ESTABLISHED,
        progress: Progress = lambda _: None,
    ) -> None:
        """Start everything; return once every host was read back to hold the policy.

        Raises Unreachable.
        """
        progress("service")
        self.start_service()
        progress("controller")
        with self.client() as client:
            client.domains.create(self._lab.spec.domain, return_traffic=returns)
            self.start_controller(client.enrolment.invite(self._lab.spec.domain))
            progress("tenants and their access lists")
            generation = self._onboard(client, acls)
            self._secure_switches(client)
            if self._lab.spec.spread:
                progress("controller of the spreading switch")
                self.start_spreader(client.enrolment.invite(self._lab.spec.domain))
            if self._lab.spec.servers:
                progress("controller of the edge switch")
                self.start_edge_controller(client.enrolment.invite(self._lab.spec.domain))
            for firewall in self._lab.spec.filters:
                progress(f"agent of {firewall.name}")
                self.start_agent(firewall, client.enrolment.invite(self._lab.spec.domain))
            progress("waiting until it is enforced")
            self.wait_enforced(client, generation)
        self._lab.wait_for_routes()

    def start_service(self) -> None:
        """Start the service, or start it again, and wait until it is ready.

        The first start makes the administrator's token.
        """
        if self._lab.state.api is None:
            self._make_token()
            # where a firewall's agent must reach it: still on this machine alone
            host = self._lab.state.management.controller if self._lab.spec.has_agents else "127.0.0.1"
            self._lab.serving_at(
                f"{'https' if self._tls else 'http'}://{host}:{self._around.service_port or free_port()}"
            )
            if self._tls:
                self._authority_dir.create("lab", utc_now())
        parts = urlsplit(self.url)
        settings = {
            "ACLFLOW_STATE_DIR": str(self._service_dir),
            "ACLFLOW_LISTEN_HOST": parts.hostname or "",
            "ACLFLOW_LISTEN_PORT": str(parts.port),
            **({"ACLFLOW_TLS": "yes"} if self._tls else {}),
            "ACLFLOW_URL": self.url,
            "ACLFLOW_DATABASE_URL": self._around.database_url,
            "ACLFLOW_AUDIT_SYSLOG": "none",  # the machine's log is for the trails of services that stay
            **self._cloud_settings(),
            **self._around.environment,
        }
        process = self._lab.start(SERVICE, [*self._command, "serve"], settings=settings)
        with self.client() as client:
            self._wait_for_process(process, client.is_ready)

    def _cloud_settings(self) -> dict[str, str]:
        """A lab that spreads traffic is the cloud in which its service makes the VNFs."""
        if not self._lab.spec.spread:
            return {}
        file = self._service_dir / "cloud.yaml"
        cap = {} if self._cap_mbps is None else {"cap_mbps": self._cap_mbps}
        file.write_text(json.dumps({"kind": "lab", "prefix": self._lab.layout.prefix, **cap}))
        return {"ACLFLOW_CLOUD": str(file)}

    def start_controller(self, invitation: str = "") -> None:
        """Start the controller, or start it again, until switches can reach it.

        The first start needs an invitation.
        """
        address, _ = self._lab.controller_address
        self._run_controller(CONTROLLER, (address, self._around.openflow_port), [], invitation)
        self._lab.redial()

    def start_edge_controller(self, invitation: str = "") -> None:
        """Start the edge switch's controller (again); the first start needs an invitation."""
        self._run_beside(EDGE_CONTROLLER, POP_SWITCH, ["--tier", "edge", *COUNTING], invitation)

    def start_spreader(self, invitation: str = "") -> None:
        """Start the spreading switch's controller (again); the first start needs an invitation."""
        self._run_beside(SPREADER, SPREAD_SWITCH, ["--spreads", SPREAD_SWITCH.datapath], invitation)

    def _run_beside(self, name: str, switch: SideBridge, options: Sequence[str], invitation: str) -> None:
        address, _ = self._lab.controller_address
        self._run_controller(name, (address, switch.controller_port), ["--name", name, *options], invitation)
        switch.redial(self._lab.ovs, address, self._lab.openflow_scheme)

    def _run_controller(self, name: str, at: tuple[str, int], options: Sequence[str], invitation: str) -> None:
        settings = {
            "ACLFLOW_STATE_DIR": str(self._lab.layout.run_dir / name),
            "ACLFLOW_URL": self._around.enforcers_url or self.url,
            "ACLFLOW_TOKEN": invitation,
            **self._around.environment,
        }
        address, port = at
        secured = ["--tls"] if self._tls else ["--plain-openflow"]  # between namespaces of one machine
        arguments = [*self._command, "controller", "--listen", f"{address}:{port}", *secured, *options]
        process = self._lab.start(name, arguments, settings=settings)
        self._wait_for_process(process, lambda: _is_listening(address, port))

    def start_console(self) -> str:
        """Start the web console, or start it again; return the administrator's sign-in address."""
        self._console_port = self._console_port or free_port()
        arguments = [*self._command, "console", "--url", self.url, "--port", str(self._console_port)]
        settings = {"ACLFLOW_AUTHORITY": str(self.authority or "")}
        process = self._lab.start(CONSOLE, arguments, settings=settings)
        port = self._console_port
        self._wait_for_process(process, lambda: _is_listening("127.0.0.1", port))
        return f"http://127.0.0.1:{port}/login#token={self.token}"

    def start_agent(self, firewall: FirewallSpec, invitation: str = "") -> None:
        """Start the agent of a firewall (again), inside it; the first start needs an invitation."""
        settings = {
            "ACLFLOW_STATE_DIR": str(self._lab.layout.run_dir / agent_of(firewall)),
            "ACLFLOW_URL": self._around.enforcers_url or self.url,
            "ACLFLOW_TOKEN": invitation,
            **self._around.environment,
        }
        interfaces = ["--outside", LEFT, "--inside", RIGHT]
        is_server = firewall in self._lab.spec.servers
        driver = "firewall-server" if is_server else firewall.plane.value
        counting = COUNTING if is_server else ()
        arguments = ["agent", "--driver", driver, "--name", firewall.name, *interfaces, *counting]
        namespace = self._lab.layout.namespace(firewall.name)
        self._lab.start(agent_of(firewall), [*self._command, *arguments], namespace=namespace, settings=settings)

    def supervise(self) -> tuple[str, ...]:
        """Start again what has ended; the names of what had."""
        restart: dict[str, Callable[[], object]] = {
            **self._lab.restarts(),
            SERVICE: self.start_service,
            CONTROLLER: self.start_controller,
            SPREADER: self.start_spreader,
            EDGE_CONTROLLER: self.start_edge_controller,
            CONSOLE: self.start_console,
            **{agent_of(each): partial(self.start_agent, each) for each in self._lab.spec.filters},
        }
        ended = {process.name for process in self._lab.state.processes if not processes.alive(process)}
        for name, start in restart.items():
            if name in ended:
                start()
        return tuple(sorted(ended))

    def wait_enforced(self, client: Client, generation: int, patience_s: float = _PATIENCE_S) -> Enforced:
        """Wait until every host holds a generation. Raises Unreachable, naming who lags and why."""
        enforced = client.domains.wait_until_enforced(self._lab.spec.domain, generation, timeout_s=patience_s)
        if not enforced.done:
            laggards = ", ".join(
                f"{each.host} ({f'{each.state} at {each.generation}' if each.state else 'never reported'})"
                for each in enforced.laggards
            )
            logs = "".join(map(self._log_of, (SERVICE, CONTROLLER)))
            raise Unreachable(f"generation {generation} was not enforced within {patience_s:.0f} s: {laggards}{logs}")
        return enforced

    # ------------------------------------------------------------------------------------------------------ onboarding

    def _onboard(self, client: Client, acls: Mapping[TenantId, Acl]) -> int:
        """Tell the service all that the lab consists of; the generation that holds everything."""
        spec = self._lab.spec
        generation = 0
        for host in spec.hosts:
            generation = client.domains.add_host(spec.domain, Host(host.name, int(host.datapath_id, 16), host.uplink))
        for firewall in spec.filters:
            generation = client.firewalls.add(spec.domain, firewall.name, firewall.plane.value)
        if spec.servers:
            generation = self._onboard_pop(client)  # before tenants, so that none has to move
        for tenant in spec.tenants:
            client.tenants.create(tenant.id, domain=spec.domain, prefixes=tenant.prefixes)
        for endpoint in spec.endpoints:
            generation = client.domains.put_endpoint(spec.domain, endpoint_of(endpoint)).generation
        for tenant_id, acl in acls.items():
            generation = client.acls.put(tenant_id, acl).generation
        return generation

    def _secure_switches(self, client: Client) -> None:
        """Give every Open vSwitch a key and a certificate if the lab speaks TLS."""
        if not self._tls:
            return
        for daemon, names in self._switches().items():
            self._secure(client, daemon, *names)
        self._lab.redial()

    def _secure(self, client: Client, daemon: OpenVSwitch, first: str, *others: str) -> None:
        """Give one Open vSwitch a key and the certificate of its switches."""
        key, certificate = (daemon.run_dir / name for name in ("switches.key", "switches.pem"))
        made = new_key()
        issued = client.certificates.issue_for_switch(
            self._lab.spec.domain, first, request_of(made, first), also=others
        )
        write_key(key, made)
        write_file(certificate, issued.certificate.encode(), 0o644)
        daemon.vsctl("--no-wait", "set-ssl", str(key), str(certificate), str(self._authority_dir.certificate))

    def _switches(self) -> dict[OpenVSwitch, list[str]]:
        """Return the names of the switches that each Open vSwitch of the lab is."""
        spec = self._lab.spec
        found: dict[OpenVSwitch, list[str]] = {}
        for host in spec.hosts:
            found.setdefault(self._lab.ovs_of(host.name), []).append(host.name)
        beside = [name for name, there in ((SPREADING_SWITCH, spec.spread), (EDGE_NAME, bool(spec.servers))) if there]
        for name in beside:
            found.setdefault(self._lab.ovs, []).append(name)
        return found

    def _onboard_pop(self, client: Client) -> int:
        """Onboard the PoP with its edge switch and servers.

        Heavy hitters are chosen on request.
        """
        spec = self._lab.spec
        client.pops.add(POP, spec.domain, (POP_OUTSIDE_PORT,), heavy_interval_s=0.0, heavy_least_packets=1)
        generation = client.pops.add_edge(POP, Host(EDGE_NAME, int(POP_SWITCH.datapath, 16), POP_UPLINK_PORT))
        for server in spec.servers:
            (port, _, mac), _ = server.ports
            generation = client.pops.add_server(POP, server.name, port, format_mac(mac))
        return generation

    # -------------------------------------------------------------------------------------------------------- the rest

    @property
    def _service_dir(self) -> Path:
        return self._lab.layout.run_dir / SERVICE

    @property
    def _authority_dir(self) -> AuthorityDir:
        return AuthorityDir(self._service_dir / "authority")

    @property
    def _token_file(self) -> Path:
        return self._service_dir / "token"

    def _make_token(self) -> None:
        self._service_dir.mkdir(mode=0o700, exist_ok=True)  # it may be a disk of its own
        token = administrators_token(self._service_dir, "the lab's operator", self._around.database_url)
        self._token_file.touch(mode=0o600)
        self._token_file.write_text(token)

    def _wait_for_process(self, process: Process, is_ready: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            ended = processes.describe_end(process)
            if ended is not None or not processes.alive(process):
                raise Missing(
                    f"the {process.name} ended at once ({ended or 'nobody knows how'}){self._log_of(process.name)}"
                )
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
    """Return whether a port of this namespace is listened on.

    The kernel is asked, for a connection would be noticed.
    """
    wanted = f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return any(row[1] == wanted and row[3] == _LISTEN for row in rows)


def administrators_token(directory: Path, description: str, database_url: str = "") -> str:
    """Create an administrator's token for the service of a directory or database.

    Done before the service starts.
    """
    store = open_store(database_url or f"sqlite:///{directory / 'aclflow.db'}")
    try:
        with store.write() as unit:
            return unit.tokens.create(Role.ADMIN, description=description).secret
    finally:
        store.close()
