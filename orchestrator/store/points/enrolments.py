"""How machines become enforcement points: with one-time tokens, or tokens of a group.

    one-time token   used up by the first who enrols; bound to a name and a kind where that was said
    switch's token   one that gets the switch of one host a certificate, and is good for nothing else
    group token      for the machines of a group in a cloud: each instance is admitted once

A machine that proves to hold the key that a token, or an instance, was admitted with is answered as it was then: its
answer was lost. Everything else that comes a second time is refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, func, insert, or_, select, update

from orchestrator.errors import BadInput, Conflict, Forbidden, NotFound, Unauthenticated
from orchestrator.identity.authority import Issued
from orchestrator.identity.names import OPENFLOW, SWITCH, Subject, Usage, check_kind
from orchestrator.policy.model import check_name
from orchestrator.store.points.acceptance import Scope, check_epoch, hosts_of, hosts_text
from orchestrator.store.points.certificates import Certificates
from orchestrator.store.points.pointrecords import CertificateRecord, Enrolled
from orchestrator.store.points.reports import FEW_HOSTS, Reports
from orchestrator.store.records import NewToken, Role
from orchestrator.store.schema.core import domains, enforcers, hosts, invitations, tokens
from orchestrator.store.schema.identity import enrolment_groups, group_members
from orchestrator.store.schema.logs import packet_log_feeds
from orchestrator.store.sql.keys import digest_of, from_micros, new_secret, to_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.tokens import Tokens, check_expiry
from orchestrator.store.transaction import one_line
from orchestrator.wire.points import Enforcer

_PLANES = select(hosts.c.name, hosts.c.plane).where(hosts.c.domain == bindparam("of_domain"))
_ALL_PLANES, _PLANE = Prepared(_PLANES), Prepared(_PLANES.where(hosts.c.name == bindparam("named")))
_WRONG = "the enrolment token is wrong, expired or used up: ask for a new one"


@dataclass(frozen=True, slots=True)
class Signer:
    """The key of the machine that enrols, and the function that signs its certificate.

    `key` is the SHA-256 of the key as certificates hold it.
    """

    key: bytes
    issue: Callable[[Subject], Issued]


@dataclass(frozen=True, slots=True)
class EnrolmentGroup:
    """A group token without its secret. `name` is the group's in its cloud."""

    id: int
    domain: str
    name: str
    kind: str
    created: dt.datetime
    expires: dt.datetime


@dataclass(frozen=True, slots=True)
class Member:
    """A machine of a group, as its cloud vouches for it.

    The cloud says which instance it is, from which address it comes, and how it is called.
    """

    instance: str
    address: str
    name: str


