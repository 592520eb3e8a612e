"""Change lists over REST until each change's outcome is known.

It never forgets one that was acknowledged.

A write goes out with the ETag of the list that it was made for. If its answer is lost, it is sent again, or another one
is sent in its place: the first of them that comes through makes the ETag stale for the others. So at most one of them
is committed, and reading the list tells which.

Some writes wait to be confirmed: then they are, or they are taken back, until that outcome is known as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from orchestrator.client import AclSeen, Client
from orchestrator.errors import AclflowError, Conflict, Stale, Unreachable
from orchestrator.lab.chaos.ledger import Ledger
from orchestrator.lab.chaos.world import FIRST, TENANTS, World
from orchestrator.policy.model import Acl, TenantId

T = TypeVar("T")

_AGAIN_S = 0.1
_GIVE_UP_S = 120.0
_ENDS_WITHIN_S = 5.0
_CONFIRM_S = 600
"""Longer than any write is tried for, so that no change goes back by itself."""
_CONFIRMED, _TAKEN_BACK = 0.15, 0.15


class Settling(Enum):
    """The end of a write that waits to be confirmed."""

    NONE = "it does not wait"
    CONFIRM = "it is confirmed"
    TAKE_BACK = "it is taken back"


@dataclass(frozen=True, slots=True)
class _Try:
    """A list that was sent, and its version in the ledger."""

    acl: Acl
    version: int


class Writer:
    """One writer for all tenants, so that versions have one order."""

    def __init__(self, connect: Callable[[], Client], world: World, ledger: Ledger, gives_up: float) -> None:
        """Prepare.

        `gives_up` is the share of unanswered writes that another write replaces.
        """
        self._gives_up = gives_up
        self._connect = connect
        self._world = world
        self._ledger = ledger
        self._lists = dict.fromkeys(TENANTS, FIRST)
        self._etags: dict[TenantId, str] = {}
        self.acknowledged = 0
        self.confirmed = 0
        self.taken_back = 0
        self.unanswered = 0
        self.errors: list[str] = []
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Give up this write and all that follow: the service does not come back."""
        self._stopped.set()

    def write(self) -> None:
        """Draw a list for a tenant, and send it until its outcome is known."""
        tenant = self._world.draw.choice(TENANTS)
        gives_up = self._world.draw.random() < self._gives_up
        tries = [self._begin_try(tenant, self._world.acl(self._lists[tenant]))]
        other = self._world.acl(self._lists[tenant]) if gives_up else None
        settling, before = self._draw_settling(), self._lists[tenant]
        with self._connect() as client:
            self._put(client, tenant, tries, other, settling)
            if settling is Settling.CONFIRM:
                self._confirm(client, tenant)
            elif settling is Settling.TAKE_BACK:
                self._take_back(client, tenant, before)

    def check(self, client: Client) -> list[str]:
        """Return the tenants whose list is not the one that was acknowledged last."""
        return [f"{tenant}: not the list that was acknowledged" for tenant in TENANTS
                if client.acls.read(tenant).acl != self._lists[tenant]]  # fmt: skip

    def _draw_settling(self) -> Settling:
        draw = self._world.draw.random()
        if draw < _CONFIRMED:
            return Settling.CONFIRM
        return Settling.TAKE_BACK if draw < _CONFIRMED + _TAKEN_BACK else Settling.NONE

    def _put(self, client: Client, tenant: TenantId, tries: list[_Try], other: Acl | None, settling: Settling) -> None:
        """Send a list, perhaps then another, until it is known which was taken."""

        def send_other() -> None:
            if other is not None and len(tries) == 1:
                tries.append(self._begin_try(tenant, other))

        confirm_s = None if settling is Settling.NONE else _CONFIRM_S
        try:
            self._insist(lambda: self._send(client, tenant, tries, confirm_s), (Stale,), send_other)
        except Stale:
            self._settle(client, tenant, tries)

    def _confirm(self, client: Client, tenant: TenantId) -> None:
        """Keep the change that waits, until that is known."""
        with suppress(Conflict):  # the answer of an earlier call was lost, or the list was the same as before
            self._insist(lambda: client.acls.confirm(tenant, etag=self._etags[tenant]), (Conflict,))
            self.confirmed += 1

    def _take_back(self, client: Client, tenant: TenantId, before: Acl) -> None:
        """Have the list of before the change again, until that is known."""
        back = self._begin_try(tenant, before)
        try:
            written = self._insist(lambda: client.acls.revert(tenant, etag=self._etags[tenant]), (Conflict, Stale))
        except (Conflict, Stale):  # the answer of an earlier call was lost, or the list was the same as before
            self._settle(client, tenant, [back])
        else:
            self.taken_back += 1
            self._note_taken(tenant, back, written.etag, written.generation)

    def _insist(
        self, call: Callable[[], T], answers: tuple[type[AclflowError], ...], again: Callable[[], None] = lambda: None
    ) -> T:
        """Call until there is an answer, or one of these errors; `again` precedes each repetition."""
        until = time.monotonic() + _GIVE_UP_S
        while True:
            try:
                return call()
            except answers:
                raise
            except AclflowError:
                self.unanswered += 1
                if time.monotonic() > until:
                    raise
            self._rest()
            again()

    def _begin_try(self, tenant: TenantId, acl: Acl) -> _Try:
        return _Try(acl, self._ledger.begin(self._world.permits({**self._lists, tenant: acl})))

    def _send(self, client: Client, tenant: TenantId, tries: list[_Try], confirm_s: int | None) -> None:
        """Send the newest try."""
        if tenant not in self._etags:
            self._etags[tenant] = client.acls.read(tenant).etag
        newest = tries[-1]
        written = client.acls.put(tenant, newest.acl, etag=self._etags[tenant], confirm_s=confirm_s)
        self.acknowledged += 1
        self._note_taken(tenant, newest, written.etag, written.generation)
        self._note_refused(tries, newest)

    def _settle(self, client: Client, tenant: TenantId, tries: list[_Try]) -> None:
        """One of the tries came through although its answer did not: find out which."""
        seen, generation = self._read(client, tenant)
        for each in tries:
            if each.acl == seen.acl:
                self._note_taken(tenant, each, seen.etag, generation)
                return self._note_refused(tries, each)
        self.errors.append(f"{tenant}: a list that nobody wrote, at {seen.etag}")
        self._note_refused(tries, None)
        self._lists[tenant], self._etags[tenant] = seen.acl, seen.etag
        return None

    def _read(self, client: Client, tenant: TenantId) -> tuple[AclSeen, int]:
        """Return a tenant's list and the domain's generation, as soon as the service answers."""
        until = time.monotonic() + _GIVE_UP_S
        while True:
            try:
                return client.acls.read(tenant), client.domains.read(self._world.spec.domain).generation
            except AclflowError:
                if time.monotonic() > until:
                    raise
                self._rest()

    def _rest(self) -> None:
        """Wait for a moment before the next try. Raises Unreachable once the writer was stopped."""
        if self._stopped.wait(_AGAIN_S):
            raise Unreachable("the writer was stopped before the service answered")

    def _note_taken(self, tenant: TenantId, taken: _Try, etag: str, generation: int) -> None:
        self._lists[tenant], self._etags[tenant] = taken.acl, etag
        self._ledger.commit(taken.version, generation)

    def _note_refused(self, tries: list[_Try], taken: _Try | None) -> None:
        for each in tries:
            if each is not taken:
                self._ledger.refuse(each.version)


class Burst(threading.Thread):
    """A few writes in a thread of their own, which keeps no process from ending."""

    def __init__(self, writer: Writer, count: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._writer = writer
        self._count = count
        self.error: AclflowError | None = None

    def run(self) -> None:
        """Write lists until the burst is over."""
        try:
            for _ in range(self._count):
                self._writer.write()
        except AclflowError as error:
            self.error = error

    def give_up(self) -> None:
        """Wait for no outcome any more, and end."""
        self._writer.stop()
        if self.ident is not None:
            self.join(_ENDS_WITHIN_S)
