"""One controller's connection to the fake switch: OpenFlow 1.5 bytes in, bytes out.

Roles and bundles belong to a session, flows to the switch. Refusals and their errors follow Open vSwitch 3.1: a message
that cannot be read is left out of its bundle, and a commit that fails complains twice, under the number of the message
that failed and under its own.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.channel import HEADER, StreamChannel
from orchestrator.enforce.drivers.openflow.fake import fields, groups, replies
from orchestrator.enforce.drivers.openflow.fake.actions import CopyField, Instructions, Pop, SetField, read_instructions
from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason
from orchestrator.enforce.drivers.openflow.fake.groups import read_group_mod
from orchestrator.enforce.drivers.openflow.fake.switch import TABLES, FakeSwitch, FlowFilter, Undo
from orchestrator.enforce.drivers.openflow.fake.table import Entry
from orchestrator.enforce.drivers.openflow.messages import (
    ALL_TABLES,
    BundleControl,
    Fragments,
    Multipart,
    Role,
    SwitchConfig,
    Type,
)

_FLOW_MOD = struct.Struct("!QQBBHHHIIIHH")
_ADD, _DELETE, _DELETE_STRICT = 0, 3, 4
_NEEDS_MASTERY = frozenset({Type.FLOW_MOD, Type.GROUP_MOD, Type.METER_MOD, Type.BUNDLE_CONTROL, Type.BUNDLE_ADD})

_UNKNOWN_TO_LINUX = frozenset({"nd_reserved", "nd_options_type"})

Change = Callable[[Undo], None]
"""Something to do to the switch, which notes how to take it back."""


@dataclass(slots=True)
class _Bundle:
    """Messages kept for a commit: each with what it does."""

    flags: int
    changes: list[tuple[bytes, Change]] = field(default_factory=list)


class Session:
    """One connection. `feed` takes bytes as they come and returns the bytes to send back.

    `push` is called with bytes that the switch sends of its own accord.
    """

    def __init__(self, switch: FakeSwitch, push: Callable[[bytes], object] = lambda _: None) -> None:
        self.switch = switch
        self._push = push
        self._rest = b""
        self._role = Role.EQUAL
        self._miss_send_bytes = 128
        self._bundles: dict[int, _Bundle] = {}
        switch.port_watchers.append(self._tell_ports)
        switch.role_watchers.append(self._lose_mastery)
        switch.report_watchers.append(self._tell_report)
        self._handlers: dict[int, Callable[[bytes], bytes]] = {
            Type.HELLO: lambda _: b"",
            Type.ERROR: lambda _: b"",
            Type.ECHO_REPLY: lambda _: b"",
            Type.ECHO_REQUEST: lambda raw: replies.answer(raw, Type.ECHO_REPLY, raw[8:]),
            Type.FEATURES_REQUEST: self._reply_features,
            Type.GET_CONFIG_REQUEST: self._reply_config,
            Type.SET_CONFIG: self._set_config,
            Type.BARRIER_REQUEST: lambda raw: replies.answer(raw, Type.BARRIER_REPLY),
            Type.ROLE_REQUEST: self._change_role,
            Type.MULTIPART_REQUEST: self._reply_description,
            Type.FLOW_MOD: self._change_at_once,
            Type.GROUP_MOD: self._change_at_once,
            Type.METER_MOD: self._change_meter,
            Type.BUNDLE_CONTROL: self._control_bundle,
            Type.BUNDLE_ADD: self._add_to_bundle,
        }

    def hello(self) -> bytes:
        """Return the switch's first message."""
        return messages.hello(0)

    def feed(self, data: bytes) -> bytes:
        """Handle every message that is whole by now; the answers."""
        self._rest += data
        view, at, answers = memoryview(self._rest), 0, []
        while len(view) - at >= HEADER.size:
            length = max(HEADER.unpack_from(view, at)[2], HEADER.size)
            if at + length > len(view):
                break
            answers.append(self._handle_message(bytes(view[at : at + length])))
            at += length
        self._rest = self._rest[at:]
        return b"".join(answers)

    def close(self) -> None:
        """End the session; its bundles are dropped."""
        self._bundles.clear()
        self.switch.port_watchers.remove(self._tell_ports)
        self.switch.role_watchers.remove(self._lose_mastery)
        self.switch.report_watchers.remove(self._tell_report)

    def _handle_message(self, raw: bytes) -> bytes:
        version, kind, _, _ = HEADER.unpack_from(raw)
        if version != messages.VERSION and kind != Type.HELLO:
            return replies.error(raw, Reason.BAD_VERSION)
        if kind not in self._handlers:
            return replies.error(raw, Reason.UNKNOWN_MESSAGE)
        if kind in _NEEDS_MASTERY and self._role is Role.SLAVE:
            return replies.error(raw, Reason.IS_SLAVE)
        try:
            with self.switch.lock:
                return self._handlers[kind](raw)
        except Complaint as complaint:
            return replies.error(raw, complaint.reason)
        except (struct.error, IndexError):
            return replies.error(raw, Reason.BAD_LENGTH)

    def _reply_features(self, raw: bytes) -> bytes:
        body = struct.pack("!QIBBxxII", self.switch.datapath_id, 0, TABLES, 0, 0, 0)
        return replies.answer(raw, Type.FEATURES_REPLY, body)

    def _reply_config(self, raw: bytes) -> bytes:
        config = SwitchConfig(self.switch.fragments, self._miss_send_bytes)
        return replies.answer(raw, Type.GET_CONFIG_REPLY, config.pack())

    def _set_config(self, raw: bytes) -> bytes:
        config = messages.read_config(raw)
        self._miss_send_bytes = config.miss_send_bytes
        if self._role is not Role.SLAVE and config.fragments is not Fragments.REASSEMBLE:
            self.switch.fragments = config.fragments
        return b""

    def _change_role(self, raw: bytes) -> bytes:
        number, _, _, generation = struct.unpack_from("!IHHQ", raw, 8)
        if number > Role.SLAVE:
            raise Complaint(Reason.BAD_ROLE)
        role = Role(number)
        if role in (Role.MASTER, Role.SLAVE):
            known = self.switch.generation
            if known is not None and (generation - known) & 1 << 63:
                raise Complaint(Reason.STALE_GENERATION)
            self.switch.generation = generation
        if role is not Role.NO_CHANGE:
            self._role = role
        if role is Role.MASTER:
            for tell in list(self.switch.role_watchers):
                tell(role, self)
        return replies.answer(
            raw, Type.ROLE_REPLY, struct.pack("!IHHQ", self._role, 0xFFFF, 0, self._find_generation())
        )

    def _find_generation(self) -> int:
        """Return the generation of the last role request; the highest before any."""
        return (1 << 64) - 1 if self.switch.generation is None else self.switch.generation

    def _lose_mastery(self, _role: Role, winner: object) -> None:
        """Become a slave where another controller is master now; tell it."""
        if winner is not self and self._role is Role.MASTER:
            self._role = Role.SLAVE
            self._push(
                messages.message(Type.ROLE_STATUS, 0, struct.pack("!IBxxxQ", Role.SLAVE, 0, self._find_generation()))
            )

    def _tell_ports(self) -> None:
        """Send port status messages for all ports, which show every change."""
        reason_modified = 2
        for port in replies.port_descriptions(self.switch.ports, self.switch.down_ports):
            self._push(messages.message(Type.PORT_STATUS, 0, struct.pack("!B7x", reason_modified) + port))

    def _tell_report(self, entry: Entry, frame: bytes) -> None:
        """A packet for the controller, unless that stands by."""
        if self._role is not Role.SLAVE:
            self._push(replies.packet_in(entry, frame))

    def _change_meter(self, raw: bytes) -> bytes:
        self.switch.meters = groups.change_meters(self.switch.meters, raw)
        return b""

    def _reply_description(self, raw: bytes) -> bytes:
        (kind,) = struct.unpack_from("!H", raw, 8)
        if kind == Multipart.PORT_DESC:
            return replies.multipart(raw, kind, replies.port_descriptions(self.switch.ports, self.switch.down_ports))
        if kind == Multipart.GROUP_DESC:
            return replies.multipart(raw, kind, [group.describe() for group in self.switch.groups.values()])
        if kind == Multipart.METER_DESC:
            return replies.multipart(raw, kind, groups.meter_descriptions(self.switch.meters, raw))
        if kind != Multipart.FLOW_DESC:
            raise Complaint(Reason.UNKNOWN_MULTIPART)
        table, cookie, cookie_mask = struct.unpack_from("!B15xQQ", raw, 16)
        match, _ = _read_padded_match(raw, 48)
        meant = self.switch.meant(FlowFilter(table, match, cookie, cookie_mask))
        now = self.switch.clock()
        return replies.multipart(raw, kind, [replies.flow_description(entry, now) for entry in meant])

    def _change_at_once(self, raw: bytes) -> bytes:
        undo: Undo = []
        self._read_change(raw)(undo)
        return b""

    def _read_change(self, raw: bytes) -> Change:
        """Return the change of a flow-mod or group-mod.

        Raises Complaint for one that cannot be read.
        """
        if raw[1] == Type.FLOW_MOD:
            return self._read_flow_mod(raw)
        asked = read_group_mod(raw)
        return lambda undo: self.switch.change_groups(asked, undo)

    def _read_flow_mod(self, raw: bytes) -> Change:
        """Return the change of a flow-mod.

        Raises Complaint for one that cannot be read.
        """
        cookie, mask, table, command, _, _, priority, _, _, _, flags, _ = _FLOW_MOD.unpack_from(raw, 8)
        match, at = _read_padded_match(raw, 48)
        switch, what = self.switch, FlowFilter(table, match, cookie, mask)
        if command == _ADD:
            return self._read_add(FlowFilter(table, match, cookie, 0), priority, flags, raw[at:])
        if command == _DELETE:
            return lambda undo: switch.delete(what, undo)
        if command == _DELETE_STRICT:
            return lambda undo: switch.delete_strict(what, priority, undo)
        raise Complaint(Reason.BAD_COMMAND)

    def _read_add(self, what: FlowFilter, priority: int, flags: int, data: bytes) -> Change:
        if what.table == ALL_TABLES:
            raise Complaint(Reason.BAD_TABLE)
        instructions = read_instructions(data, match=what.match, table=what.table)
        if what.table >= TABLES:
            raise Complaint(Reason.NOT_PERMITTED)
        if self.switch.in_kernel and not _UNKNOWN_TO_LINUX.isdisjoint(_written(instructions)):
            raise Complaint(Reason.BAD_SET_ARGUMENT)

        def add_entry(undo: Undo) -> None:
            now = self.switch.clock()
            entry = Entry(what.table, priority, what.match, what.cookie, instructions, flags, now, now)
            self.switch.add(entry, undo)

        return add_entry

    def _control_bundle(self, raw: bytes) -> bytes:
        number, kind, flags = struct.unpack_from("!IHH", raw, 8)
        if kind == BundleControl.OPEN:
            if self._bundles.pop(number, None) is not None:
                raise Complaint(Reason.BUNDLE_EXISTS)
            self._bundles[number] = _Bundle(flags)
            return replies.bundle(raw, number, BundleControl.OPENED)
        if kind not in (BundleControl.COMMIT, BundleControl.DISCARD):
            raise Complaint(Reason.BAD_BUNDLE_TYPE)
        bundle = self._bundles.pop(number, None)
        if bundle is None:
            raise Complaint(Reason.UNKNOWN_BUNDLE)
        if kind == BundleControl.DISCARD:
            return replies.bundle(raw, number, BundleControl.DISCARDED)
        if bundle.flags != flags:
            raise Complaint(Reason.BAD_BUNDLE_FLAGS)
        failed = _commit(bundle)
        if failed:
            return failed + replies.error(raw, Reason.BUNDLED_FAILED)
        return replies.bundle(raw, number, BundleControl.COMMITTED)

    def _add_to_bundle(self, raw: bytes) -> bytes:
        number, flags = struct.unpack_from("!IxxH", raw, 8)
        inner = raw[16:]
        _, kind, length, xid = HEADER.unpack_from(inner)
        if xid != HEADER.unpack_from(raw)[3]:
            raise Complaint(Reason.BAD_BUNDLED_XID)
        if kind not in (Type.FLOW_MOD, Type.GROUP_MOD):
            raise Complaint(Reason.UNBUNDLED_TYPE)
        change = self._read_change(inner[:length])
        bundle = self._bundles.setdefault(number, _Bundle(flags))
        if bundle.flags != flags:
            raise Complaint(Reason.BAD_BUNDLE_FLAGS)
        bundle.changes.append((raw, change))
        return b""


