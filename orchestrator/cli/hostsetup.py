"""`aclflow host configure | enrol | release | services`: this machine as a domain's host.

The switch of the machine is configured, enrolled and released. Endpoints need services of the machine to come up: DHCP,
router advertisements and DNS; these are run, shown and removed.
"""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.membership import EnrolFile, enrolment_token
from orchestrator.cli.options import BRIDGE, AsJson, Bridge, DomainName, HostName, RunDir, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import complain, remark, say, say_json
from orchestrator.client import Client
from orchestrator.client.enrolment import EnrolmentCalls
from orchestrator.compile.pipelines.host import SERVICES_PORT, Table
from orchestrator.enforce.services.hostservices import HostServices, Subnet
from orchestrator.enforce.services.servicekeeper import keep_services, offers, remove_services
from orchestrator.enforce.services.serviceport import ServicesKernel
from orchestrator.enforce.stopsignal import AskedToEnd
from orchestrator.errors import AclflowError, BadInput
from orchestrator.hosts.certificate import SwitchCertificate
from orchestrator.hosts.ovs import RUN_DIR, Change, LocalSwitch
from orchestrator.hosts.switch import HOST_TLS, OFFLOADS, ROUTED_PORT, Datapath, Tls, Wanted
from orchestrator.logs import configure_logging
from orchestrator.policy.addresses import format_address, format_mac
from orchestrator.settings import load
from orchestrator.wire.domains import MAX_IDLE_MS

FILES = Path(HOST_TLS.key).parent

Check = Annotated[bool, typer.Option("--check", help="Change nothing; only say what would be done.")]


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """Options of a machine's switch."""

    controller: Annotated[list[str], typer.Option("--controller", help="As in tcp:192.0.2.1:6653 or ssl:...")]
    uplink: Annotated[
        str | None,
        typer.Option(
            "--uplink", help=f"An interface towards the edge. Without it: {ROUTED_PORT}, that the kernel routes to."
        ),
    ] = None
    routed: Annotated[
        bool, typer.Option("--routed", help="Make the uplink an internal port that the kernel routes to.")
    ] = False
    services: Annotated[
        bool | None,
        typer.Option(
            "--services/--no-services",
            help=f"Make {SERVICES_PORT}, by which this machine serves endpoints. Default: where the uplink is routed.",
        ),
    ] = None
    port: Annotated[list[str] | None, typer.Option("--port", help="Another interface of the bridge.")] = None
    bridge: Bridge = BRIDGE
    datapath: Annotated[Datapath, typer.Option("--datapath", help="In the kernel or in the daemon.")] = Datapath.SYSTEM
    max_idle: Annotated[int, typer.Option("--max-idle", help="Of the datapath's cache entries, in ms.")] = MAX_IDLE_MS
    offloads: Annotated[
        bool | None,
        typer.Option(
            "--offloads/--no-offloads",
            help="With --datapath netdev: finish checksums and segments that guests leave open. Default: as it is.",
        ),
    ] = None
    polling_cores: Annotated[
        str | None,
        typer.Option(
            "--polling-cores",
            help="With --datapath netdev: cores, as in 1,2, that do nothing but poll the uplink (AF_XDP). "
            "Default: as it is.",
        ),
    ] = None
    tls_key: Annotated[str | None, typer.Option("--tls-key", help="For ssl: controllers: the switch's key (PEM).")] = (
        None
    )
    tls_certificate: Annotated[str | None, typer.Option("--tls-certificate", help="Its certificate.")] = None
    tls_authority: Annotated[
        str | None, typer.Option("--tls-authority", help="The authority that must have signed the controller's.")
    ] = None
    adopt: Annotated[bool, typer.Option("--adopt", help="Take over a bridge that carries somebody's flows.")] = False

    def to_wanted(self, domain: str, host: str) -> Wanted:
        """Return what the host is to be. Raises BadInput."""
        is_routed = self.routed or self.uplink is None
        return Wanted(
            domain,
            host,
            self.uplink or ROUTED_PORT,
            tuple(self.controller),
            is_routed=is_routed,
            is_serving=is_routed if self.services is None else self.services,
            bridge=self.bridge,
            datapath=self.datapath,
            max_idle_ms=self.max_idle,
            offloads=self.offloads,
            polling_cores=self._read_cores(),
            tls=self._make_tls(),
            adopt=self.adopt,
            ports=tuple(self.port or ()),
        )

    def _read_cores(self) -> tuple[int, ...]:
        if self.polling_cores is None:
            return ()
        numbers = [each.strip() for each in self.polling_cores.split(",")]
        if not all(each.isascii() and each.isdecimal() for each in numbers):
            raise BadInput(f"'{self.polling_cores}' is no list of cores, as in 1,2", place="--polling-cores")
        return tuple(map(int, numbers))

    def _make_tls(self) -> Tls | None:
        given = (self.tls_key, self.tls_certificate, self.tls_authority)
        if self.tls_key and self.tls_certificate and self.tls_authority:
            return Tls(self.tls_key, self.tls_certificate, self.tls_authority)
        if given != (None, None, None):
            raise BadInput("a key, a certificate and an authority go together: give all or none", place="--tls-key")
        return None


