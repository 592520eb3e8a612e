"""Documents beside a tenant's list: expectations, how a list fares with them, and shared drafts."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from orchestrator.wire.common import author_in_words, describe, document

Word = Literal["permit", "deny"]


@document()
class SamplePacket:
    """A packet to try something with; fields that it does not have are zero."""

    source: str
    destination: str
    protocol: str
    source_port: int
    destination_port: int
    icmp_type: int
    icmp_code: int
    tcp_flags: int
    later_fragment: bool
    dscp: int = 0


@document()
class AskedList:
    """One list's answer to a packet.

    `rule` is null where a default decided, `direction` for operator rules.
    """

    direction: Literal["ingress", "egress"] | None
    action: Word
    rule: str | None


@document()
class JudgedExpectation:
    """Whether a list keeps an expectation, with a counterexample if not.

    The counterexample is a packet that is decided otherwise, and the lists that decide it.
    """

    text: str
    place: str = describe("the file or text, and the line")
    kept: bool = describe("every packet is decided as expected")
    witness: str | None = describe("the packet in words")
    packet: SamplePacket | None = describe("the same, for programs")
    decided: tuple[AskedList, ...] = describe("who decided it, in the order in which they were asked")


@document()
class JudgedList:
    """Which expectations a list keeps, in their order.

    `version` is null for a list that was sent.
    """

    version: int | None
    broken: int
    expectations: tuple[JudgedExpectation, ...]


@document()
class KeptExpectations:
    """The expectations that every change of a tenant's list must keep.

    Without any, text and author are empty.
    """

    text: str
    author: str
    created: dt.datetime | None
    version: int = describe("grows with each change of them; 0 where there are none")
    author_name: str = describe("how its author was called then: what the token was described as", default="")

    def by(self) -> str:
        """Return its author in words: ``Ann (member 3)``."""
        return author_in_words(self.author, self.author_name)

    @property
    def etag(self) -> str:
        """The ETag that they were read at."""
        return f'"{self.version}"'


@document()
class SharedDraft:
    """A draft of a tenant's list that its members may look at."""

    id: str
    author: str
    created: dt.datetime
    expires: dt.datetime
    base_version: int = describe("the version of the list that it was begun from")
    message: str
    author_name: str = describe("how its author was called then: what the token was described as", default="")

    def by(self) -> str:
        """Return its author in words: ``Ann (member 3)``."""
        return author_in_words(self.author, self.author_name)
