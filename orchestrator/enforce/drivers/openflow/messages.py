"""Single OpenFlow 1.5 messages: hello, features, configuration, role, ports, bundles, errors.

Flow entries come by the thousand and have modules of their own: `flowmods` writes them, `flowdesc` reads them.
Functions named after a request return its bytes; functions named ``read_...`` take an answer apart. Layouts are those
of the OpenFlow Switch Specification 1.5.1, section 7; every integer is big-endian.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.enforce.drivers.openflow.channel import HEADER
from orchestrator.errors import Drifted

VERSION = 6
"""OpenFlow 1.5 on the wire."""

ANY_PORT = ANY_GROUP = 0xFFFFFFFF
ALL_TABLES = 0xFF
NO_BUFFER = 0xFFFFFFFF


class Type(enum.IntEnum):
    """Message types."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    GET_CONFIG_REQUEST = 7
    GET_CONFIG_REPLY = 8
    SET_CONFIG = 9
    PACKET_IN = 10
    PORT_STATUS = 12
    FLOW_MOD = 14
    GROUP_MOD = 15
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    ROLE_REQUEST = 24
    ROLE_REPLY = 25
    METER_MOD = 29
    ROLE_STATUS = 30
    BUNDLE_CONTROL = 33
    BUNDLE_ADD = 34


class Multipart(enum.IntEnum):
    """Kinds of multipart request."""

    FLOW_DESC = 1
    GROUP_DESC = 7
    METER_DESC = 10
    PORT_DESC = 13


MORE_TO_COME = 1
"""The flag of a multipart reply that is not the last part."""


class Role(enum.IntEnum):
    """A controller's role for a switch."""

    NO_CHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


class BundleControl(enum.IntEnum):
    """A bundle's control message; a switch answers with the next number."""

    OPEN = 0
    OPENED = 1
    COMMIT = 4
    COMMITTED = 5
    DISCARD = 6
    DISCARDED = 7


ATOMIC_ORDERED = 3
"""Bundle flags: all or nothing, and in the order of sending."""


class Fragments(enum.IntEnum):
    """How a switch treats IP fragments (the low two bits of its configuration flags)."""

    NORMAL = 0
    DROP = 1
    REASSEMBLE = 2
    NX_MATCH = 3
    """First fragments show their ports, and `ip_frag` can be matched (an Open vSwitch extension)."""


def message(kind: Type, xid: int, body: bytes = b"") -> bytes:
    """Return a whole OpenFlow message."""
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def hello(xid: int) -> bytes:
    """Offer OpenFlow 1.5 and nothing else."""
    return message(Type.HELLO, xid, struct.pack("!HHI", 1, 8, 1 << VERSION))


def features_request(xid: int) -> bytes:
    """Ask for the switch's name."""
    return message(Type.FEATURES_REQUEST, xid)


def read_datapath_id(features_reply: bytes) -> int:
    """The 64-bit name in a features reply."""
    return int.from_bytes(features_reply[8:16], "big")


def barrier_request(xid: int) -> bytes:
    """Ask for an answer when everything before is done."""
    return message(Type.BARRIER_REQUEST, xid)


def role_request(xid: int, role: Role, generation: int) -> bytes:
    """Request `role`.

    A switch refuses generations (64 bits, wrapping) older than the newest it has heard.
    """
    return message(Type.ROLE_REQUEST, xid, struct.pack("!IHHQ", role, 0xFFFF, 0, generation & (1 << 64) - 1))


def read_role(reply: bytes) -> Role:
    """Return the role in a role reply."""
    return Role(struct.unpack_from("!I", reply, HEADER.size)[0])


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """A switch's configuration: its treatment of fragments, and bytes of packet-ins."""

    fragments: Fragments
    miss_send_bytes: int

    def pack(self) -> bytes:
        return struct.pack("!HH", self.fragments, self.miss_send_bytes)


def get_config_request(xid: int) -> bytes:
    """Ask for the configuration."""
    return message(Type.GET_CONFIG_REQUEST, xid)


def set_config(xid: int, config: SwitchConfig) -> bytes:
    """Set the configuration. A switch does not answer; read it back."""
    return message(Type.SET_CONFIG, xid, config.pack())


def read_config(reply: bytes) -> SwitchConfig:
    """The configuration in a reply."""
    flags, miss_send_bytes = struct.unpack_from("!HH", reply, HEADER.size)
    return SwitchConfig(Fragments(flags & 3), miss_send_bytes)


def multipart_request(kind: Multipart, xid: int, body: bytes) -> bytes:
    """A request whose answer may come in several messages."""
    return message(Type.MULTIPART_REQUEST, xid, struct.pack("!HH4x", kind, 0) + body)


MULTIPART_BODY = HEADER.size + 8
"""Where the body of a multipart reply begins."""


def port_desc_request(xid: int) -> bytes:
    """Ask for every port."""
    return multipart_request(Multipart.PORT_DESC, xid, struct.pack("!I4x", ANY_PORT))


_PORT = struct.Struct("!IHxx6sxx16s")