class Enforcers(Reports):
    """The enforcers' repository: how they enrol, and their epochs. Their reports are in `reports.py`."""

    def invite(
        self,
        domain: str,
        *,
        expires: dt.datetime,
        author: str,
        name: str | None = None,
        kind: str | None = None,
        hosts: Sequence[str] = (),
    ) -> str:
        """A one-time enrolment token for a domain, seen only now.

        With `hosts` it is a controller's, who then speaks for the switches of these alone, there already or to come.
        Raises NotFound, BadInput (already expired).
        """
        self._check_invitation(domain, expires, author)
        if name is not None:
            check_name(name, "an enforcer's name", place="name")
        if kind is not None and kind != SWITCH:
            check_kind(kind)
        for index, host in enumerate(hosts):
            check_name(host, "a host's name", place=f"hosts[{index}]")
        if hosts and kind != OPENFLOW:
            raise BadInput(f"only a controller is bound to hosts: say that the kind is '{OPENFLOW}'", place="hosts")
        secret = new_secret()
        self._tx.write(delete(invitations).where(invitations.c.expires <= self._tx.micros))
        self._tx.write(
            insert(invitations).values(
                digest=digest_of(secret),
                domain=domain,
                name=name,
                kind=kind,
                hosts=hosts_text(hosts),
                author=author,
                created=self._tx.micros,
                expires=to_micros(expires),
            )
        )
        return secret

    def withdraw(self, domain: str, author: str) -> None:
        """Delete the unused one-time tokens of a domain that an author made."""
        columns = invitations.c
        self._tx.write(
            delete(invitations).where(columns.domain == domain, columns.author == author, columns.used.is_(None))
        )

    def invite_group(self, domain: str, group: str, *, kind: str, expires: dt.datetime, author: str) -> tuple[str, int]:
        """Make a token for a group of machines; return its secret and its number.

        The machines are those of a group in the domain's cloud. The secret is seen only now. Raises NotFound, BadInput.
        """
        self._check_invitation(domain, expires, author)
        check_name(group, "a group's name", place="group")
        check_kind(kind)
        secret = new_secret()
        self._tx.write(delete(enrolment_groups).where(enrolment_groups.c.expires <= self._tx.micros))
        new = insert(enrolment_groups).values(
            digest=digest_of(secret),
            domain=domain,
            name=group,
            kind=kind,
            author=author,
            created=self._tx.micros,
            expires=to_micros(expires),
        )
        return secret, int(self._tx.write(new.returning(enrolment_groups.c.id)).scalar_one())

    def groups(self, domain: str) -> tuple[EnrolmentGroup, ...]:
        """The group tokens of a domain that still hold, oldest first. Raises NotFound."""
        self._tx.domain(domain)
        columns = enrolment_groups.c
        found = _select_good_groups(self._tx.micros).where(columns.domain == domain).order_by(columns.id)
        return tuple(map(_read_group, self._tx.read(found)))

    def remove_group(self, domain: str, group: int) -> None:
        """Make a group token invalid; who was admitted stays. Raises NotFound."""
        columns = enrolment_groups.c
        if not self._tx.write(delete(enrolment_groups).where(columns.id == group, columns.domain == domain)).rowcount:
            raise NotFound(f"the domain has no group token {group}")

    def group_of(self, secret: str) -> EnrolmentGroup | None:
        """Return the group that a token is for; None without a valid group token."""
        row = self._tx.read(
            _select_good_groups(self._tx.micros).where(enrolment_groups.c.digest == digest_of(secret))
        ).one_or_none()
        return None if row is None else _read_group(row)

    def find_domain(self, secret: str) -> str | None:
        """Return the domain of a one-time token, used up or not; None: unknown."""
        mine = select(invitations.c.domain).where(invitations.c.digest == digest_of(secret))
        return self._tx.read(mine).scalar_one_or_none()

    def enrol(self, secret: str, *, name: str, kind: str, signer: Signer | None = None) -> Enrolled:
        """Use up a one-time token.

        An enforcer of the same name in the domain is replaced, and known no more.

        With a signer it is known by a certificate, else by a bearer token. Raises BadInput; Forbidden for a token that
        is bound to another name or kind, which it does not use up; Conflict for a key that has a certificate; and
        Unauthenticated when the token is wrong, expired or used up: of two racing enrolments one wins, for the test
        and the mark are one statement.
        """
        check_name(name, "an enforcer's name", place="name")
        if kind == SWITCH:
            raise BadInput("a switch is no enforcement point: it gets a certificate alone", place="kind")
        check_kind(kind)
        columns = invitations.c
        good_for = or_(columns.name.is_(None), columns.name == name), or_(columns.kind.is_(None), columns.kind == kind)
        used = self._use(secret, good_for, name, kind)
        if used is None:
            again = self._again(signer, Subject(Usage.of_kind(kind), self._domain_of_used(secret, name, kind), name))
            if again is None:
                raise Unauthenticated(_WRONG)
            return again
        self._tx.write(delete(enforcers).where(enforcers.c.domain == used.domain, enforcers.c.name == name))
        return self._add_point(used.domain, name, kind, signer, used.hosts)

    def sign_switch(self, secret: str, name: str, signer: Signer) -> CertificateRecord:
        """Use up a one-time token, and issue a certificate for a host's switch.

        The certificates that the switch had before become invalid. Only a token that is bound to this host and to
        switches will do. Raises as `enrol`.
        """
        check_name(name, "a host's name", place="name")
        book = Certificates(self._tx)
        good_for = invitations.c.name == name, invitations.c.kind == SWITCH
        used = self._use(secret, good_for, name, SWITCH)
        if used is None:
            subject, before = (
                Subject(Usage.SWITCH, self._domain_of_used(secret, name, SWITCH), name),
                book.of_key(signer.key),
            )
            if before is None or before.subject != subject:
                raise Unauthenticated(_WRONG)
            return before
        subject = Subject(Usage.SWITCH, used.domain, name)
        book.revoke_switch(subject)
        return book.keep(signer.issue(subject))

    def admit(self, group: EnrolmentGroup, member: Member, signer: Signer) -> Enrolled:
        """Enrol a machine of a group that its cloud vouches for.

        Its name is the one that the cloud knows it by. Raises Unauthenticated where the group's token was taken away
        meanwhile, and Conflict where the instance was admitted already with another key, or somebody else has its name:
        removing that enforcement point first is for an operator to decide.
        """
        check_name(member.instance, "an instance's id", place="instance")
        check_name(member.name, "an enforcer's name", place="name")
        if self._tx.read(_select_good_groups(self._tx.micros).where(enrolment_groups.c.id == group.id)).first() is None:
            raise Unauthenticated(_WRONG)
        columns = group_members.c
        known = select(group_members).where(
            columns.domain == group.domain, columns.name == group.name, columns.instance == member.instance
        )
        before = self._tx.read(known).one_or_none()
        if before is not None:
            again = self._again(signer, Subject(Usage.of_kind(group.kind), group.domain, member.name))
            if again is None or again.enforcer.id != before.enforcer:
                when = from_micros(before.admitted)
                raise Conflict(
                    f"this instance was admitted on {when:%Y-%m-%d %H:%M:%S} UTC from {before.address}, with another "
                    "key; remove that enforcer to admit it again",
                    place="instance",
                )
            return again
        taken = select(enforcers.c.id).where(enforcers.c.domain == group.domain, enforcers.c.name == member.name)
        if self._tx.read(taken).first() is not None:
            raise Conflict(f"there is an enforcer '{member.name}' already, which is not this instance", place="name")
        joined = self._add_point(group.domain, member.name, group.kind, signer)
        self._tx.write(
            insert(group_members).values(
                domain=group.domain,
                name=group.name,
                instance=member.instance,
                enforcer=joined.enforcer.id,
                address=member.address,
                admitted=self._tx.micros,
            )
        )
        return joined

    def get(self, enforcer: int) -> Enforcer:
        """Return an enforcement point. Raises NotFound."""
        return enforcer_record(self._read_row(enforcer))

    # ------------------------------------------------------------------------------------------------ steps

    def _check_invitation(self, domain: str, expires: dt.datetime, author: str) -> None:
        self._tx.domain(domain)
        check_expiry(self._tx, expires)
        one_line(author, place="author")

    def _use(self, secret: str, good_for: Sequence[ColumnElement[bool]], name: str, kind: str) -> Row[Any] | None:
        """Mark a one-time token as used, and return its domain and hosts.

        None where the token is not good for that, or not any more.
        """
        columns = invitations.c
        use = (
            update(invitations)
            .where(columns.digest == digest_of(secret), columns.used.is_(None), columns.expires > self._tx.micros)
            .where(*good_for)
            .values(used=self._tx.micros, name=name, kind=kind)
            .returning(columns.domain, columns.hosts)
        )
        return self._tx.write(use).one_or_none()

    def _domain_of_used(self, secret: str, name: str, kind: str) -> str:
        """The domain of a token that was used for this name and kind.

        Raises Unauthenticated, Forbidden.
        """
        columns = invitations.c
        good = select(invitations).where(columns.digest == digest_of(secret), columns.expires > self._tx.micros)
        found = self._tx.read(good).one_or_none()
        if found is None:
            raise Unauthenticated(_WRONG)
        if found.used is None:
            bound = " ".join(
                filter(None, (found.name and f"name '{found.name}'", found.kind and f"kind '{found.kind}'"))
            )
            raise Forbidden(f"the enrolment token is for the {bound or 'enforcement points'}", place="token")
        if (found.name, found.kind) != (name, kind):
            raise Unauthenticated(_WRONG)
        return str(found.domain)

    def _again(self, signer: Signer | None, subject: Subject) -> Enrolled | None:
        """Return the valid certificate already issued for this key and name, if any."""
        before = None if signer is None else Certificates(self._tx).of_key(signer.key)
        if before is None or before.subject != subject or before.enforcer is None:
            return None
        return Enrolled(self.get(before.enforcer), "", before)

    def _add_point(
        self, domain: str, name: str, kind: str, signer: Signer | None, hosts: str | None = None
    ) -> Enrolled:
        """A new enforcement point, known by a certificate or by a bearer token."""
        new = insert(enforcers).values(
            domain=domain, name=name, kind=kind, epoch=self._raise_epoch(domain), created=self._tx.micros, hosts=hosts
        )
        enforcer = self._tx.write(new.returning(enforcers.c.id)).scalar_one()
        if signer is not None:
            issued = signer.issue(Subject(Usage.of_kind(kind), domain, name))
            if issued.key != signer.key:
                raise BadInput("the certificate is for another key", place="csr")
            return Enrolled(self.get(enforcer), "", Certificates(self._tx).keep(issued, enforcer))
        made = self._add_token(enforcer, name)
        return Enrolled(self.get(enforcer), made.secret, ends=made.record.expires)

    def _add_token(self, enforcer: int, name: str) -> NewToken:
        """Make a bearer token of an enforcement point, which lasts as long as tokens may."""
        bearer = new_secret()
        new = insert(tokens).values(
            digest=digest_of(bearer),
            role=Role.ENFORCER.value,
            enforcer=enforcer,
            description=f"enforcer {name}",
            created=self._tx.micros,
            expires=to_micros(self._tx.now + self._tx.settings.token_lasts),
        )
        return NewToken(bearer, Tokens(self._tx).get(self._tx.write(new.returning(tokens.c.id)).scalar_one()))

    def renew_token(self, enforcer: int, shown: int) -> NewToken:
        """Make a further bearer token of an enforcement point.

        The one that it shows stays valid until it ends or is laid down; all others are revoked. Raises Conflict for one
        that is known by a certificate, NotFound.
        """
        if Certificates(self._tx).is_of_certificate(shown):
            raise Conflict("you are known by a certificate: renew that", place="token")
        made = self._add_token(enforcer, self._read_row(enforcer).name)
        Certificates(self._tx).revoke_others(enforcer, [shown, made.record.id])
        return made

    def _raise_epoch(self, domain: str) -> int:
        rise = update(domains).where(domains.c.id == domain).values(epoch=domains.c.epoch + 1)
        return int(self._tx.write(rise.returning(domains.c.epoch)).scalar_one())

    def list(self, domain: str, *, limit: int | None = None, marker: str = "") -> tuple[Enforcer, ...]:
        """The enforcers of a domain by name, those after `marker`, at most `limit`. Raises NotFound."""
        self._tx.domain(domain)
        mine = select(enforcers).where(enforcers.c.domain == domain, enforcers.c.name > marker)
        return tuple(map(enforcer_record, self._tx.read(mine.order_by(enforcers.c.name).limit(limit))))

    def silent(self, silence_s: float) -> tuple[Enforcer, ...]:
        """The enforcers of all domains that were heard of once, but not for `silence_s`."""
        since = self._tx.micros - int(silence_s * 1_000_000)
        return tuple(map(enforcer_record, self._tx.read(select(enforcers).where(enforcers.c.last_seen < since))))

    def new_epoch(self, enforcer: int) -> int:
        """Return a new epoch above all in the domain, for an enforcer that takes over.

        Raises NotFound.

        The sequences of its reports, of packets too, may begin again.
        """
        row = self._read_row(enforcer)
        epoch = self._raise_epoch(row.domain)
        self._tx.write(update(enforcers).where(enforcers.c.id == enforcer).values(epoch=epoch, sequence=None))
        self._tx.write(update(packet_log_feeds).where(packet_log_feeds.c.enforcer == enforcer).values(number=0))
        return epoch

    def check_epoch(self, enforcer: int, epoch: int | None) -> None:
        """Refuse who speaks as an enforcer of an epoch that is over. Raises Conflict, NotFound."""
        check_epoch(self._read_row(enforcer), epoch)

    def scope(self, enforcer: int) -> Scope:
        """Return what an enforcer may speak for.

        Raises NotFound.
        """
        return Scope.of(self._read_row(enforcer))

    def count_hosts(self, enforcer: int) -> int:
        """Return how many hosts an enforcer may report of. Raises NotFound."""
        row = self._read_row(enforcer)
        named = hosts_of(row.hosts)
        if named is not None or row.kind != OPENFLOW:
            return 1 if named is None else len(named)
        found = self._tx.read(select(func.count()).select_from(hosts).where(hosts.c.domain == row.domain))
        return int(found.scalar_one())

    def check_hosts(self, enforcer: int, named: Iterable[str], *, place: str) -> frozenset[str]:
        """Return the hosts among `named` that the domain has.

        Raises NotFound (enforcer), Forbidden.
        """
        row, wanted = self._read_row(enforcer), frozenset(named)
        scope = Scope.of(row)
        if len(wanted) > FEW_HOSTS:
            found = self._tx.rows(_ALL_PLANES, of_domain=row.domain)
        else:
            found = [host for name in wanted for host in self._tx.rows(_PLANE, of_domain=row.domain, named=name)]
        known = {host.name: host.plane for host in found if host.name in wanted}
        for name, plane in known.items():
            scope.check(name, plane, place=place)
        return frozenset(known)

    def remove(self, enforcer: int) -> None:
        """Delete an enforcer with its reports, token and certificate.

        Raises NotFound.
        """
        self._read_row(enforcer)
        self._tx.write(delete(enforcers).where(enforcers.c.id == enforcer))


def enforcer_record(row: Row[Any]) -> Enforcer:
    """An enforcer's row as a record."""
    last_seen = None if row.last_seen is None else from_micros(row.last_seen)
    bound = tuple(sorted(hosts_of(row.hosts) or ()))
    return Enforcer(row.id, row.domain, row.name, row.kind, row.epoch, from_micros(row.created), last_seen, bound)


def _select_good_groups(micros: int) -> Select[Any]:
    return select(enrolment_groups).where(enrolment_groups.c.expires > micros)


def _read_group(row: Row[Any]) -> EnrolmentGroup:
    return EnrolmentGroup(row.id, row.domain, row.name, row.kind, from_micros(row.created), from_micros(row.expires))
