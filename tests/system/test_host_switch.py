"""A host's switch made and given back on real Open vSwitch: packets through a bridge that somebody used stop at once.

left ══ br ══ right      two namespaces, and a bridge that learns addresses between them
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hosts.certifying import Service
from identity.handshake import written
from patience import PATIENCE_S, until

from orchestrator.errors import Refused, Unreachable
from orchestrator.hosts.certificate import SwitchCertificate
from orchestrator.hosts.ovs import LocalSwitch
from orchestrator.hosts.switch import Datapath, Tls, Wanted
from orchestrator.identity.authority import MACHINE_LASTS, Authority
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key
from orchestrator.identity.trust import load_chain
from orchestrator.lab import namespaces, network
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.processes import stop

AF_XDP = 44
CORE = max(os.sched_getaffinity(0))
CONTROLLERS = ("tcp:127.0.0.1:6653", "tcp:127.0.0.2:6653")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def ovs(layout: Layout) -> Iterator[OpenVSwitch]:
    """Open vSwitch in a namespace with two ports that lead to namespaces of their own."""
    directory = layout.run_dir
    directory.mkdir(parents=True)
    names = [layout.ovs_namespace, layout.namespace("left"), layout.namespace("right")]
    for name in names:
        namespaces.create(name)
    switch = OpenVSwitch(directory / "ovs", names[0], mark=directory, logs=directory)
    switch.create()
    running = [switch.start_database(), switch.start_switch()]
    for number, (port, name) in enumerate(zip(("p-left", "p-right"), names[1:], strict=True), 1):
        ip("-n", names[0], "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("-n", names[0], "link", "set", port, "up")
        ip("-n", name, "address", "add", f"192.0.2.{number}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        namespaces.inside(name, lambda: network.without_offloads("eth0"))
    yield switch
    stop(running)
    for name in names:
        namespaces.remove(name)
    shutil.rmtree(directory)


def passes(layout: Layout) -> bool:
    command = ["ip", "netns", "exec", layout.namespace("left"), "ping", "-c", "2", "-i", "0.2", "-W", "1", "192.0.2.2"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def wanted(**more: object) -> Wanted:
    return Wanted("pop1", "host1", "p-left", CONTROLLERS, bridge="br", datapath=Datapath.NETDEV, **more)


def test_somebodys_bridge_is_left_alone_then_taken_over_and_given_back_closed(layout: Layout, ovs: OpenVSwitch) -> None:
    here = LocalSwitch(ovs.run_dir)
    ovs.vsctl("add-br", "br", "--", "set", "bridge", "br", "datapath_type=netdev")
    ovs.vsctl("add-port", "br", "p-left", "--", "add-port", "br", "p-right")
    assert passes(layout)
    with pytest.raises(Refused, match="in use"):
        here.configure(wanted())
    assert here.configure(wanted(adopt=True), check=True).changed
    assert passes(layout), "refused or only tried: nothing was changed"
    assert here.configure(wanted(adopt=True)).changed
    assert not passes(layout)
    assert not here.configure(wanted(adopt=True)).changed
    ovs.ofctl("add-flow", "br", "priority=1,cookie=0xac10000000000000,actions=normal")  # as a program of ours permits
    assert passes(layout)
    assert not here.configure(wanted()).changed, "it is ours now, and its flows stay"
    assert passes(layout)
    assert here.release("br", "pop1").changed
    until(lambda: not passes(layout), what=lambda: "given back it forwards nothing, and learns no addresses again")
    assert ovs.vsctl("get", "bridge", "br", "fail_mode").strip() == "secure"
    assert not here.release("br", "pop1").changed


def test_a_bridge_of_ours_is_default_off_from_its_first_moment_and_goes(layout: Layout, ovs: OpenVSwitch) -> None:
    here = LocalSwitch(ovs.run_dir)
    assert here.configure(wanted()).changed
    ovs.vsctl("add-port", "br", "p-right")
    assert ovs.ofctl("dump-flows", "br").count("cookie") == 0
    assert not passes(layout)
    ovs.ofctl("add-flow", "br", "cookie=0xac10000000000000,actions=normal")
    fewer = Wanted("pop1", "host1", "p-left", CONTROLLERS[:1], bridge="br", datapath=Datapath.NETDEV)
    assert here.configure(fewer).changed
    assert passes(layout), "other controllers do not cost the flows"
    assert not here.configure(fewer).changed
    with pytest.raises(Refused, match="belongs to the domain 'pop1'"):
        here.configure(Wanted("pop2", "host1", "p-left", CONTROLLERS, bridge="br", adopt=True))
    with pytest.raises(Refused, match=r"del-port p-left"):
        here.configure(Wanted("pop1", "host1", "p-left", CONTROLLERS, bridge="other"))
    assert here.release("br", "pop1").changed
    assert ovs.vsctl("list-br") == ""


def test_a_daemon_that_was_killed_is_told_from_the_one_that_runs(ovs: OpenVSwitch) -> None:
    here = LocalSwitch(ovs.run_dir)
    assert here.configure(wanted()).changed
    (running,) = ovs.run_dir.glob("ovs-vswitchd*.ctl")
    left = ovs.run_dir / "ovs-vswitchd.zzz.ctl"
    with socket.socket(socket.AF_UNIX) as of_the_dead:
        of_the_dead.bind(str(left))
    os.utime(left, (1, 1))
    assert not here.configure(wanted()).changed
    os.utime(running, (0, 0))
    with pytest.raises(Unreachable, match="ovs-vswitchd does not run: systemctl start"):
        here.configure(wanted())


@pytest.mark.skipif(Path("/sys/module/openvswitch").exists(), reason="the kernel has Open vSwitch's module")
def test_a_bridge_that_the_daemon_cannot_make_is_no_success(ovs: OpenVSwitch) -> None:
    here = LocalSwitch(ovs.run_dir)
    for _ in range(2):
        with pytest.raises(Refused, match=r"cannot make the bridge 'br' with the datapath 'system': modprobe"):
            here.configure(replace(wanted(), datapath=Datapath.SYSTEM))
    assert here.configure(wanted()).changed


def test_a_daemon_that_is_stuck_is_named(ovs: OpenVSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.hosts.ovs._PATIENCE_S", 1)
    (running,) = ovs.run_dir.glob("ovs-vswitchd*.ctl")
    running.unlink()
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(running))
        stuck.listen()
        with pytest.raises(Unreachable, match=r"got no answer from ovs-vswitchd in 1 s.*journalctl"):
            LocalSwitch(ovs.run_dir).configure(wanted())


def test_a_switch_that_gets_its_certificate_later_dials_then(layout: Layout, ovs: OpenVSwitch, tmp_path: Path) -> None:
    """As a machine that a cloud made: configured at once, its files come when the service has given a certificate."""
    files = SwitchCertificate("pop1", "host1", tmp_path / "tls")
    tls = Tls(str(files.file), str(files.file), str(files.authority))
    with namespaces.inside(layout.ovs_namespace, lambda: socket.create_server(("127.0.0.1", 0))) as listening:
        target = f"ssl:127.0.0.1:{listening.getsockname()[1]}"
        LocalSwitch(ovs.run_dir).configure(
            Wanted("pop1", "host1", "p-left", (target,), bridge="br", datapath=Datapath.NETDEV, tls=tls)
        )
        listening.settimeout(PATIENCE_S)
        ip("-n", layout.ovs_namespace, "link", "set", "lo", "up")
        until(lambda: "Private key must be configured" in (ovs.logs / "ovs-vswitchd.log").read_text())
        now = dt.datetime.now(dt.UTC)
        service = Service(Authority.create("test", now), name="host1", now=now)
        assert files.obtain("https://192.0.2.1:8420", service.token("one"), None, service.connect, now)
        shown = _shown(listening, service.authority_, tmp_path)
    assert ("URI", "aclflow://pop1/switch/host1") in shown


def _shown(listening: socket.socket, authority: Authority, folder: Path) -> tuple[tuple[str, str], ...]:
    """The names in the certificate that whoever dials shows, once somebody does."""
    key, now = new_key(), dt.datetime.now(dt.UTC)
    issued = authority.issue(Subject(Usage.CONTROLLER, "pop1", "c1"), key.public_key(), now, MACHINE_LASTS)
    shown = written(folder, "controller.pem", key, issued)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, shown, shown)
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    while True:
        dialled, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(dialled, server_side=True) as spoken:
            return (spoken.getpeercert() or {})["subjectAltName"]


def test_what_is_wrong_is_said(layout: Layout, ovs: OpenVSwitch, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot use the uplink"):
        LocalSwitch(ovs.run_dir).configure(Wanted("pop1", "h", "nowhere", CONTROLLERS, datapath=Datapath.NETDEV))
    with pytest.raises(Unreachable):
        LocalSwitch(tmp_path).configure(wanted())


def test_the_command_says_the_same(ovs: OpenVSwitch) -> None:
    command = [
        sys.executable,
        "-m",
        "orchestrator.cli",
        "host",
        "configure",
        "pop1",
        "host1",
        "--run-dir",
        str(ovs.run_dir),
    ]
    words = [
        "--uplink",
        "p-left",
        "--controller",
        CONTROLLERS[0],
        "--datapath",
        "netdev",
        "--port",
        "p-right",
        "--json",
    ]
    tried, done, again = (
        json.loads(subprocess.run([*command, *words, *more], capture_output=True, text=True, check=True).stdout)
        for more in (["--check"], [], [])
    )
    assert tried == done
    assert done["changed"]
    assert not again["changed"]
    assert set(ovs.vsctl("list-ports", "br-aclflow").split()) == {"p-left", "p-right"}


@pytest.fixture
def polls(ovs: OpenVSwitch) -> OpenVSwitch:
    """The same, where switch and kernel have AF_XDP."""
    try:
        socket.socket(AF_XDP, socket.SOCK_RAW).close()
    except OSError as error:
        pytest.skip(f"the kernel has no AF_XDP: {error.strerror}")
    if "afxdp" not in ovs.vsctl("get", "Open_vSwitch", ".", "iface_types"):
        pytest.skip("this Open vSwitch was built without AF_XDP")
    return ovs


def configure(ovs: OpenVSwitch, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command where the switch's interfaces are."""
    command = [
        *("ip", "netns", "exec", ovs.namespace, sys.executable, "-m", "orchestrator.cli", "host", "configure"),
        *("pop1", "host1", "--run-dir", str(ovs.run_dir), "--bridge", "br", "--uplink", "p-left", "--json"),
        *("--controller", CONTROLLERS[0], "--datapath", "netdev", *words),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False)