def read_ports(replies: Iterable[bytes]) -> dict[str, int]:
    """Interface name -> port number from the parts of a port-desc reply."""
    ports: dict[str, int] = {}
    for reply in replies:
        at = MULTIPART_BODY
        while at < len(reply):
            number, length, _, name = _PORT.unpack_from(reply, at)
            ports[name.rstrip(b"\0").decode()] = number
            at += length
    return ports


def bundle_control(xid: int, bundle: int, what: BundleControl) -> bytes:
    """Open, commit or discard an atomic, ordered bundle."""
    return message(Type.BUNDLE_CONTROL, xid, struct.pack("!IHH", bundle, what, ATOMIC_ORDERED))


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """A switch's error.

    `data` is the beginning of the message that it is about.
    """

    xid: int
    type: int
    code: int
    data: bytes

    def __str__(self) -> str:
        name, codes = _ERRORS.get(self.type, (f"error type {self.type}", ()))
        code = codes[self.code] if self.code < len(codes) else f"code {self.code}"
        return f"{name}: {code}"


def read_error(raw: bytes) -> ErrorMessage:
    """An error message taken apart."""
    xid, kind, code = struct.unpack_from("!4xIHH", raw)
    return ErrorMessage(xid, kind, code, raw[HEADER.size + 4 :])


def errors_in(answers: Iterable[bytes]) -> list[ErrorMessage]:
    """The errors among the answers of an exchange, in order."""
    return [read_error(raw) for raw in answers if raw[1] == Type.ERROR]


def only(answers: Iterable[bytes], kind: Type, xid: int) -> bytes:
    """The answer of one kind to one request. Raises Drifted if the switch gave none."""
    for raw in answers:
        _, found, _, answered = HEADER.unpack_from(raw)
        if found == kind and answered == xid:
            return raw
    raise Drifted(f"the switch gave no {kind.name.lower().replace('_', ' ')}")


def multipart_replies(answers: Iterable[bytes], xids: range) -> list[bytes]:
    """The multipart replies among the answers to any of `xids`."""
    return [raw for raw in answers if raw[1] == Type.MULTIPART_REPLY and HEADER.unpack_from(raw)[3] in xids]


_ERRORS: dict[int, tuple[str, tuple[str, ...]]] = {
    0: ("hello failed", ("no common version", "not permitted")),
    1: (
        "bad request",
        (
            "wrong version", "unknown message type", "unknown multipart type", "unknown experimenter",
            "unknown experimenter type", "not permitted", "wrong length", "buffer was used", "unknown buffer",
            "no such table", "we are not its master", "no such port", "bad packet", "multipart too long",
            "multipart request timed out", "multipart reply timed out",
        ),
    ),
    2: (
        "bad action",
        (
            "unknown action", "wrong length", "unknown experimenter", "unknown experimenter type", "no such port",
            "bad argument", "not permitted", "too many actions", "no such queue", "no such group",
            "does not go with the match", "unsupported order", "bad tag", "a field that cannot be set",
            "wrong length of a field", "value out of range", "bad mask",
        ),
    ),
    3: (
        "bad instruction",
        (
            "unknown instruction", "unsupported instruction", "goes to no table or backwards", "unsupported metadata",
            "unsupported metadata mask", "unknown experimenter", "unknown experimenter type", "wrong length",
            "not permitted", "the same instruction twice",
        ),
    ),
    4: (
        "bad match",
        (
            "unknown match type", "wrong length", "unsupported tag", "unsupported mask of a link address",
            "unsupported mask of a network address", "unsupported wildcards", "unknown field", "value out of range",
            "unsupported mask", "a field without what it needs before it", "the same field twice", "not permitted",
        ),
    ),
    5: (
        "flow not taken",
        (
            "no reason given", "the table is full", "no such table", "overlaps another of its priority",
            "not permitted", "bad time-out", "unknown command", "unknown flags", "cannot be synchronised",
            "bad priority", "is synchronised",
        ),
    ),
    6: (
        "group not taken",
        (
            "it exists already", "a bad group", "no weights", "no more groups", "no more buckets", "no chaining",
            "no watching", "a loop", "no such group", "it leads to another group", "bad type", "bad command",
            "a bad bucket", "a bad port", "not permitted", "unknown bucket", "the bucket exists already",
        ),
    ),
    12: (
        "meter not taken",
        (
            "no reason given", "it exists already", "a number that no meter has", "no such meter", "unknown command",
            "unknown flags", "wrong rate", "wrong burst", "wrong band", "wrong value of a band", "too many meters",
            "too many bands",
        ),
    ),
    11: ("role not granted", ("a newer master was here", "unsupported", "unknown role", "no identity", "not ours")),
    17: (
        "bundle not taken",
        (
            "no reason given", "not permitted", "no such bundle", "the bundle exists already", "the bundle is closed",
            "too many bundles", "unknown control type", "flags differ", "wrong length of a message",
            "xid of a message differs", "a message that cannot be bundled", "conflicting messages",
            "too many messages", "a message in it failed", "timed out", "another bundle is open",
        ),
    ),
}  # fmt: skip
