"""The lists that a cluster's connections are held to: which connections they forbid.

A filter in front of the program asks each packet by itself, so it goes on letting in the answers of a connection that
may not begin any more. A member that is given the lists closes such connections: the packet that opened each is put to
the egress list of the tenant that sent it and to the ingress list of the one that it went to, as it would be today.

`generation` grows with each change. A member looks at all its connections when it is given other lists, when it has
taken those of another member, and when another member has been given lists. It never closes one that it has from a
member whose lists are newer than its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.classify.listdecider import NOBODY, Deciding
from orchestrator.classify.packets import PACKET, Packets
from orchestrator.errors import AclflowError, BadInput, BadPolicy, Missing
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.formats.native_values import a_list, an_object, at
from orchestrator.policy.model import Acl, Direction, Rule
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP
from orchestrator.statesync.messages import KEY_BYTES

SYN = 0x02
_KEY = np.dtype(
    [
        ("low", "<u8", 2),
        ("high", "<u8", 2),
        ("low_port", "<u2"),
        ("high_port", "<u2"),
        ("protocol", "u1"),
        ("", "u1", 3),
    ]
)
_MAPPED = 0xFFFF
"""The bits above the 32 of an IPv4 address in a key."""


@dataclass(frozen=True, slots=True, eq=False)
class TenantList:
    """A tenant's prefixes and its list."""

    prefixes: tuple[Prefix, ...]
    acl: Acl


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """All tenants' lists, of one generation.

    A connection between two addresses that are nobody's is forbidden.
    """

    generation: int
    tenants: tuple[TenantList, ...]
    operator: tuple[Rule, ...] = ()
    """The operator's rules come first, in both directions."""
    _deciding: tuple[Deciding, ...] = field(init=False, repr=False)
    _first: Deciding = field(init=False, repr=False)

    def __post_init__(self) -> None:
        deciding = tuple(Deciding(each.acl, own=each.prefixes) for each in self.tenants)
        object.__setattr__(self, "_deciding", deciding)
        rules = tuple(replace(each, direction=Direction.INGRESS) for each in self.operator)
        object.__setattr__(self, "_first", Deciding(Acl(rules), way=Direction.INGRESS))

    def forbid(self, keys: bytes, openers: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which connections are forbidden.

        `keys` are theirs in a row; `openers` says where the upper end has opened the connection.
        """
        packets = openings(keys, openers)
        is_owned, is_denied = (np.zeros(len(packets), np.bool_) for _ in range(2))
        for each in self._deciding:
            decider = each.verdicts(packets).decider
            asked = decider != NOBODY
            is_owned |= asked
            is_denied[asked] |= ~each.permits[decider[asked]]
        first = self._first.verdicts(packets).decider
        speaks = np.array([not each.is_default for each in self._first.deciders], np.bool_)[first]
        forbidden: npt.NDArray[np.bool_] = np.where(speaks, ~self._first.permits[first], is_denied | ~is_owned)
        return forbidden


@dataclass(frozen=True, slots=True)
class HeldTo:
    """The generation of lists that all connections were checked by, and the closed ones.

    -1: no generation. `closed` is the number that the check has closed.
    """

    generation: int = -1
    closed: int = 0


class Duty:
    """Whether a member has to check all its connections, and by which lists.

    Any thread may call `give` and `hear`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: Lists | None = None
        self._newest = -1
        self._given = self._began = self._finished = 0
        self.done = HeldTo()

    def give(self, lists: Lists) -> None:
        """Take other lists, unless they are older."""
        with self._lock:
            if self._lists is None or lists.generation >= self._lists.generation:
                self._lists = lists
                self._given += 1

    def hear(self, generation: int, *, is_news: bool) -> None:
        """Note the generation of lists that another member's connections were checked by.

        `is_news`: it may have given us some of them.
        """
        with self._lock:
            self._newest = max(self._newest, generation)
            self._given += is_news

    def due(self) -> Lists | None:
        """Return the lists to check by, or None.

        None if there is nothing to do, or another member has newer ones.
        """
        with self._lock:
            if self._lists is None or self._given == self._finished or self._lists.generation < self._newest:
                return None
            self._began = self._given
            return self._lists

    def finish(self, lists: Lists, closed: int) -> None:
        """Take note that the connections known when `due` answered were held to these lists."""
        with self._lock:
            self._finished = self._began
            self.done = HeldTo(lists.generation, self.done.closed + closed)


def openings(keys: bytes, openers: npt.NDArray[np.bool_]) -> Packets:
    """Return the packets that open connections of these keys."""
    known = np.frombuffer(keys, _KEY)
    assert _KEY.itemsize == KEY_BYTES
    packets = np.zeros(len(known), PACKET)
    is_v4 = (known["low"][:, 0] == 0) & (known["low"][:, 1] >> np.uint64(32) == _MAPPED)
    ends = {}
    for end in ("low", "high"):
        upper, lower = known[end][:, 0].copy(), known[end][:, 1].copy()
        upper[is_v4], lower[is_v4] = lower[is_v4] << np.uint64(32), 0
        ends[end] = np.stack((upper, lower), axis=1)
    is_icmp = np.isin(known["protocol"], (ICMP, ICMPV6))
    packets["source"] = np.where(openers[:, None], ends["high"], ends["low"])
    packets["destination"] = np.where(openers[:, None], ends["low"], ends["high"])
    packets["source_port"] = np.where(is_icmp, 0, np.where(openers, known["high_port"], known["low_port"]))
    packets["destination_port"] = np.where(is_icmp, 0, np.where(openers, known["low_port"], known["high_port"]))
    packets["protocol"] = known["protocol"]
    packets["family"] = np.where(is_v4, Family.IPV4.value, Family.IPV6.value)
    packets["icmp_type"] = np.where(is_icmp, np.where(is_v4, 8, 128), 0)
    packets["tcp_flags"] = np.where(known["protocol"] == TCP, SYN, 0)
    return packets


def read_lists(path: Path) -> Lists:
    """Read lists from a JSON file.

    `{"generation": 7, "tenants": [{"prefixes": ["10.1.0.0/16"], "acl": {...}}]}`, each list in the native format. The
    agent of a firewall writes it (`enforce/drivers/filters/listsfile.py`).
    Raises Missing, and BadInput with the place.
    """
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Missing(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except ValueError as error:
        raise BadInput(f"it is no JSON: {error}", place=str(path)) from None
    try:
        return _lists_of(document)
    except AclflowError as error:
        raise error.within(str(path)) from None


def _lists_of(document: object) -> Lists:
    top = an_object(document, "lists")
    unknown = next((key for key in top if key not in ("generation", "operator", "tenants")), None)
    if unknown is not None:
        raise BadInput("there are `generation`, `operator` and `tenants`, and nothing else", place=unknown)
    generation = top.get("generation")
    if not isinstance(generation, int) or isinstance(generation, bool) or generation < 0:
        raise BadInput("it has to be a whole number from 0", place="generation")
    rules = at("operator", a_list, top.get("operator", []))
    operator = tuple(at(f"operator[{place}]", rule_from_json, each) for place, each in enumerate(rules))
    _refuse_stateless(operator, "operator")
    tenants = at("tenants", a_list, top.get("tenants"))
    return Lists(
        generation, tuple(at(f"tenants[{place}]", _tenant_of, each) for place, each in enumerate(tenants)), operator
    )


def _tenant_of(document: object) -> TenantList:
    top = an_object(document, "a tenant")
    if top.keys() - {"tenant"} != {"prefixes", "acl"}:
        raise BadInput("a tenant has `prefixes` and `acl`, a name in `tenant` if you like, and nothing else")
    prefixes = at("prefixes", a_list, top["prefixes"])
    acl = at("acl", acl_from_json, top["acl"])
    _refuse_stateless(acl.rules, "acl.rules")
    return TenantList(tuple(at(f"prefixes[{place}]", _prefix_of, each) for place, each in enumerate(prefixes)), acl)


def _refuse_stateless(rules: Sequence[Rule], place: str) -> None:
    """Refuse rules that decide packets of no connection: the program lets none of these pass."""
    for position, rule in enumerate(rules):
        if rule.stateless:
            text = f"rule '{rule.id}' is `stateless`, and a cluster passes packets of connections alone"
            raise BadPolicy(text, place=f"{place}[{position}]")


def _prefix_of(value: object) -> Prefix:
    if not isinstance(value, str):
        raise BadInput('it has to be a text such as "10.0.0.0/8"')
    return Prefix.parse(value)
