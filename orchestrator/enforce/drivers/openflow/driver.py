"""The OpenFlow driver: one switch, three verbs.

Everything is an exchange over a `Channel` that ends with a barrier. Changing the switch takes two, because a switch
leaves a message that it cannot read out of a bundle and would commit the rest:

    open, deletes, delete the old stamp, adds with the new, barrier ──▶ no complaints? ──▶ commit, barrier
                                                                    └─▶ complaints    ──▶ discard, Refused

The commit is atomic: packets meet the old flows or the new, and a refusal at that point leaves the old. Deletes come
before adds, so that a row whose cookie or instructions changed (for a switch that is a new entry) is replaced.

Every change has rows of the driver's own (`ownrows.py`). The stamp says what the switch holds. The others have a
switch that forwards in the daemon forget what it has cached (`ownrows.py`); one that forwards in the kernel, which is
found out first, has no need of them, and holds one row of programs otherwise.

A change of a few rows is read back in the exchange that commits it (`smallchange.py`), and its rows go to and fro as
values, one by one: setting columns up costs more than a few rows do.

For the loop a driver is a `Switch`, which becomes the switch's master before it writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import numpy as np

from orchestrator.compile.cookies import COOKIE_MASK, Cookie, Kind
from orchestrator.compile.openflow.meters import Meter
from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.changing import Changed, Changing
from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.enforce.drivers.openflow import bundle, flowdesc, groupmods, messages, meters, ownrows, smallchange
from orchestrator.enforce.drivers.openflow.bundle import Bundle
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.flowdesc import FlowStats
from orchestrator.enforce.drivers.openflow.messages import BundleControl, Fragments, Role, SwitchConfig, Type
from orchestrator.enforce.drivers.openflow.ownrows import OwnRows, read_stamp
from orchestrator.enforce.drivers.openflow.resolve import PortNumbers, resolve, resolve_row
from orchestrator.enforce.drivers.openflow.smallchange import SmallChange
from orchestrator.errors import Refused
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, Flow, FlowTable, entry_keys
from orchestrator.program.program import Tier

OWNER_MASK = 0xFF << 56
"""Cookie bits: whose flow it is."""

MANY_COOKIES = 256
"""From so many on, reading everything is cheaper than asking cookie by cookie."""


class OpenFlowDriver:
    """Drives one switch over one connection.

    Not for several threads at a time; a new connection is a new driver.

    `uplink` is the name of the interface towards the edge. `timeout_s` bounds every exchange. `in_kernel`: take it that
    the switch forwards in the kernel, also where it does not.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        uplink: str,
        tier: Tier = Tier.HOST,
        timeout_s: float = 30.0,
        in_kernel: bool = False,
    ) -> None:
        self._channel = channel
        self._uplink = uplink
        self._tier = tier
        self._timeout_s = timeout_s
        self._bundles = itertools.count(1)
        self._in_kernel = in_kernel
        self._own = OwnRows(tier)

    @property
    def channel(self) -> Channel:
        return self._channel

    def start(self, epoch: int) -> None:
        """Become the switch's master, and set it up.

        It shows fragments as they are, and is asked where it forwards. Called once, before the verbs.

        `epoch` grows with each controller of the domain. Raises Refused when a controller with a newer one was here,
        or when the switch cannot match fragments; Unreachable.
        """
        xids = self._channel.reserve(2)
        answers = self._exchange(xids, messages.role_request(xids[0], Role.MASTER, epoch))
        _refuse(answers, f"epoch {epoch} may not command this switch")
        if messages.read_role(messages.only(answers, Type.ROLE_REPLY, xids[0])) is not Role.MASTER:
            raise Refused("the switch did not make us its master")
        self._show_fragments()
        self._in_kernel = self._in_kernel or self._refuses_trial()

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:
        """Return a program's rows as this switch should hold them, to compare with `observe`."""
        if self._in_kernel:
            flows = ownrows.adapt_rows(flows)
        return resolve(flows, symbols, self._channel.ports, self._uplink)

    def counter_keys(self, flows: FlowTable) -> U64 | None:
        """Every flow of a switch has its counter; groups have none."""
        return entry_keys(flows.take(~flows.are_groups()))

    def observe(self, cookies: U64 | None = None) -> Observed:
        """Read flows back with the switch's port numbers.

        Foreign flows too when all are read. See `Driver`.

        Reading all also sees to it that the switch still shows fragments, without which flows mean something else.
        """
        if cookies is None:
            self._show_fragments()
        ports = frozenset(self._channel.ports) if cookies is None else None
        stats = self._read(cookies)
        stamps, marks = self._own.are_stamps(stats.flows), self._own.are_marks(stats.flows)
        if cookies is None:
            self._own.note_observed(stats.flows.take(marks).rows(), stats.flows.table[~marks])
        flows = stats.flows.take(~stamps & ~marks)
        if cookies is None or (cookies >> np.uint64(48) == self._group_cookies()).any():
            flows = FlowTable.join_tables((flows, self._read_groups()))
        if (flows.table == Table.METERS).any():
            flows = meters.rows_in_force(flows, self._read_meters())
        if cookies is not None:
            flows = flows.take(np.isin(flows.cookie, cookies))
        return Observed(flows, read_stamp(stats.flows.take(stamps).rows()), ports)

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        """Remove, add and stamp in one ordered atomic bundle. See `Driver`.

        Symbols in the delta are resolved here; a delta made of resolved rows has none and passes unchanged. Rows whose
        port is not there (any more) are left out, so after a change of ports only a full `observe` tells the truth.
        """
        removed, added = self.resolve(delta.removed, delta.removed_ports), self.resolve(delta.added, delta.ports)
        own = self._own.change(stamp, added.table, marked=not self._in_kernel)
        self._make_meters(meters.declared_meters(added))
        change = Bundle(
            number=next(self._bundles),
            xids=self._channel.reserve(bundle.numbers_needed(removed, added) + len(own.removed) + len(own.added)),
            removed=FlowTable.join_tables((removed, FlowTable.of(own.removed))),
            replaced=own.replaced,
            added=FlowTable.join_tables((added, FlowTable.of(own.added))),
        )
        parts = itertools.chain(change.fill(), (messages.barrier_request(change.filling[-1]),))
        filled = self._channel.exchange_parts(parts, change.filling, timeout_s=self._timeout_s)
        errors = messages.errors_in(filled)
        if errors:
            self._exchange(change.xids, change.close(BundleControl.DISCARD))
            raise change.explain_errors(errors)
        answers = self._exchange(change.xids, change.close(BundleControl.COMMIT))
        errors = messages.errors_in(answers)
        if errors:
            raise change.explain_errors(errors)
        messages.only(answers, Type.BUNDLE_CONTROL, change.xids[-2])
        self._own.note_change(own)
        self._forget_meters(meters.declared_meters(removed).keys() - meters.declared_meters(added).keys())

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        """Apply a few rows of a program, and read them back.

        See `Device`.
        """
        removed = self._rows(delta.removed, delta.removed_ports)
        added = self._rows(delta.added, delta.ports)
        own = self._own.change(stamp, (row.table for row in added), marked=not self._in_kernel)
        small = SmallChange(
            number=next(self._bundles),
            xids=self._channel.reserve(smallchange.numbers_needed(removed, added, own)),
            removed=removed,
            added=added,
            own=own,
        )
        with self._channel.begin(small.fill(), small.filling, timeout_s=self._timeout_s) as filling:
            yield filling
            errors = messages.errors_in(filling.answers())
        closing = small.discard() if errors else small.close()
        with self._channel.begin(closing, small.closing, timeout_s=self._timeout_s) as exchange:
            yield exchange
            answers = exchange.answers()
        errors = errors or messages.errors_in(answers)
        if errors:
            raise small.explain_errors(errors)
        messages.only(answers, Type.BUNDLE_CONTROL, small.commit)
        self._own.note_change(own)
        return self._evaluate_answers(removed, added, small, answers)

    def hits(self) -> Hits:
        """Read the counters of every entry that is ours. See `Driver`."""
        xids = self._channel.reserve(2)
        answers = self._exchange(xids, flowdesc.request(xids[0], cookie=COOKIE_MASK, cookie_mask=OWNER_MASK))
        _refuse(answers, "the switch does not show its flows")
        found = flowdesc.read_counters(messages.multipart_replies(answers, xids))
        return found.take(~self._own.are_own(found.cookie))

    def _rows(self, flows: FlowTable, symbols: tuple[str, ...]) -> tuple[Flow, ...]:
        """A few rows of a program as this switch holds them."""
        numbers = PortNumbers(self._channel.ports, symbols, self._uplink)
        mine = flows.rows()
        if self._in_kernel:
            mine = [ownrows.adapt_row(flow) for flow in mine]
        return tuple(row for flow in mine if (row := resolve_row(flow, numbers)) is not None)

    def _evaluate_answers(
        self, removed: tuple[Flow, ...], added: tuple[Flow, ...], small: SmallChange, answers: list[bytes]
    ) -> Changed:
        """Evaluate the answers to the second exchange."""
        shown = flowdesc.entries(messages.multipart_replies(answers, small.showing))
        touched = {row.key for row in (*removed, *added)}
        stamps = [row for row in shown if self._own.is_stamp(row)]
        found = dict.fromkeys(row for row in shown if row.key in touched and not self._own.is_stamp(row))
        counted = messages.multipart_replies(answers, small.counting)
        last = flowdesc.read_counters(counted) if counted else None
        return Changed(added, tuple(found), read_stamp(stamps), last)

    def _refuses_trial(self) -> bool:
        """Return whether the switch forwards in the kernel.

        It refuses rows that only the daemon's datapath can do.
        """
        trial = Bundle(
            number=next(self._bundles),
            xids=self._channel.reserve(6),
            removed=FlowTable.of(()),
            replaced=self._own.stamps,
            added=FlowTable.of([ownrows.TRIAL]),
        )
        errors = messages.errors_in(self._exchange(trial.filling, *trial.fill()))
        self._exchange(trial.xids, trial.close(BundleControl.DISCARD))
        return any(map(ownrows.is_refusal, errors))

    def _show_fragments(self) -> None:
        """Have the switch match fragments, if it does not. Raises Refused if it cannot."""
        before = self._read_config()
        if before.fragments is Fragments.NX_MATCH:
            return
        wanted = SwitchConfig(Fragments.NX_MATCH, before.miss_send_bytes)
        xids = self._channel.reserve(2)
        _refuse(self._exchange(xids, messages.set_config(xids[0], wanted)), "the switch cannot match fragments")
        after = self._read_config()
        if after != wanted:
            raise Refused(f"the switch cannot match fragments: it stays at {after.fragments.name.lower()}")

    def _read_config(self) -> SwitchConfig:
        xids = self._channel.reserve(2)
        answers = self._exchange(xids, messages.get_config_request(xids[0]))
        return messages.read_config(messages.only(answers, Type.GET_CONFIG_REPLY, xids[0]))

    def _read(self, cookies: U64 | None) -> FlowStats:
        """All flows, or (at least) those of some cookies and the stamp."""
        if cookies is None or len(cookies) >= MANY_COOKIES:
            xids = self._channel.reserve(2)
            return self._read_flows(xids, flowdesc.request(xids[0]))
        wanted = np.unique(cookies).tolist()
        xids = self._channel.reserve(len(wanted) + 2)
        requests = [
            flowdesc.request(xid, cookie=cookie, cookie_mask=flowdesc.EVERY_BIT)
            for xid, cookie in zip(xids, wanted, strict=False)
        ]
        stamps = self._own.stamps
        stamp = flowdesc.request(xids[len(wanted)], table=stamps.table, cookie=stamps.cookie, cookie_mask=stamps.mask)
        return self._read_flows(xids, *requests, stamp)

    def _read_groups(self) -> FlowTable:
        """Every group, whoever made it."""
        xids = self._channel.reserve(2)
        answers = self._exchange(xids, groupmods.request(xids[0]))
        _refuse(answers, "the switch does not show its groups")
        return groupmods.decode(messages.multipart_replies(answers, xids), self._tier)

    def _read_meters(self) -> dict[int, Meter]:
        xids = self._channel.reserve(2)
        answers = self._exchange(xids, meters.request(xids[0]))
        _refuse(answers, "the switch does not show its meters")
        return meters.read(messages.multipart_replies(answers, xids))

    def _make_meters(self, wanted: Mapping[int, Meter]) -> None:
        """Have the switch have some meters, before rows that use them come. Raises Refused."""
        if not wanted:
            return
        there = self._read_meters()
        xids = self._channel.reserve(len(wanted) + 1)
        _refuse(self._exchange(xids, *meters.changes(wanted.values(), there, xids)), "the switch does not take meters")

    def _forget_meters(self, numbers: Collection[int]) -> None:
        if numbers:
            xids = self._channel.reserve(len(numbers) + 1)
            self._exchange(xids, *map(meters.deletion, numbers, xids))

    def _group_cookies(self) -> np.uint64:
        """The upper bits of the cookies that stand for groups."""
        return np.uint64(Cookie(self._tier, Kind.GROUP).pack() >> 48)

    def _read_flows(self, xids: range, *requests: bytes) -> FlowStats:
        answers = self._exchange(xids, *requests)
        _refuse(answers, "the switch does not show its flows")
        return flowdesc.decode(messages.multipart_replies(answers, xids))

    def _exchange(self, xids: range, *requests: bytes) -> list[bytes]:
        """Send requests and a barrier, numbered with the last of `xids`."""
        whole = b"".join((*requests, messages.barrier_request(xids[-1])))
        return self._channel.exchange(whole, xids, timeout_s=self._timeout_s)


def _refuse(answers: list[bytes], what: str) -> None:
    """Raise Refused if the switch complained."""
    for error in messages.errors_in(answers):
        raise Refused(f"{what}: {error}")


CLAIM_TIMEOUT_S = 5.0

ROLE_REFUSED, STALE_EPOCH = 11, 0
"""Type and code of the error that answers a role request older than one that the switch has granted."""


class Switch(OpenFlowDriver):
    """One switch over one connection."""

    def claim(self, epoch: int) -> bool:
        """Become the switch's master. False when a controller with a later epoch was.

        A switch that refuses this leaves us its equal, whose writes it would take: without this answer, nothing may be
        written. Raises Refused when the switch cannot do what programs need, Unreachable.
        """
        xids = self.channel.reserve(2)
        request = messages.role_request(xids[0], Role.MASTER, epoch) + messages.barrier_request(xids[1])
        answers = self.channel.exchange(request, xids, timeout_s=CLAIM_TIMEOUT_S)
        for error in messages.errors_in(answers):
            if error.type == ROLE_REFUSED and error.code == STALE_EPOCH:
                return False
        self.start(epoch)
        return True
