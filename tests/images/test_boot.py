"""Real images boot, told by nothing but what Heat gives them: a firewall until its agent has enrolled and enforces, a
switch until its controller has, and both until they were read back to hold the domain's policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from deployment.image import run
from enforce.contract_spread import PORTS as SPREADING_PORTS
from enforce.contract_spread import spread
from enforce.test_edge_program import PORTS as EDGE_PORTS
from enforce.test_edge_program import Pop, every_permit
from images.bridges import check_it_takes
from images.built import folder_of
from images.endpoints import Place
from images.guest import HERE, MACS, Guest, booted, config_drive, together, user_data
from served import Served, served
from system.shooting import POP, SHOP

from orchestrator.client import Client, Host
from orchestrator.cloud.base import Pace, Vnf, VnfOrder, VnfState
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.spreadprogram import spread_program
from orchestrator.hosts.switch import datapath_of
from orchestrator.lab.expect import policy_of
from orchestrator.lab.processes import free_port
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, GroupName, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMPV6, TCP, UDP
from orchestrator.program.program import Tier

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SWITCH, AUTHORITY = "/etc/aclflow/tls/switch.pem", "/etc/aclflow/tls/authority.pem"
WEB, DB = Place("web", 1), Place("db", 2)
INSTANCE, NAME = "9a2c1f6e-6d0c-4a57-9b64-0d5b9b1c4f11", "pop1-0"


class Sky:
    """A cloud that has the machine in the group `fleet`."""

    kind = "test"
    pace = Pace()

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        there = Vnf("fleet", NAME, VnfState.RUNNING, instance_id=INSTANCE, addresses=("127.0.0.1",))
        return (there,) if fleet in (None, there.fleet) else ()

    def create(self, orders: Sequence[VnfOrder]) -> None:
        raise NotImplementedError

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        """Nobody is deleted."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service that speaks TLS, and that machines under QEMU reach."""
    monkeypatch.setattr("orchestrator.wiring.open_cloud", lambda _: Sky())
    state = tmp_path / "service"
    state.mkdir()
    with served(state, tls=True, tls_names=HERE, cloud=tmp_path / "cloud.yaml") as found:
        yield found


def url(here: Served) -> str:
    """The service, as the guest calls it."""
    return here.url.replace("127.0.0.1", HERE)


@contextmanager
def machine(image: str, user: str, folder: Path) -> Iterator[Guest]:
    """A machine from an image, with the drive that a cloud attaches."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    key = (folder / "key.pub").read_text().strip()
    drive = config_drive(folder, instance=INSTANCE, name=NAME, user=user, key=key)
    disk = folder_of(image) / f"{image}.qcow2"
    with booted(disk, drive, folder, ssh_port=free_port(), key=folder / "key") as guest:
        yield guest


def check_nothing_failed_and_nobody_logs_in_by_a_password(guest: Guest) -> None:
    refused = guest.ssh("true", options=("-o", "PubkeyAuthentication=no", "-o", "PreferredAuthentications=password"))
    assert "Permission denied (publickey)" in refused.stderr
    assert guest.ssh("systemctl", "--failed", "--no-legend", "--plain").stdout.strip() == ""


def everything_that_a_list_can_ask_for(admin: Client) -> int:
    """A tenant whose list has every kind of row: both IP versions, conjunctions of groups, packets that are reported,
    ports by range, flags, fragments. The generation."""
    both = tuple(map(Prefix.parse, ("192.0.2.0/24", "2001:db8::/64")))
    groups = {
        name: AddressGroup(GroupName(name), tuple(Prefix.parse(f"{network}.{2 * n}/32") for n in range(40)))
        for name, network in (("far", "198.51.100"), ("near", "192.0.2"))
    }
    rules = (
        Rule(RuleId("log"), Action.DENY, protocol=TCP, destination_ports=(PortRange(22, 22),), log=True),
        Rule(
            RuleId("groups"), Action.PERMIT, source=Addresses(groups=("far",)), destination=Addresses(groups=("near",))
        ),
        Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 95), PortRange(443, 443))),
        Rule(RuleId("back"), Action.PERMIT, protocol=TCP, established=True, log=True),
        Rule(RuleId("ping"), Action.PERMIT, protocol=ICMPV6, icmp_type=128),
        Rule(RuleId("rest"), Action.PERMIT, protocol=UDP, fragments=True),
    )
    admin.tenants.create("shop", domain="pop1", prefixes=both)
    for place in (WEB, DB):
        admin.domains.put_endpoint("pop1", place.endpoint("shop"))
    return admin.acls.put("shop", Acl(rules, groups)).generation


def read_flows(guest: Guest) -> str:
    return guest.ssh("sudo", "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-aclflow").stdout


def check_packets_are_decided(guest: Guest) -> None:
    """Real ones, through the kernel's datapath; their senders find the gateway through it, too."""
    WEB.listen(guest, 22, 80, 8080)
    DB.listen(guest, 80)
    for address in WEB.addresses:
        assert DB.connect(guest, address, 80) == "there"
        assert DB.connect(guest, address, 22) == "timed out"
        assert DB.connect(guest, address, 8080) == "timed out"
    for address in DB.addresses:
        assert WEB.connect(guest, address, 80) == "there"
    for place in (WEB, DB):
        assert place.believed(guest) == {GATEWAY_MAC.to_bytes(6, "big").hex(":")}
    assert "system@ovs-system" in guest.ssh("sudo", "ovs-appctl", "dpif/show").stdout


