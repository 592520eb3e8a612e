"""A live domain that tracks its connections: service, controller, two real switches, real TCP between endpoints."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

import pytest
from patience import until
from system.shooting import F4, POP, both, packet, port

from orchestrator.lab import pop
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import SWITCH
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.model import Acl, Action, Packet, ReturnTraffic, Rule, RuleId, TenantId
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.tcpflags import TcpFlag

SHOP = TenantId("shop")
DATABASE, WEB, NAMES = 5432, 443, 53
ADDRESS = {name: str(both(name).prefixes[0]).partition("/")[0] for name in ("web1", "db1")}
STRAY = packet("db1", "web1", F4, TCP, 9999, 40000, tcp_flags=TcpFlag.ACK)
CUT_WITHIN_S, ANSWERS_WITHIN_S = 1.0, 20.0


def permit(number: int, protocol: int = TCP) -> Rule:
    where = {"source": both("web1"), "destination": both("db1"), "destination_ports": port(number)}
    return Rule(RuleId(f"p{number}"), Action.PERMIT, protocol=protocol, **where)


ALL = Acl((permit(DATABASE), permit(WEB), permit(NAMES, UDP)))


@dataclass(frozen=True)
class Talk:
    """A TCP connection between two endpoints, both ends in this process."""

    client: socket.socket
    server: socket.socket

    def goes_on(self, within_s: float) -> bool:
        """Whether a byte comes to the server and an answer back; bytes of earlier tries may come first."""
        try:
            for sender, receiver in ((self.client, self.server), (self.server, self.client)):
                sender.sendall(b"x")
                receiver.settimeout(within_s)
                if not receiver.recv(1 << 16):
                    return False
        except OSError:
            return False
        return True


class Ends:
    """Sockets of web1 and db1."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._listening = {number: lab.inside("db1", lambda n=number: _listen(n)) for number in (DATABASE, WEB)}

    def connect(self, number: int, within_s: float = ANSWERS_WITHIN_S) -> Talk | None:
        client = self._lab.inside("web1", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        client.settimeout(within_s)
        try:
            client.connect((ADDRESS["db1"], number))
        except OSError:
            client.close()
            return None
        server, _ = self._listening[number].accept()
        return Talk(client, server)

    def opens(self, number: int) -> Talk:
        found: list[Talk] = []

        def tries() -> bool:
            talk = self.connect(number, 2.0)
            found.extend([talk] if talk else [])
            return talk is not None

        until(tries)
        return found[-1]

    def asks(self) -> bool:
        """Whether a datagram is answered."""
        client, server = (self._lab.inside(name, _datagrams) for name in ("web1", "db1"))
        with client, server:
            server.bind((ADDRESS["db1"], NAMES))
            for each in (client, server):
                each.settimeout(ANSWERS_WITHIN_S)
            client.sendto(b"?", (ADDRESS["db1"], NAMES))
            question, asker = server.recvfrom(16)
            server.sendto(b"!", asker)
            client.settimeout(CUT_WITHIN_S)
            try:
                return (question, client.recv(16)) == (b"?", b"!")
            except TimeoutError:
                return False


def _listen(number: int) -> socket.socket:
    made = socket.create_server((ADDRESS["db1"], number))
    made.settimeout(ANSWERS_WITHIN_S)
    return made


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def arrives(lab: Lab, sent: Packet) -> bool:
    with Wire(lab, ["web1", "db1"]) as wire:
        (landed,) = wire.fire([shot(lab, "db1", sent)])
        return landed.nodes == ("web1",)


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Lab:
    return pop.up(layout, POP)


@pytest.fixture(scope="module")
def plane(lab: Lab) -> ControlPlane:
    made = ControlPlane(lab)
    made.start({SHOP: ALL})
    return made


def test_a_live_domain_tracks_its_connections_and_a_change_cuts_what_it_forbids(lab: Lab, plane: ControlPlane) -> None:
    ends = Ends(lab)
    with plane.client() as client:

        def choose(setting: ReturnTraffic) -> None:
            plane.wait_enforced(client, client.domains.set_return_traffic(POP.domain, setting).generation)

        assert arrives(lab, STRAY), "what looks like a reply comes in"
        assert not ends.asks(), "and an answer over UDP does not"
        choose(ReturnTraffic.TRACKED)
        assert not arrives(lab, STRAY)
        assert ends.asks()
        database, web = ends.opens(DATABASE), ends.opens(WEB)
        assert all(talk.goes_on(ANSWERS_WITHIN_S) for talk in (database, web))

        plane.wait_enforced(client, client.acls.put(SHOP, Acl(ALL.rules[1:])).generation)
        time.sleep(CUT_WITHIN_S)
        assert not database.goes_on(CUT_WITHIN_S)
        assert ends.connect(DATABASE, CUT_WITHIN_S) is None
        assert web.goes_on(ANSWERS_WITHIN_S), "no other connection is cut"

        choose(ReturnTraffic.ESTABLISHED)
        assert web.goes_on(ANSWERS_WITHIN_S), "connections go on without tracking"
        choose(ReturnTraffic.TRACKED)


def test_a_restarted_switch_has_lost_its_connections(lab: Lab, plane: ControlPlane) -> None:
    ends = Ends(lab)
    talk = ends.opens(WEB)
    assert talk.goes_on(ANSWERS_WITHIN_S)
    lab.kill(SWITCH)
    lab.start_switch()
    again = ends.opens(WEB)
    assert not talk.goes_on(CUT_WITHIN_S)
    assert again.goes_on(ANSWERS_WITHIN_S)