def changes(ovs: OpenVSwitch, *words: str) -> bool:
    done = configure(ovs, *words)
    assert done.returncode == 0, done.stderr
    return bool(json.loads(done.stdout)["changed"])


def test_a_core_polls_the_uplink_until_that_is_taken_back(layout: Layout, polls: OpenVSwitch) -> None:
    polling = ("--polling-cores", str(CORE))
    assert changes(polls, *polling)
    polls.vsctl("add-port", "br", "p-right")
    polls.ofctl("add-flow", "br", "cookie=0xac10000000000000,actions=normal")
    assert f"core_id {CORE}" in polls.appctl("dpif-netdev/pmd-rxq-show")
    assert "p-left" in polls.appctl("dpif-netdev/pmd-rxq-show")
    until(lambda: passes(layout), what=lambda: "an echo goes in by the uplink, and its answer out")
    assert not changes(polls, *polling)
    assert not changes(polls), "nobody asks for polling, or against it"
    polls.vsctl("set", "interface", "p-left", "options:xdp-mode=generic")
    assert not changes(polls, *polling), "what was set by hand stays"
    assert polls.vsctl("get", "interface", "p-left", "options:xdp-mode").strip() == "generic"
    assert "p-left" in polls.appctl("dpif-netdev/pmd-rxq-show")
    until(lambda: passes(layout))
    polls.vsctl("set", "interface", "p-left", "type=system")
    polls.vsctl("remove", "Open_vSwitch", ".", "other_config", "pmd-cpu-mask")
    assert "p-left" not in polls.appctl("dpif-netdev/pmd-rxq-show")
    assert not changes(polls)
    until(lambda: passes(layout))


def test_an_uplink_that_cannot_be_polled_is_told(layout: Layout, polls: OpenVSwitch) -> None:
    polling = ("--polling-cores", str(CORE))
    ip("-n", polls.namespace, "link", "set", "p-left", "mtu", "9000")
    assert "polling_cores: the uplink p-left has an MTU of 9000" in configure(polls, *polling).stderr
    assert polls.vsctl("list-br") == "", "nothing was changed"
    ip("-n", polls.namespace, "link", "set", "p-left", "mtu", "1500")
    ip("-n", polls.namespace, "address", "add", "192.0.2.11/24", "dev", "p-left")
    assert "p-left has the machine's address 192.0.2.11" in configure(polls, *polling).stderr
    ip("-n", polls.namespace, "address", "flush", "dev", "p-left")
    assert changes(polls)
    polls.vsctl("set", "interface", "p-left", "options:xdp-mode=native-with-zerocopy")
    for _ in range(2):
        said = configure(polls, *polling).stderr
        assert "cannot poll the uplink by AF_XDP" in said, said
    assert "options:xdp-mode=generic" in configure(polls).stderr, "also to whom asks for nothing"
    polls.vsctl("set", "interface", "p-left", "options:xdp-mode=generic")
    assert not changes(polls, *polling)