def _written(instructions: Instructions) -> set[str]:
    """The fields that some instructions write."""
    written = {action.field for action in instructions.actions if isinstance(action, SetField | Pop)}
    return written | {action.target for action in instructions.actions if isinstance(action, CopyField)}


def _commit(bundle: _Bundle) -> bytes:
    """Commit all of a bundle or nothing.

    Returns nothing, or the error that names the message that failed.
    """
    undo: Undo = []
    for raw, change in bundle.changes:
        try:
            change(undo)
        except Complaint as complaint:
            for take_back in reversed(undo):
                take_back()
            return replies.error(raw, complaint.reason)
    return b""


def _read_padded_match(raw: bytes, at: int) -> tuple[fields.Match, int]:
    """The match at a place of a message, and where what follows begins."""
    kind, length = struct.unpack_from("!HH", raw, at)
    if kind != 1:
        raise Complaint(Reason.BAD_MATCH_TYPE)
    end = at + (length + 7) // 8 * 8
    if length < 4 or end > len(raw):
        raise Complaint(Reason.BAD_MATCH_LENGTH)
    return fields.read_match(raw[at + 4 : at + length]), end


def channel_to(switch: FakeSwitch) -> StreamChannel:
    """Return a channel to the switch that answers every message synchronously."""

    def send_to_session(data: bytes) -> None:
        deliver_to_channel(session.feed(data))

    def deliver_to_channel(data: bytes) -> None:
        at = 0
        while at < len(data):
            length = HEADER.unpack_from(data, at)[2]
            channel.deliver(data[at : at + length])
            at += length

    channel = StreamChannel(switch.datapath_id, switch.ports, send_to_session)
    session = Session(switch, push=deliver_to_channel)
    switch.port_watchers.append(lambda: channel.set_ports(switch.ports))
    return channel


class TcpLink:
    """The switch's end of a TCP connection to a controller, with its own thread."""

    def __init__(self, switch: FakeSwitch, address: tuple[str, int], *, timeout_s: float = 5.0) -> None:
        """Connect. Raises OSError if nobody listens at the address."""
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.settimeout(None)
        self._writing = threading.Lock()
        self._session = Session(switch, push=self._write_bytes)
        self._thread = threading.Thread(target=self._serve, name="fake-switch", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the connection is still there."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Cut the connection, as when a switch dies."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        """Answer the controller's messages until the connection ends."""
        with contextlib.suppress(OSError):
            self._write_bytes(self._session.hello())
            while data := self._socket.recv(1 << 16):
                self._write_bytes(self._session.feed(data))
        self._session.close()
        self._socket.close()

    def _write_bytes(self, data: bytes) -> None:
        with self._writing:
            self._socket.sendall(data)