@taking
def configure(
    domain: DomainName,
    host: HostName,
    switch: SwitchOptions,
    run_dir: RunDir = RUN_DIR,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Make this machine's Open vSwitch that of a host. Safe to repeat.

    It is default off from the first moment.
    """
    wanted = switch.to_wanted(domain, host)
    done = LocalSwitch(run_dir).configure(wanted, check=check)
    _say_change(done, check=check, as_json=as_json, datapath_id=f"{wanted.datapath_id:016x}")


@taking
def enrol(
    domain: DomainName,
    host: HostName,
    folder: Annotated[Path, typer.Option("--folder", help="Where its files are kept.")] = FILES,
    enrol_file: EnrolFile = None,
    url: Url = None,
) -> None:
    """Get a certificate for this machine's switch, with a one-time token.

    `aclflow domain invite --kind switch` makes the token. A token with a fingerprint says whom to believe, so nothing
    else is needed. Key and certificate are then in FOLDER/switch.pem, whom to believe in FOLDER/authority.pem: name
    them to `configure` as --tls-key, --tls-certificate and --tls-authority, before or after. Safe to repeat: nothing is
    done while two thirds of the certificate's time are not over.
    """
    settings = load()
    wanted = SwitchCertificate(domain, host, folder)
    token = enrolment_token(settings, enrol_file)

    def connect_service(url: str, trust: ssl.SSLContext | None) -> EnrolmentCalls:
        return Client(url, trust=trust, plain_http=settings.plain_http).enrolment

    made = wanted.obtain(url or settings.url, token, settings.authority, connect_service, dt.datetime.now(dt.UTC))
    say(f"{wanted.file}: {'a new certificate' if made else 'holds'}, for the host {host} of {domain}")


@taking
def release(
    domain: DomainName,
    bridge: Bridge = BRIDGE,
    run_dir: RunDir = RUN_DIR,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Give this machine's Open vSwitch back. Safe to repeat.

    It forwards nothing from then on.
    """
    _say_change(LocalSwitch(run_dir).release(bridge, domain, check=check), check=check, as_json=as_json)


def _say_change(done: Change, *, check: bool, as_json: bool, **more: str) -> None:
    if as_json:
        say_json({"changed": done.changed, "commands": [" ".join(words) for words in done.commands], **more})
    elif not done.changed:
        say("everything is as wanted")
    else:
        say("would be done:" if check else "done:", bold=True)
        for words in done.commands:
            say(f"  ovs-vsctl {' '.join(words)}")
        if any(OFFLOADS in word for words in done.commands for word in words):
            remark("offloads count when ovs-vswitchd is started anew")


@dataclass(frozen=True, slots=True)
class Declared:
    """The services as their operator declares them."""

    subnets: Annotated[
        list[str] | None,
        typer.Option(
            "--subnet",
            help="Addresses of endpoints, as in 198.51.100.0/24: they are told its mask, and its first address as "
            "their router, or another (198.51.100.0/24=198.51.100.254).",
        ),
    ] = None
    servers: Annotated[
        list[str] | None,
        typer.Option("--dns", help="A resolver that names are asked of; without any, those of /etc/resolv.conf."),
    ] = None
    mtu: Annotated[int, typer.Option("--mtu", help="The MTU that endpoints are told.")] = 1500
    lease_s: Annotated[int, typer.Option("--lease", help="Seconds after which an address is asked for anew.")] = 86400

    def services(self) -> HostServices:
        """Return the services as the options say. Raises BadInput."""
        try:
            subnets = tuple(Subnet.parse(text) for text in self.subnets or ())
        except BadInput as error:
            raise BadInput(str(error), place="--subnet") from None
        return HostServices(subnets, tuple(self.servers or ()), self.mtu, self.lease_s)


@taking
def run_services(declared: Declared, bridge: Bridge = BRIDGE, run_dir: RunDir = RUN_DIR) -> None:
    """Answer the endpoints of this machine's switch: DHCP, DHCPv6, router advertisements, DNS; until stopped.

    The rows of the switch say who asks and which address is theirs, so there are no leases. dnsmasq resolves names at
    169.254.169.253 and fd00:ac1f::53. Endpoints that already have their addresses keep them when this ends.
    """
    configure_logging(load())
    keep_services(declared.services(), LocalSwitch(run_dir), bridge, AskedToEnd())


@taking
def show_services(shown: Shown, bridge: Bridge = BRIDGE, run_dir: RunDir = RUN_DIR) -> None:
    """Show which addresses this machine offers to whom, read back from its switch.

    Exits with 1 where the switch or the kernel is not as the services need it.
    """
    trouble = []
    try:
        found = offers(LocalSwitch(run_dir).flows(bridge, Table.ADMISSION))
    except AclflowError as error:
        found, trouble = [], [str(error)]
    rows = [(str(each.port), format_mac(each.mac), format_address(each.family, each.address)) for each in found]
    document = [{"port": int(port), "mac": mac, "address": address} for port, mac, address in rows]
    shown.say(document, ("port", "mac", "address"), rows)
    trouble += ServicesKernel(SERVICES_PORT).missing()
    for text in trouble:
        complain(text)
    if trouble:
        raise typer.Exit(ANSWER_IS_NO)


@taking
def withdraw_services() -> None:
    """Take the services' addresses, routes and tables of nftables away. Safe to repeat.

    Stop `aclflow host services run` first, or they come back. The port stays the switch's.
    """
    remove_services(HostServices(()))
    say(f"nobody is answered by {SERVICES_PORT} any more")
