"""Messages to nf_tables: what the kernel does not answer is no fault of ours, and what still comes is forgotten."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from orchestrator.enforce.drivers.nftables import netlink
from orchestrator.enforce.drivers.nftables.netlink import DUMP, GETTABLE, Netlink
from orchestrator.errors import Unreachable


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """The other ends of the sockets that were opened, oldest first."""
    theirs: list[socket.socket] = []

    def opened() -> socket.socket:
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.settimeout(0.0)
        theirs.append(other)
        return ours

    monkeypatch.setattr(netlink, "_open_socket", opened)
    yield theirs
    for each in theirs:
        each.close()


def test_a_question_without_an_answer_begins_anew(kernel: list[socket.socket]) -> None:
    link = Netlink()
    with pytest.raises(Unreachable, match="netlink"):
        list(link.ask(GETTABLE, DUMP, 2))
    assert len(kernel) == 2, "an answer to it that comes late would be taken for that to the next"
    link.close()


def test_asking_over_a_socket_that_was_closed_begins_anew(kernel: list[socket.socket]) -> None:
    link = Netlink()
    link.close()
    with pytest.raises(Unreachable):
        link.generation()
    assert len(kernel) == 2
    link.close()
