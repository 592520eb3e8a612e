"""The table of exact pairs: kernel hash sets before the filter, changed by element.

    forward, filter - 10   pairs   source . destination in `hosts`? ──────────────── marked, accepted here
                                   source . destination . protocol . port in `services`? ─── marked, accepted here
    forward, filter        ...     the filter lets pass what is marked, where its own rules say so

It is a table of its own, for `nft` lists a table with all that its sets hold. All of it is written and read by messages
of our own (`netlink.py`). A set is a resizable hash: adding an element, asking for one and looking one up cost
the same whatever it holds. Each call is about the network namespace that it is made in first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import numpy as np

from orchestrator.compile.nftables.served import PAIRED
from orchestrator.compile.servers.exactpairs import (
    HOSTS4,
    HOSTS6,
    PAIR_SETS,
    SERVICES4,
    SERVICES6,
    Keys,
    PairSet,
    join_keys,
)
from orchestrator.enforce.drivers.nftables.netlink import (
    APPEND,
    CREATE,
    DELSETELEM,
    DELTABLE,
    DUMP,
    GETRULE,
    GETSET,
    GETSETELEM,
    GETTABLE,
    NESTED,
    NEWCHAIN,
    NEWRULE,
    NEWSET,
    NEWSETELEM,
    NEWTABLE,
    Netlink,
    NotThere,
    attribute,
    attributes,
    batch,
    message,
    nest_attributes,
    number,
    text,
)
from orchestrator.policy.addresses import Family

__all__ = ["HOSTS4", "HOSTS6", "PAIR_SETS", "SERVICES4", "SERVICES6", "PairTable"]

NAMES = ("aclflow_pairs", "aclflow_pairs2")
"""The names of the table: one that is made anew gets the name that the other does not have."""
CHAIN = "pairs"

_FAMILIES = {Family.IPV4: 2, Family.IPV6: 10}
_PRIORITY = -10
_FORWARD, _ACCEPT = 2, 1
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_L4PROTO, _META_MARK = 16, 3
_VERDICT_REGISTER, _FIRST_WORD = 0, 8
_SOURCE_AT = {Family.IPV4: 12, Family.IPV6: 8}
"""Where the source address stands in the IP header; the destination follows."""
_TYPES = {Family.IPV4: 7, Family.IPV6: 8}
_PROTOCOL_TYPE, _SERVICE_TYPE = 12, 13
"""nft's numbers of types, six bits each in a concatenation: only for whoever lists the table."""

LABEL_BYTES = 40
LABEL = PairSet("label", 0, Family.IPV4, names_service=False, element_bytes=LABEL_BYTES)
"""A set with one element, which says what all the others are: it changes in the same transaction as they do."""

_END_BYTES = 20
_LONGEST_NEST = 65_000
_MESSAGES_A_BATCH = 64