def check_other_tiers_can_have_such_a_switch(guest: Guest) -> None:
    policy = policy_of(POP, {TenantId("shop"): SHOP})
    edge = Pop(policy, every_permit(policy)).program
    check_it_takes(guest, "edge", Tier.EDGE, edge, EDGE_PORTS)
    for stateful in (False, True):
        spreading = spread_program(spread("a", "b", stateful=stateful), domain="pop1", generation=1)
        check_it_takes(guest, "spreads", Tier.SPREAD, spreading, SPREADING_PORTS)


def test_a_firewall_boots_enrols_and_enforces(here: Served, tmp_path: Path) -> None:
    with here.client() as admin:
        admin.domains.create("pop1")
        wanted = admin.firewalls.add("pop1", NAME, "nftables")
        said = {
            "enrol_token": admin.enrolment.invite_group("pop1", "fleet", kind="nftables").token,
            "service_url": url(here),
            "plane": "nftables",
            "report_every": "1",
            "tenant_ranges": "",
            "left_port": MACS["left"],
            "right_port": MACS["right"],
        }
        with machine("firewall-vnf", user_data("firewall-vnf.yaml", said), tmp_path) as guest:
            guest.until(
                lambda: any(each.name == NAME for each in admin.points.read_all("pop1")), "that its agent enrols"
            )
            guest.until(lambda: admin.domains.wait_until_enforced("pop1", wanted).done, "that it was read back")
            check_it_filters(guest)
            guest.reboot()
            guest.until(lambda: is_forwarding(guest), "that it forwards again")
            check_it_filters(guest)


def is_forwarding(guest: Guest) -> bool:
    return guest.ssh("cat", "/proc/sys/net/ipv4/ip_forward").stdout.strip() == "1"


def check_it_filters(guest: Guest) -> None:
    """Its filter is there, its legs bear their names, sshd is reached by none of these, and it forwards."""
    assert guest.ssh("sudo", "nft", "list", "tables").stdout.count("aclflow") >= 1
    assert is_forwarding(guest)
    assert {"left", "right"} <= set(guest.ssh("ls", "/sys/class/net").stdout.split())
    bound = guest.ssh("systemctl", "show", "ssh.socket", "--property=BindToDevice", "--value").stdout.strip()
    assert bound not in ("", "left", "right")
    check_nothing_failed_and_nobody_logs_in_by_a_password(guest)


def test_a_switch_and_its_controller_boot_enrol_and_enforce(here: Served, tmp_path: Path) -> None:
    """Both on one machine, for which the template has two."""
    with here.client() as admin:
        admin.domains.create("pop1")
        wanted = admin.domains.add_host("pop1", Host("acl-0", datapath_of("pop1", "acl-0"), "uplink"))
        said = {
            "domain": "pop1",
            "index": "0",
            "controller_address": "127.0.0.1",
            "uplink_port": MACS["left"],
            "tenant_port": MACS["right"],
            "service_url": url(here),
            "tokens": admin.enrolment.invite("pop1", name="acl-0", kind="switch"),
        }
        invited = {"controller_token": admin.enrolment.invite("pop1"), "service_url": url(here)}
        switch = user_data("acl-switch.yaml", said)
        controller = user_data("security-domain.yaml", invited, resource="controller")
        with machine("acl-switch", together(switch, controller), tmp_path) as guest:
            guest.until(lambda: bool(admin.points.read_all("pop1")), "that its controller enrols")
            guest.until(lambda: admin.domains.wait_until_enforced("pop1", wanted).done, "that it was read back")
            assert guest.ssh("sudo", "ovs-vsctl", "get-fail-mode", "br-aclflow").stdout.strip() == "secure"
            assert set(guest.ssh("sudo", "ovs-vsctl", "list-ports", "br-aclflow").stdout.split()) == {
                "uplink",
                "tenants-0",
            }
            idle = guest.ssh("sudo", "ovs-vsctl", "get", "Open_vSwitch", ".", "other_config:max-idle").stdout
            assert idle.strip().strip('"') == "60000"
            assert read_flows(guest).count("cookie=") > 5
            whole = everything_that_a_list_can_ask_for(admin)
            for place in (WEB, DB):
                place.plug_in(guest)
            guest.until(
                lambda: admin.domains.wait_until_enforced("pop1", whole).done,
                "that the kernel's datapath takes all of it",
            )
            check_packets_are_decided(guest)
            check_other_tiers_can_have_such_a_switch(guest)
            keys = ("--tls-key", SWITCH, "--tls-certificate", SWITCH, "--tls-authority", AUTHORITY)
            again = guest.ssh("sudo", "aclflow", "host", "configure", "pop1", "acl-0", "--uplink", "uplink", *keys,
                              "--controller", "ssl:127.0.0.1:6653", "--check", "--json").stdout  # fmt: skip
            assert '"changed": false' in again
            check_nothing_failed_and_nobody_logs_in_by_a_password(guest)
            guest.reboot()
            for place in (WEB, DB):
                place.plug_in(guest)
            guest.until(lambda: all(each in read_flows(guest) for each in DB.addresses), "that it is loaded again")
            check_packets_are_decided(guest)
            assert {"uplink", "tenants-0"} <= set(guest.ssh("ls", "/sys/class/net").stdout.split())
