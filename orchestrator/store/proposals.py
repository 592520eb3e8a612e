"""Proposals: changes that another person must approve, and the marks that ask for it.

A tenant's list is *marked*, or the operator rules of a domain are: then a change of it is refused by the repository
that would make it (`ApprovalNeeded`), wherever it comes from, unless it says that it was approved. Changes that come
with time need no approval: rules that expire, and a change that nobody confirmed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update

from orchestrator.errors import BadPolicy, Conflict, NotFound, TooLarge
from orchestrator.store.records import Bearing
from orchestrator.store.schema.acls import proposals
from orchestrator.store.schema.core import domains, tenants
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.transaction import Transaction, one_line
from orchestrator.wire.common import Approvals, Proposal, ProposalKind

LASTS = dt.timedelta(days=7)
"""For so long a proposal can be approved."""
MOST_OPEN, MOST_BYTES = 16, 32 << 20
"""Proposals about one list, or one domain, that are open, and what they take up together."""
MOST_DECIDED = 100
"""Proposals about one list, or one domain, that are remembered when they were decided."""
LONGEST_REASON = 1000

_OPEN = "open"


@dataclass(frozen=True, slots=True)
class Scope:
    """The subject of a proposal: a tenant's list, or, without a tenant, its domain's rules."""

    domain: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class NewProposal:
    """A proposed change: the new content in its native form, and its base version."""

    kind: ProposalKind
    body: str
    base_version: int
    author: str
    bearing: Bearing
    comment: str = ""
    despite: bool = False
    confirm_s: int | None = None


@dataclass(frozen=True, slots=True)
class KeptProposal:
    """A proposal with what is to be so; `body` is empty once it was decided."""

    seen: Proposal
    body: str
    bearing: Bearing
    despite: bool


class Proposals:
    """The repository of proposals, and of what asks for approval."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def approvals(self, domain: str) -> Approvals:
        """The changes of a domain that need approval. Raises NotFound."""
        row = self._tx.domain(domain)
        marked = select(tenants.c.id).where(tenants.c.domain == domain, tenants.c.two_persons != 0)
        names = sorted(self._tx.read(marked).scalars())
        return Approvals(operator_rules=bool(row.two_persons), tenants=tuple(names))

    def set_approvals(self, domain: str, wanted: Approvals) -> bool:
        """Say what needs approval from now on; whether that is new. Raises NotFound, BadPolicy."""
        before = self.approvals(domain)
        if before == wanted:
            return False
        for index, name in enumerate(wanted.tenants):
            try:
                owner = self._tx.tenant(name)
            except NotFound as error:
                raise BadPolicy(error.reason, place=f"tenants[{index}]") from None
            if owner.domain != domain:
                raise BadPolicy(f"tenant '{name}' is not of domain '{domain}'", place=f"tenants[{index}]")
        mine, named = tenants.c.domain == domain, tenants.c.id.in_(wanted.tenants)
        self._tx.write(update(tenants).where(mine, tenants.c.two_persons != 0, ~named).values(two_persons=0))
        self._tx.write(update(tenants).where(mine, tenants.c.two_persons == 0, named).values(two_persons=1))
        marks = {"two_persons": int(wanted.operator_rules), "version": domains.c.version + 1}
        self._tx.write(update(domains).where(domains.c.id == domain).values(**marks))
        return True

    def add(self, scope: Scope, new: NewProposal) -> Proposal:
        """Keep a change until another person has decided. Raises NotFound, BadInput, TooLarge."""
        one_line(new.comment, place="comment", longest=LONGEST_REASON)
        self._forget(scope)
        size = func.coalesce(func.sum(func.length(proposals.c.body)), 0).label("size")
        room = select(func.count().label("open"), size).where(*self._of(scope), self._match_open())
        kept = self._tx.read(room).one()
        count, stored = int(kept.open), int(kept.size)
        if count >= MOST_OPEN or stored + len(new.body) > MOST_BYTES:
            raise TooLarge(
                f"{count} proposals are open already, of {stored} bytes: at most {MOST_OPEN} are kept, of {MOST_BYTES} "
                "bytes together; decide about one of them"
            )
        name = secrets.token_hex(16)
        row = {
            "id": name,
            "domain": scope.domain,
            "tenant": self._find_tenant_number(scope),
            "kind": new.kind,
            "author": new.author,
            "person": new.bearing.person,
            "maker": new.bearing.maker,
            "created": self._tx.micros,
            "expires": to_micros(self._tx.now + LASTS),
            "base_version": new.base_version,
            "comment": new.comment,
            "despite": int(new.despite),
            "confirm_s": new.confirm_s,
            "digest": hashlib.sha256(new.body.encode()).digest(),
            "body": new.body,
            "state": _OPEN,
            "reason": "",
        }
        self._tx.write(insert(proposals).values(row))
        return self.get(scope, name).seen

    def list(self, scope: Scope) -> Sequence[Proposal]:
        """The proposals about a list, or about a domain, newest first. Raises NotFound."""
        return [self._read_proposal(scope, row).seen for row in self._read_rows(scope)]

    def get(self, scope: Scope, proposal: str) -> KeptProposal:
        """One proposal. Raises NotFound."""
        for row in self._read_rows(scope, proposals.c.id == proposal):
            return self._read_proposal(scope, row)
        raise NotFound(f"there is no proposal '{proposal}'")

    def open(self, scope: Scope, proposal: str) -> KeptProposal:
        """One that can still be decided. Raises NotFound, and Conflict where that is over."""
        found = self.get(scope, proposal)
        if found.seen.state != _OPEN:
            raise Conflict(f"the proposal is {found.seen.state}: nothing can be decided about it any more")
        return found

    def decide(
        self, scope: Scope, proposal: str, state: str, *, by: str, by_name: str = "", reason: str = ""
    ) -> Proposal:
        """Note what was decided, and by whom; what it proposed is forgotten. Raises NotFound, BadInput."""
        one_line(reason, place="reason", longest=LONGEST_REASON)
        decided = {"decided_by": by, "decided_by_name": by_name, "decided": self._tx.micros, "reason": reason}
        values = {"state": state, "body": None, **decided}
        self._tx.write(update(proposals).where(proposals.c.id == proposal).values(**values))
        return self.get(scope, proposal).seen

    # ------------------------------------------------------------------------------------------------ steps

    def _find_tenant_number(self, scope: Scope) -> int | None:
        return None if scope.tenant is None else int(self._tx.tenant(scope.tenant).number)

    def _of(self, scope: Scope) -> tuple[Any, ...]:
        """The conditions of a scope's rows. Raises NotFound."""
        if scope.tenant is None:
            self._tx.domain(scope.domain)
            return proposals.c.domain == scope.domain, proposals.c.tenant.is_(None)
        return (proposals.c.tenant == self._find_tenant_number(scope),)

    def _match_open(self) -> Any:
        return (proposals.c.state == _OPEN) & (proposals.c.expires > self._tx.micros)

    def _read_rows(self, scope: Scope, *more: Any) -> Sequence[Row[Any]]:
        found = select(proposals).where(*self._of(scope), *more)
        return self._tx.read(found.order_by(proposals.c.created.desc(), proposals.c.id)).all()

    def _forget(self, scope: Scope) -> None:
        """Delete the oldest closed proposals of a scope, and the bodies of the others.

        A proposal is closed when it was decided or ended.
        """
        over = (*self._of(scope), ~self._match_open())
        self._tx.write(update(proposals).where(*over, proposals.c.body.is_not(None)).values(body=None))
        newest = select(proposals.c.id).where(*over).order_by(proposals.c.created.desc()).limit(MOST_DECIDED)
        kept = list(self._tx.read(newest).scalars())
        self._tx.write(delete(proposals).where(*over, proposals.c.id.not_in(kept)))

    def _read_proposal(self, scope: Scope, row: Row[Any]) -> KeptProposal:
        is_over = row.state == _OPEN and row.expires <= self._tx.micros
        seen = Proposal(
            id=row.id,
            kind=row.kind,
            domain=row.domain,
            tenant=scope.tenant,
            state="ended" if is_over else row.state,
            author=row.author,
            person=row.person,
            made_by=row.maker,
            created=from_micros(row.created),
            expires=from_micros(row.expires),
            base_version=row.base_version,
            has_moved=row.state == _OPEN and row.base_version != self._version(scope, row.kind),
            comment=row.comment,
            confirm_s=row.confirm_s,
            digest=row.digest.hex(),
            decided_by=row.decided_by,
            decided_by_name=row.decided_by_name,
            decided=None if row.decided is None else from_micros(row.decided),
            reason=row.reason,
        )
        return KeptProposal(seen, row.body or "", Bearing(row.person, row.maker), bool(row.despite))

    def _version(self, scope: Scope, kind: ProposalKind) -> int:
        """The version that a change of that kind is made from now."""
        if scope.tenant is not None:
            return int(self._tx.tenant(scope.tenant).acl_version)
        row = self._tx.domain(scope.domain)
        return int(row.operator_version if kind == "operator-rules" else row.version)