class PairTable:
    """The pairs of this machine's filter in both IP versions, and their label.

    The label changes in the same transaction.
    """

    def __init__(self, name: str = NAMES[0]) -> None:
        self.name = name
        self._link: Netlink | None = None
        self._one: dict[PairSet, tuple[bytes, bytes]] = {}

    def create(self) -> None:
        """Make the table without pairs, unless it is there and correct."""
        if not self.is_right():
            self.remove()
            self._open_netlink().commit([each for family in Family for each in _table(self.name, family)])

    def is_there(self) -> bool:
        """Whether there is a table of this name, right or not."""
        for family in Family:
            try:
                if list(self._open_netlink().ask(GETTABLE, 0, _FAMILIES[family], text(1, self.name))):
                    return True
            except NotThere:
                continue
        return False

    def is_right(self) -> bool:
        """Return whether sets and rules of both IP versions are exactly as `create` makes them."""
        return all(self._rules(family) == [_rule_body(kind) for kind in _sets_of_family(family)] for family in Family)

    def remove(self) -> None:
        """Take the table away; none there is fine."""
        for family in Family:
            try:
                self._open_netlink().commit([message(DELTABLE, 0, _FAMILIES[family], text(1, self.name))])
            except NotThere:
                continue

    def load(self, kind: PairSet, keys: Keys) -> None:
        """Add many elements, some batches of them after another. Raises as `Netlink.commit`."""
        for messages in _batches(self.name, NEWSETELEM, CREATE, kind, keys):
            self._open_netlink().commit(messages)

    def change(
        self,
        added: Mapping[PairSet, Keys],
        removed: Mapping[PairSet, Keys],
        label: bytes | None = None,
        before: bytes | None = None,
    ) -> int:
        """Add and remove elements, and replace the label (`LABEL_BYTES`).

        Returns in how many transactions: one, unless it is more than a batch holds. The label goes with the last.

        Raises NotThere for what is to be removed and is not there; then its transaction did nothing.
        """
        messages: list[bytes] = []
        for verb, flags, change in ((NEWSETELEM, CREATE, added), (DELSETELEM, 0, removed)):
            for kind, keys in change.items():
                messages += [each for part in _batches(self.name, verb, flags, kind, keys) for each in part]
        parts = [messages[start : start + _MESSAGES_A_BATCH] for start in range(0, len(messages), _MESSAGES_A_BATCH)]
        labels = [
            _message(self.name, verb, flags, LABEL, np.frombuffer(data, np.uint8).reshape(1, -1))
            for verb, flags, data in ((DELSETELEM, 0, before), (NEWSETELEM, CREATE, label))
            if data is not None
        ]
        if labels:
            parts = [*parts[:-1], [*(parts[-1] if parts else ()), *labels]]
        for part in parts:
            self._open_netlink().commit(part)
        return len(parts)

    def add_one(self, kind: PairSet, key: bytes) -> None:
        """Add one element."""
        if kind not in self._one:
            whole = batch([_message(self.name, NEWSETELEM, CREATE, kind, np.zeros((1, kind.key_bytes), np.uint8))])
            start = len(whole) - _END_BYTES - kind.key_bytes
            self._one[kind] = whole[:start], whole[start + kind.key_bytes :]
        before, behind = self._one[kind]
        self._open_netlink().send(before + key + behind, 1)

    def label(self) -> bytes | None:
        """The label; None where there is none, or more than one."""
        found = self.elements(LABEL, most=2)
        return found[0].tobytes() if found is not None and len(found) == 1 else None

    def generation(self) -> int:
        """A number that every transaction of anybody in this network namespace moves on by one."""
        return self._open_netlink().generation()

    def holds(self, kind: PairSet, keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of some elements are there, asked one by one."""
        return np.array([self._has_pair(kind, key.tobytes()) for key in keys], np.bool_)

    def elements(self, kind: PairSet, most: int) -> Keys | None:
        """All that a set holds, in no order; None if it is more than `most`.

        The kernel walks a set from its beginning for each part of its answer: the time for all grows with the square.
        """
        body = text(1, self.name) + text(2, kind.name)
        found: list[Keys] = []
        try:
            for _, answer in self._open_netlink().ask(GETSETELEM, DUMP, _FAMILIES[kind.family], body):
                found += [_read_elements(data, kind) for name, data in attributes(answer) if name == 3 and data]
                if sum(map(len, found)) > most:
                    self._open_netlink().reopen()
                    return None
        except NotThere:
            pass
        return join_keys(found, kind)

    def close(self) -> None:
        """Let go of the kernel; the table stays."""
        if self._link is not None:
            self._link.close()
            self._link = None

    # -------------------------------------------------------------------------------------------------------- inside

    def _open_netlink(self) -> Netlink:
        if self._link is None:
            self._link = Netlink()
        return self._link

    def _has_pair(self, kind: PairSet, key: bytes) -> bool:
        element = nest_attributes(3, nest_attributes(1, nest_attributes(1, attribute(1, key))))
        body = text(1, self.name) + text(2, kind.name) + element
        try:
            return bool(list(self._open_netlink().ask(GETSETELEM, 0, _FAMILIES[kind.family], body)))
        except NotThere:
            return False

    def _rules(self, family: Family) -> list[bytes]:
        """Return the chain's rules, and the names of missing or foreign sets."""
        body = text(1, self.name) + text(2, CHAIN)
        try:
            rules = [dict(attributes(answer)) for _, answer in self._open_netlink().ask(
                GETRULE, DUMP, _FAMILIES[family], body)]  # fmt: skip
            sets = [dict(attributes(answer)) for _, answer in self._open_netlink().ask(
                GETSET, DUMP, _FAMILIES[family], text(1, self.name))]  # fmt: skip
        except NotThere:
            return []
        names = {each[2] for each in sets if each.get(1) == _end_with_zero(self.name)}
        strange = names ^ {_end_with_zero(kind.name) for kind in _list_sets(family)}
        mine = [
            each[4]
            for each in rules
            if (each.get(1), each.get(2)) == (_end_with_zero(self.name), _end_with_zero(CHAIN))
        ]
        return [*mine, *sorted(strange)]


def _end_with_zero(name: str) -> bytes:
    return name.encode() + b"\0"


def _sets_of_family(family: Family) -> list[PairSet]:
    return [kind for kind in PAIR_SETS if kind.family is family]


def _table(table: str, family: Family) -> Iterator[bytes]:
    """The messages that make one IP version's table."""
    number_of = _FAMILIES[family]
    yield message(NEWTABLE, CREATE, number_of, text(1, table) + number(2, 0))
    for place, kind in enumerate(_list_sets(family), 1):
        body = text(1, table) + text(2, kind.name) + number(3, 0) + number(4, _type(kind)) + number(5, kind.key_bytes)
        yield message(NEWSET, CREATE, number_of, body + number(10, place))
    hook = nest_attributes(4, number(1, _FORWARD), number(2, _PRIORITY))
    yield message(
        NEWCHAIN, CREATE, number_of, text(1, table) + text(3, CHAIN) + hook + number(5, 1) + text(7, "filter")
    )
    for kind in _sets_of_family(family):
        body = text(1, table) + text(2, CHAIN) + attribute(4 | NESTED, _rule_body(kind))
        yield message(NEWRULE, CREATE | APPEND, number_of, body)


def _list_sets(family: Family) -> list[PairSet]:
    return [*_sets_of_family(family), *([LABEL] if family is LABEL.family else [])]


def _type(kind: PairSet) -> int:
    """The type of an element in nft's words; 0: it has none for it."""
    if kind is LABEL:
        return 0
    fields = (
        _TYPES[kind.family],
        _TYPES[kind.family],
        *((_PROTOCOL_TYPE, _SERVICE_TYPE) if kind.names_service else ()),
    )
    found = 0
    for each in fields:
        found = found << 6 | each
    return found


def _rule_body(kind: PairSet) -> bytes:
    """Return the expressions of a set's rule, as the kernel lists them without the counter."""
    both = kind.family.bits // 4
    behind = both // 4
    loads = [_pack_payload(0, _NETWORK_HEADER, _SOURCE_AT[kind.family], both)]
    if kind.names_service:
        loads.append(_pack_expression("meta", number(2, _L4PROTO), _register(1, behind)))
        loads.append(_pack_payload(behind + 1, _TRANSPORT_HEADER, 2, 2))
    lookup = _pack_expression("lookup", text(1, kind.name), _register(2, 0), number(5, 0))
    mark = _pack_immediate(_register(1, 0), attribute(1, struct.pack("=I", PAIRED)))
    verdict = _pack_immediate(number(1, _VERDICT_REGISTER), attribute(2, number(1, _ACCEPT)))
    store = _pack_expression("meta", number(2, _META_MARK), _register(3, 0))
    return b"".join([*loads, lookup, mark, store, verdict])


def _register(kind: int, word: int) -> bytes:
    """Return an attribute that names a register from its 32-bit word.

    The kernel writes four of them as one.
    """
    return number(kind, 1 + word // 4 if word % 4 == 0 else _FIRST_WORD + word)


def _pack_expression(name: str, *inside: bytes) -> bytes:
    return attribute(1, text(1, name) + attribute(2, b"".join(inside)))


def _pack_payload(word: int, base: int, offset: int, length: int) -> bytes:
    return _pack_expression("payload", _register(1, word), number(2, base), number(3, offset), number(4, length))


def _pack_immediate(register: bytes, data: bytes) -> bytes:
    return _pack_expression("immediate", register, attribute(2, data))


def _batches(table: str, verb: int, flags: int, kind: PairSet, keys: Keys) -> Iterator[list[bytes]]:
    """Messages about some elements, in batches."""
    most = _LONGEST_NEST // (12 + kind.key_bytes)
    messages = []
    for start in range(0, len(keys), most):
        messages.append(_message(table, verb, flags, kind, keys[start : start + most]))
        if len(messages) == _MESSAGES_A_BATCH:
            yield messages
            messages = []
    if messages:
        yield messages


def _message(table: str, verb: int, flags: int, kind: PairSet, keys: Keys) -> bytes:
    """One message about some elements, which all take the same room."""
    length = kind.key_bytes
    head = struct.pack("=HHHHHH", length + 12, 1 | NESTED, length + 8, 1 | NESTED, length + 4, 1)
    data = np.empty((len(keys), len(head) + length), np.uint8)
    data[:, : len(head)] = np.frombuffer(head, np.uint8)
    data[:, len(head) :] = keys
    body = text(1, table) + text(2, kind.name) + attribute(3 | NESTED, data.tobytes())
    return message(verb, flags, _FAMILIES[kind.family], body)


def _read_elements(data: bytes, kind: PairSet) -> Keys:
    """Read the elements of one answer.

    They are all alike, so one look at the first says where the keys are.
    """
    first = struct.unpack_from("=H", data)[0]
    stride = (first + 3) & ~3
    whole = np.frombuffer(data[: len(data) // stride * stride], np.uint8).reshape(-1, stride)
    heads = whole[:, :12]
    if len(data) % stride or (heads != heads[0]).any():
        return np.array([_read_key(each) for _, each in attributes(data)], np.uint8).reshape(-1, kind.key_bytes)
    return whole[:, 12 : 12 + kind.key_bytes].copy()


def _read_key(element: bytes) -> list[int]:
    return list(dict(attributes(dict(attributes(element))[1]))[1])
