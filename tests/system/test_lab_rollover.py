"""The authority is rolled over beneath a whole lab: real processes, switches, a firewall, and packets all the while."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S, until
from system.dialing import believe, give_switches, identity_of_switches, is_answered, showing
from system.patrol import Patrol
from system.test_firewall_path import LIST, SHOP, TRIED, packet
from system.test_firewall_path import POP as ROUTED

from orchestrator.cli.run import main
from orchestrator.client import Client
from orchestrator.enforce.state import StateDir
from orchestrator.errors import Unauthenticated, Unreachable
from orchestrator.identity.authority import Authority, is_signed_by
from orchestrator.identity.files import AuthorityDir, encoded_key, parsed_certificate, read_certificate, write_file
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key
from orchestrator.identity.trust import client_context
from orchestrator.lab import pop
from orchestrator.lab.expect import landing, policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import CONTROLLER, SERVICE, Around, ControlPlane, agent_of
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.model import Acl
from orchestrator.policy.protocols import TCP, UDP

LOOK_OFTEN = {"ACLFLOW_CERTIFICATE_LOOK_S": "1", "ACLFLOW_CERTIFICATE_OVERLAP_S": "5"}
POP = ROUTED.with_uplinks(routed=False)
"""One Open vSwitch is both hosts' switch, with one certificate."""
AGENT = agent_of(POP.firewalls[0])
POINTS = (CONTROLLER, AGENT)
LESS = Acl(LIST.rules[:2])
ALWAYS = [packet("192.0.2.1", "198.51.100.10", TCP, 80), packet("2001:db8:ffff::1", "2001:db8:100::20", UDP, 53)]
NEVER = [packet("192.0.2.1", "198.51.100.10", TCP, 81), packet("192.0.2.1", "198.51.100.20", TCP, 80)]


@pytest.fixture
def lab(layout: Layout) -> Iterator[Lab]:
    with pop.temporary(layout, POP) as lab:
        yield lab


@pytest.fixture
def plane(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    plane = ControlPlane(lab, tls=True, around=Around(environment=LOOK_OFTEN))
    plane.start({SHOP: LIST})
    monkeypatch.setenv("ACLFLOW_STATE_DIR", str(lab.layout.run_dir / SERVICE))
    return plane


def put(plane: ControlPlane, lab: Lab, acl: Acl) -> None:
    """Change the list, wait until everybody holds it, and send packets."""
    with plane.client() as client:
        plane.wait_enforced(client, client.acls.put(SHOP, acl).generation, PATIENCE_S)
    policy = policy_of(POP, {SHOP: acl})
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, sender, each) for sender, each in TRIED])
    assert [one.nodes for one in landed] == [landing(POP, policy, each) for _, each in TRIED]


def rotate(plane: ControlPlane, lab: Lab, *options: str) -> None:
    """A step on the service's machine, and the restart after it."""
    assert main(["certificates", "rotate", *options]) == 0
    lab.kill(SERVICE)
    plane.start_service()


def count_believed(lab: Lab, point: str) -> int:
    """Of how many authorities an enforcement point was told."""
    return StateDir(lab.layout.run_dir / point).authority_file.read_text().count("BEGIN CERTIFICATE")


def identity(lab: Lab, point: str) -> Path:
    return StateDir(lab.layout.run_dir / point).identity_file


def bears_one_by(lab: Lab, point: str, authority: Path) -> bool:
    own = "-----BEGIN CERTIFICATE" + identity(lab, point).read_text().partition("-----BEGIN CERTIFICATE")[2]
    return is_signed_by(own, read_certificate(authority))


def left_by(plane: ControlPlane, former: Path) -> set[str]:
    """Whose certificates are valid, and by the former authority."""
    by = read_certificate(former)
    with plane.client() as client:
        return {
            each.name
            for each in client.certificates.read_all(POP.domain)
            if each.valid and is_signed_by(each.certificate, by)
        }


def forge_switch(authority: Authority, path: Path) -> Path:
    """Make what one has who stole an authority's key: a certificate of a switch that stands in no book."""
    key, now = new_key(), dt.datetime.now(dt.UTC)
    made = authority.issue(Subject(Usage.SWITCH, POP.domain, "host1"), key.public_key(), now, dt.timedelta(days=1))
    write_file(path, encoded_key(key) + made.pem.encode(), 0o600)
    return path


@pytest.mark.timeout(1200)
def test_the_authority_is_rolled_over_while_rules_change_and_nobody_enrols_again(
    plane: ControlPlane, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = plane.authority
    assert authority is not None
    stolen = AuthorityDir(shutil.copytree(authority.parent, tmp_path / "stolen")).load()
    former, of_switch, of_agent = (tmp_path / name for name in ("former.pem", "switch.pem", "agent.pem"))
    forged = forge_switch(stolen, tmp_path / "forged.pem")
    write_file(former, authority.read_bytes(), 0o600)
    write_file(of_switch, identity_of_switches(lab).read_bytes(), 0o600)
    write_file(of_agent, identity(lab, AGENT).read_bytes(), 0o600)
    with Patrol(lab, "outside", NEVER, ALWAYS):
        rotate(plane, lab)
        until(lambda: [count_believed(lab, point) for point in POINTS] == [2, 2], PATIENCE_S)
        both = lab.layout.run_dir / "authorities.pem"
        with plane.client() as client:
            both.write_text(client.enrolment.read_authority())
        believe(lab, both, *(lab.ovs_of("host1").run_dir / name for name in ("switches.key", "switches.pem")))
        put(plane, lab, LESS)
        assert all(bears_one_by(lab, point, former) for point in POINTS), "nobody renews before the new one signs"

        rotate(plane, lab)
        until(lambda: all(bears_one_by(lab, point, authority) for point in POINTS), PATIENCE_S)
        assert "host1" in left_by(plane, former)
        assert is_answered(lab.controller_address, showing(of_switch)), "the switches' certificate is still good"
        assert is_answered(lab.controller_address, showing(forged)), "so is whatever the former authority signed"
        put(plane, lab, LIST)
        assert main(["certificates", "rotate", "--finish"]) == 1
        serial = f"{parsed_certificate(of_switch.read_bytes(), 'x').serial_number:040x}"
        assert f"host1 ({serial})" in capsys.readouterr().err
        give_switches(plane, lab, "host1", "host2")
        with plane.client() as client:
            client.certificates.revoke(serial)
        put(plane, lab, LESS)
        until(lambda: not left_by(plane, former), PATIENCE_S)

        rotate(plane, lab, "--finish")
        until(lambda: [count_believed(lab, point) for point in POINTS] == [1, 1], PATIENCE_S)
        put(plane, lab, LIST)
        assert not is_answered(lab.controller_address, showing(forged))
        trust = client_context(authority.read_text())
        trust.load_cert_chain(of_agent)
        with Client(plane.url, trust=trust) as client, pytest.raises((Unauthenticated, Unreachable)):
            client.domains.read_hosts(POP.domain)
        for point in POINTS:
            lab.kill(point)
        assert set(plane.supervise()) == set(POINTS)
        put(plane, lab, LESS)
