"""A member of a firewall cluster: follows, is followed, resends unconfirmed messages.

Member X *follows* Y when it gets Y's messages. Each member follows every other. A follower is sent messages and waited
for until its process ends, or its machine acknowledges nothing for `silent_s`. A process that is slow stays a follower,
because its program stores all the same: if it were left, connections that begin meanwhile would be unknown to it, and
lost if the switch then gave it their firewall's traffic. A member that comes back is whole once it has taken the
entries of all that it can reach.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from orchestrator.errors import AclflowError, BadInput, Forbidden, Refused
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.layout import LANES, MOST_MEMBERS, NOWHERE, Settings, Stream
from orchestrator.statesync.lists import Duty, HeldTo, Lists
from orchestrator.statesync.messages import KEY_BYTES, VERSION
from orchestrator.statesync.resending import Resending, Resent
from orchestrator.statesync.sessions import Door, Following, Session, check_version

log = structlog.get_logger()

_REPORT_S, _RETRY_S = 0.1, 0.2
_SWEEP_S, _LOOK_S = 5.0, 0.5
_DEAF_S = 5.0
"""A member that confirms nothing, or has no room, is tried again after this time."""
_ABOUT_THERE = 1 << 16
"""Messages that a member may send between writing its hello and our reading it."""


Dial = Callable[[str, int, str], socket.socket]
"""Connects to an address and port from an address of our own."""


class Member:
    """One member.

    It is made in the network namespace of its interfaces; its threads may run anywhere.

    `peers` are the other members' addresses by number. Call `start` once and `stop` once.
    """

    def __init__(
        self,
        settings: Settings,
        peers: Mapping[int, str],
        replicator: Replicator,
        *,
        silent_s: float = 1.0,
        dial: Dial = lambda address, port, own: socket.create_connection((address, port), source_address=(own, 0)),
    ) -> None:
        self._settings = replace(settings, members=frozenset(), waited=frozenset())
        self._peers = dict(peers)
        self._kernel = replicator
        self._silent_s = silent_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._following: dict[int, Following] = {}
        self._unreachable: set[int] = set()
        self._sessions: dict[tuple[int, bool], Session] = {}
        self._deaf_until: dict[int, float] = {}
        self._stale: set[int] = set()
        self._serves = self._leaves = False
        self._duty = Duty()
        self._followers: dict[int, int] = {}
        self._removed = {number: threading.Event() for number in peers}
        replicator.begin_sequences(time.time_ns())
        for number, address in peers.items():
            replicator.set_member(number, address)
            for lane in range(LANES):
                replicator.set_stream(number, lane, Stream(False))
        replicator.configure(self._settings)
        self._resending = Resending(replicator, settings)
        self._door = Door(settings.address, settings.port, lambda address: address in self._peers.values())
        self._dial = dial

    # --------------------------------------------------------------------------------------------------------- verbs

    def start(self) -> None:
        """Begin to follow, to be followed and to send again."""
        self._run(self._let_follow)
        self._run(self._watch_until_ended)
        for number, address in self._peers.items():
            self._run(partial(self._follow, number, address, self._removed[number]))

    def stop(self) -> None:
        """End all threads and close the listener. The program keeps its connections."""
        self._ended.set()
        with self._lock:
            sessions = list(self._sessions.values())
            for removed in self._removed.values():
                removed.set()
        for session in sessions:
            session.end()
        self._door.shut()
        for thread in self._threads:
            thread.join()
        self._door.close()
        self._resending.close()

    def add(self, number: int, address: str) -> None:
        """Let one more member take part, while packets pass. Raises BadInput.

        BadInput says that there would be one more than there may be. Nothing is asked of the new member until it comes:
        it follows and takes all entries, and is waited for from then on.
        """
        with self._lock:
            if number in self._peers or number == self._settings.number:
                return
            if len(self._peers) + 1 >= MOST_MEMBERS:
                raise BadInput(f"a cluster has at most {MOST_MEMBERS} members", place="member")
            self._kernel.set_member(number, address)
            for lane in range(LANES):
                self._kernel.set_stream(number, lane, Stream(False))
            self._peers = {**self._peers, number: address}
            self._unreachable.add(number)
            removed = self._removed[number] = threading.Event()
        self._run(partial(self._follow, number, address, removed))
        log.info("statesync.member_added", member=number, address=address)

    def remove(self, number: int) -> None:
        """Let a member take part no more.

        It is not tried, its messages are not believed, and its number is free. Connections that it told of stay.
        """
        with self._lock:
            if number not in self._peers:
                return
            self._peers = {each: address for each, address in self._peers.items() if each != number}
            self._removed.pop(number).set()
            self._following.pop(number, None)
            self._unreachable.discard(number)
            self._deaf_until.pop(number, None)
            sessions = [self._sessions.pop((number, is_ours), None) for is_ours in (True, False)]
            for lane in range(LANES):
                self._kernel.set_stream(number, lane, Stream(False))
            self._kernel.set_member(number, NOWHERE)
        for session in sessions:
            if session is not None:
                session.end()
        log.info("statesync.member_removed", member=number)

    def leave(self) -> None:
        """Stop taking traffic from the spread switch; the shared state stays.

        `start` does not undo it.
        """
        self._leaves = True
        self._kernel.serve(False)

    def change(self, **settings: object) -> None:
        """Go by other settings (level, context, confirmation, hold_s, timeouts_s) from the next packet on."""
        with self._lock:
            self._settings = replace(self._kernel.settings(), **settings)  # type: ignore[arg-type]
            self._kernel.configure(self._settings)

    def hold_to(self, lists: Lists) -> None:
        """Close the connections that these lists forbid, within a second, and tell the others.

        Lists that are older than those that it has are passed over.
        """
        self._duty.give(lists)

    @property
    def held_to(self) -> HeldTo:
        """The lists that its connections were held to last."""
        return self._duty.done

    @property
    def is_whole(self) -> bool:
        """Return whether it has the entries of every reachable member, and of one at least.

        A member counts as unreachable once it was tried in vain. A member without peers is whole.
        """
        with self._lock:
            found, tried = list(self._following.values()), self._following.keys() | self._unreachable
        return all(each.is_whole for each in found) and (bool(found) or not self._peers) and tried >= self._peers.keys()

    @property
    def followers(self) -> frozenset[int]:
        """The members that are sent messages and waited for."""
        with self._lock:
            return self._settings.members

    @property
    def peers(self) -> frozenset[int]:
        """The other members that may take part."""
        with self._lock:
            return frozenset(self._peers)

    @property
    def resent(self) -> Resent:
        """The actions on packets held too long."""
        return self._resending.done

    @property
    def has_told_all(self) -> bool:
        """Whether no word about a connection that closed waits for others."""
        return self._resending.has_told_all

    @property
    def following(self) -> dict[int, Following]:
        """The members that it follows now."""
        with self._lock:
            return dict(self._following)

    # ------------------------------------------------------------------------------------------------------- threads

    def _run(self, call: Callable[[], None]) -> None:
        thread = threading.Thread(target=call, daemon=True)
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def _watch_until_ended(self) -> None:
        swept = looked = time.monotonic()
        while not self._ended.wait(self._resending.pause_s):
            try:
                self._resending.look(self.followers)
                self._leave_deaf()
                self._look_after_health()
                self._close_forbidden()
                if time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    self._look_at_members()
                if time.monotonic() - swept > _SWEEP_S:
                    swept = time.monotonic()
                    self._kernel.sweep()
            except (AclflowError, OSError) as error:
                log.warning("statesync.tick_failed", error=str(error))

    def _look_at_members(self) -> None:
        """Follow what other processes say of members (`aclflow statesync add`, `remove`)."""
        known, named = self.peers, self._kernel.member_addresses()
        for number in known - named.keys():
            self.remove(number)
        for number, address in named.items():
            self.add(number, address)

    def _leave_deaf(self) -> None:
        """End sessions of followers that confirm nothing, although their machines answer.

        Messages to them are lost, or they are full.
        """
        for number in self._resending.deaf(self._silent_s):
            log.warning("statesync.deaf", member=number)
            with self._lock:
                self._deaf_until[number] = time.monotonic() + _DEAF_S
                session = self._sessions.get((number, False))
            if session is not None:
                session.end()

    def _check_confirms(self, number: int) -> None:
        """Raises Forbidden for a member that confirmed nothing a moment ago."""
        with self._lock:
            if time.monotonic() < self._deaf_until.get(number, 0.0):
                raise Forbidden(f"member {number} confirmed nothing; it is left for {_DEAF_S:.0f} s")

    def _look_after_health(self) -> None:
        """Serve once all states are here, and say so.

        If the switch gave this member up meanwhile, first take all entries of the others again.
        """
        if self._kernel.health().serving or self._leaves:
            return
        if self._serves:
            log.warning("statesync.given_up", member=self._settings.number)
            self._serves = False
            with self._lock:
                self._stale = set(self._following)
        with self._lock:
            is_stale = bool(self._stale & self._following.keys())
        if not is_stale and self.is_whole and self._kernel.health().is_asked(time.monotonic_ns()):
            self._serves = True
            self._kernel.serve(True)

    def _close_forbidden(self) -> None:
        """Hold all connections to the lists, if something has changed on either side."""
        lists = self._duty.due()
        if lists is None:
            return
        closed = self._kernel.close_forbidden(lists)
        self._resending.tell(closed, self.followers)
        self._duty.finish(lists, len(closed))
        if closed:
            log.info("statesync.closed_forbidden", connections=len(closed), generation=lists.generation)

    def _let_follow(self) -> None:
        while not self._ended.is_set():
            if (connection := self._door.admit()) is not None:
                self._run(partial(self._lead, connection))

    # ----------------------------------------------------------------------------------------------- being followed

    def _lead(self, connection: socket.socket) -> None:
        """Serve the follower at the other end of a connection until it ends."""
        try:
            with connection:
                secret, silent_s = self._settings.secret, self._silent_s
                session = Session.begin(connection, secret, is_follower=False, silent_s=silent_s)
                hello = session.hear()
                self._door.forget(connection)
                number = int(hello["member"])
                if number not in self._peers:
                    raise Forbidden(f"member {number} is none of this cluster")
                check_version(number, hello)
                self._check_confirms(number)
                self._believe(number, hello)
                self._serve(number, session)
        except (AclflowError, OSError, KeyError, TypeError, ValueError) as error:
            log.info("statesync.follower_left", why=str(error))
        finally:
            self._door.forget(connection)

    def _serve(self, number: int, session: Session) -> None:
        """Send a follower our messages for as long as the session is alive.

        It is waited for from its first question on: then it believes our messages, and confirms them.
        """
        self._hold_session((number, False), session)
        session.say(**self._make_hello())
        question = session.hear()
        self._set_followed_by(number, 1)
        try:
            while not self._ended.is_set():
                if question["again"]:
                    session.say(floor=self._kernel.last_sequence())
                    session.give(self._kernel.packed_entries())
                session.say(**self._make_report())
                self._ended.wait(_REPORT_S)
                question = session.hear()
        finally:
            self._set_followed_by(number, -1)

    def _hold_session(self, side: tuple[int, bool], session: Session) -> None:
        """Keep a session, so that `stop`, `remove` or the next one can end it.

        A member that was started again begins a new session, while the old one may seem alive.
        """
        with self._lock:
            before, self._sessions[side] = self._sessions.get(side), session
        if before is not None:
            before.end()
        if self._ended.is_set() or side[0] not in self._peers:
            session.end()

    def _believe(self, number: int, hello: Mapping[str, Any]) -> None:
        """Open the windows for a member's messages above those it has sent.

        Unless they stand about there already. They stand elsewhere after it was started again, whatever its clock
        says; what it sent before is not believed.
        """
        for lane, sequence in enumerate(hello["sequences"]):
            known = self._kernel.stream(number, lane)
            if not known.is_open or abs(known.highest - sequence) > _ABOUT_THERE:
                self._kernel.set_stream(number, lane, Stream(True, sequence, sequence))

    def _make_hello(self) -> dict[str, object]:
        return {
            "member": self._settings.number,
            "version": VERSION,
            "sequences": [self._kernel.last_sequence(), self._resending.last_sequence],
        }

    def _set_followed_by(self, number: int, change: int) -> None:
        with self._lock:
            self._followers[number] = self._followers.get(number, 0) + change
            followed = frozenset(each for each, sessions in self._followers.items() if sessions > 0)
            # Another process may have changed how this member shares (`aclflow statesync set`).
            self._settings = replace(self._kernel.settings(), members=followed, waited=followed)
            self._kernel.configure(self._settings)

    def _make_report(self) -> dict[str, object]:
        return {"last": self._kernel.last_sequence(), "whole": self.is_whole, "lists": self._duty.done.generation}

    # ----------------------------------------------------------------------------------------------------- following

    def _follow(self, number: int, address: str, removed: threading.Event) -> None:
        """Follow a member until it is removed, or this one stops."""
        before = ""
        while not removed.is_set():
            pause_s = _RETRY_S
            try:
                with self._dial(address, self._settings.port, self._settings.address) as connection:
                    secret, silent_s = self._settings.secret, self._silent_s
                    session = Session.begin(connection, secret, is_follower=True, silent_s=silent_s)
                    self._take_part(number, session)
            except (AclflowError, OSError, KeyError, TypeError, ValueError) as error:
                if str(error) != before:
                    log.info("statesync.not_following", member=number, why=(before := str(error)))
                pause_s = _DEAF_S if isinstance(error, Refused) else _RETRY_S
            with self._lock:
                if not removed.is_set():  # another one may have its number by now
                    self._following.pop(number, None)
                    self._unreachable.add(number)
            removed.wait(pause_s)

    def _take_part(self, number: int, session: Session) -> None:
        """Follow until the session ends. Where messages were lost, all entries are asked for again."""
        self._hold_session((number, True), session)
        session.say(**self._make_hello())
        hello = session.hear()
        if hello["member"] != number:
            raise Forbidden(f"member {hello['member']} answers at the address of member {number}")
        check_version(number, hello)
        self._believe(number, hello)
        self._note_following(number, Following(seen_s=time.monotonic()))
        again, taken, forgiven, gap_since, lists = True, 0, 0, None, -1
        while not self._ended.is_set():
            session.say(again=again)
            if again:
                forgiven = self._kernel.stream(number, 0).missing_before(int(session.hear()["floor"]))
                taken, gap_since = self._take(session), None
                with self._lock:
                    self._stale.discard(number)
            report, stream, now = session.hear(), self._kernel.stream(number, 0), time.monotonic()
            before, lists = lists, int(report.get("lists", -1))
            self._duty.hear(lists, is_news=again or lists != before)
            missing = stream.missing - forgiven
            lag = max(int(report["last"]) - stream.highest, 0) + missing
            self._note_following(number, Following(missing <= 0, taken, lag, now))
            gap_since = (gap_since or now) if missing > 0 else None
            again = number in self._stale or (gap_since is not None and now - gap_since > self._silent_s)
            if again:
                log.info("statesync.resynchronises", member=number, lost=missing)

    def _note_following(self, number: int, known: Following) -> None:
        with self._lock:
            self._following[number] = known
            self._unreachable.discard(number)

    def _take(self, session: Session) -> int:
        """Take another member's entries; returns how many. Raises Refused where there is no room."""
        taken = 0
        for entry in session.take():
            if not self._kernel.take(entry[:KEY_BYTES], int.from_bytes(entry[KEY_BYTES:], "little")):
                raise Refused(f"no room for another member's connections after {taken} of them")
            taken += 1
        return taken
