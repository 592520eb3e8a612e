"""Services of a request, and readers of its special parts."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, ValidationError

from api.pacing import MOST_FOLLOWED, Account, Pace
from api.problems import Unconditional, faults_of
from api.questions import Questions, Reviews
from api.rates import Rates, Strangers
from api.schemas.common import BIGGEST, NAME
from api.threads import RequestThreads, in_thread
from orchestrator.control.alarms import ImpostorDesk
from orchestrator.control.audit import Refusals
from orchestrator.control.control import Control
from orchestrator.control.counting import CountDesk
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.enrolment import EnrolmentDesk
from orchestrator.control.feed import Feed
from orchestrator.control.metrics import Metrics
from orchestrator.control.onboarding import Onboarder
from orchestrator.control.packets.log import PacketDesk
from orchestrator.control.spreading import Spreading
from orchestrator.control.workbench import Workbench
from orchestrator.errors import AclflowError, Conflict, Stale
from orchestrator.policy.formats.json_text import refuse_repeated_keys
from orchestrator.store.audit import NO_DIGESTS, Actor, Digests
from orchestrator.store.records import Principal, Reply
from orchestrator.store.unit import Unit

Body = TypeVar("Body", bound=BaseModel)

CHECKED_S = 0.1
"""So long a token that was found valid is taken to be so; a change of one rule takes less."""
_ENDING = frozenset({"token.revoked", "token.rotated"})
"""Changes that may end their author's own token; they ask before."""
_ETAG = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Services:
    """Services that routes use, wired in `orchestrator.wiring`."""

    control: Control
    enforcement: Enforcement
    desk: EnrolmentDesk
    counts: CountDesk
    impostors: ImpostorDesk
    packets: PacketDesk
    spreading: Spreading
    cloud_kind: str | None
    onboarder: Onboarder
    metrics: Metrics
    clock: Callable[[], dt.datetime]
    workbench: Workbench
    feed: Feed
    body_limit_bytes: int
    watch_limit_s: float
    review_limit_s: float
    heartbeat_s: float
    expiry_lead: dt.timedelta
    silence_s: float
    rates: Rates = field(default_factory=Rates)
    strangers: Strangers = field(default_factory=Strangers)
    refusals: Refusals = field(default_factory=Refusals)
    pace: Pace = field(default_factory=Pace)
    threads: RequestThreads = field(default_factory=RequestThreads)
    questions: Questions = field(default_factory=Questions)
    reviews: Reviews = field(default_factory=Reviews)
    summaries: Reviews = field(default_factory=Reviews)


async def services(request: Request) -> Services:
    """The services of the application that a request came to.

    A coroutine: FastAPI sends functions to a thread.
    """
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(services)]


# ---------------------------------------------------------------------------------------------------- parameters

NamePath = Annotated[str, Path(pattern=NAME)]
NumberPath = Annotated[int, Path(ge=0, le=BIGGEST)]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many items at most")]
NameMarker = Annotated[str | None, Query(pattern=NAME, description="the last item of the page before")]
NumberMarker = Annotated[int | None, Query(ge=0, le=BIGGEST, description="the last item of the page before")]
WithCost = Annotated[bool, Query(description="say what the list now costs; takes the longer the longer it is")]
Comment = Annotated[str, Query(max_length=1000, description="one line about the change, kept with the version")]
Despite = Annotated[bool, Query(description="write it although it breaks what is expected of the list")]
Confirm = Annotated[
    int | None,
    Query(ge=10, le=86_400, description="seconds after which it is taken back by itself unless it is confirmed"),
]
Seconds = Annotated[float, Query(ge=0, le=3600)]


@dataclass(frozen=True, slots=True)
class Writing:
    """A caller's options for a change of a list: cost, comment, checks, confirmation.

    `cost`: the answer has the list's cost. `comment` is kept with the change. `despite`: it may break what is expected
    of the list. `confirm_s`: it goes back after so many seconds unless it is confirmed; None: it stays.
    """

    cost: bool
    comment: str
    despite: bool
    confirm_s: int | None


async def writing(
    cost: WithCost = False, comment: Comment = "", despite_expectations: Despite = False, confirm: Confirm = None
) -> Writing:
    """Return what the query of a write asks for.

    A coroutine: FastAPI sends functions to a thread.
    """
    return Writing(cost, comment, despite_expectations, confirm)


WritingDep = Annotated[Writing, Depends(writing)]


# ---------------------------------------------------------------------------------------------------- bodies


async def raw_body(request: Request) -> bytes:
    """Return the request's body as it came.

    Large documents are then parsed off the event loop.
    """
    return await request.body()


RawBody = Annotated[bytes, Depends(raw_body)]


def read_body(model: type[Body], raw: bytes) -> Body:
    """A raw body as what it must be. Raises BadInput."""
    try:
        body = model.model_validate_json(raw)
    except ValidationError as error:
        raise faults_of(error) from None
    refuse_repeated_keys(raw)
    return body


def takes(model: type[BaseModel]) -> dict[str, object]:
    """The description of a raw body for OpenAPI.

    The application adds the schema of each model that is in `RAW_BODIES`.
    """
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    return {"requestBody": {"required": True, "content": content}}


# ---------------------------------------------------------------------------------------------------- conditions


class Condition:
    """The condition of If-Match."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    def require(self, current: str) -> None:
        """Check the condition of a write to something at ETag `current`.

        Raises Stale, and Unconditional when nothing is asked for.
        """
        if self._header is None:
            raise Unconditional(
                f"it exists, at {current}: say If-Match with the ETag you read", place="header.If-Match"
            )
        self.allow(current)

    def allow(self, current: str | None) -> None:
        """Check the condition, if there is one, of a write that needs none.

        None: there is nothing yet. Raises Stale.
        """
        if self._header is None or (self._header.strip() == "*" and current is not None):
            return
        if current is None:
            raise Stale("there is nothing that If-Match could hold for", place="header.If-Match")
        if current not in _strong_tags(self._header):
            raise Stale(f"it is at {current} now: read it again, then write", place="header.If-Match")


def _strong_tags(header: str) -> list[str]:
    """The ETags of an If-Match header. Weak ones never match."""
    return [tag.group() for tag in _ETAG.finditer(header) if not header.endswith("W/", 0, tag.start())]


async def condition(
    if_match: Annotated[str | None, Header(description="the ETag that was read, or *")] = None,
) -> Condition:
    """The condition of a write."""
    return Condition(if_match)


ConditionDep = Annotated[Condition, Depends(condition)]


# ---------------------------------------------------------------------------------------------------- idempotency


class Once:
    """Carries out a POST once for an Idempotency-Key, and repeats its answer later."""

    def __init__(self, key: str | None, request: bytes) -> None:
        self._key = key
        self._request = request

    def of(self, caller: Principal, work: Callable[[Unit], Reply], *, secret: bool = False) -> Callable[[Unit], Reply]:
        """Return the work, done once for the key of this caller.

        Raises Conflict when the key was for something else; and, where the answer holds a `secret`, which is kept
        nowhere, when the work was done already: the answer cannot be given again, but nothing is made twice.
        """
        key = self._key
        if key is None:
            return work

        def reply_once(unit: Unit) -> Reply:
            kept = unit.replies.find(caller.token_id, key, self._request)
            if kept is not None and secret:
                made = kept.headers.get("Location", "")
                raise Conflict(
                    f"it was done already ({made}), and its secret was shown only then: take a new key",
                    place="Idempotency-Key",
                )
            if kept is not None:
                return kept
            done = work(unit)
            unit.replies.keep(caller.token_id, key, self._request, replace(done, body=b"") if secret else done)
            return done

        return reply_once


async def once(
    request: Request,
    idempotency_key: Annotated[str | None, Header(description="repeat safely with the same key")] = None,
) -> Once:
    """The idempotency key of a POST and the digest of what is asked."""
    if idempotency_key is None:
        return Once(None, b"")
    digest = blake2b(digest_size=32)
    for part in (request.method, request.url.path, request.url.query):
        digest.update(part.encode() + b"\0")
    digest.update(await request.body())
    return Once(idempotency_key, digest.digest())


OnceDep = Annotated[Once, Depends(once)]


@contextmanager
def seen_from(outer: str) -> Iterator[None]:
    """Leave out of an error's place what the caller's path says already: ``tenants[blue].acl.rules[3]``."""
    try:
        yield
    except AclflowError as error:
        error.place = error.place.removeprefix(f"{outer}.") if error.place else None
        raise


def author(caller: Principal) -> str:
    """How a caller is named in histories and events."""
    return caller.name


def log_event(
    unit: Unit,
    caller: Principal,
    kind: str,
    subject: str,
    detail: Mapping[str, object],
    *,
    digests: Digests = NO_DIGESTS,
) -> None:
    """Log a change with its author, as an event and in the audit trail.

    Both are written in the transaction of the change. A change that waited for its turn asks again whether its author
    may do anything. Raises Unauthenticated for one whose token was revoked, or has ended, meanwhile.
    """
    if time.monotonic() - caller.checked_s > CHECKED_S and kind not in _ENDING:
        unit.tokens.require(caller.token_id)
    actor = Actor(caller.name, caller.address)
    by = {"by": caller.name, "by_name": caller.description} if caller.description else {"by": caller.name}
    unit.events.append(kind, subject, {**by, **detail}, actor=actor, digests=digests)


def check_again(services: Services, caller: Principal) -> None:
    """Look a caller up again that has waited.

    Raises Unauthenticated for one that was revoked meanwhile.
    """
    if time.monotonic() - caller.checked_s > CHECKED_S:
        services.control.read(lambda unit: unit.tokens.require(caller.token_id))


async def keep_in_turn(
    services: Services, caller: Principal, whose: str, request: Request, keep: Callable[[bytes], Response]
) -> Response:
    """Return what `keep` answers to a body, in the caller's turn (`pacing.py`).

    Raises TooOften where much of `whose` is under way, or took long.
    """
    with services.pace.admit(whose) as account:
        raw = await request.body()

        def keep_body(_: Principal) -> Response:
            check_again(services, caller)
            with account.spending():
                return keep(raw)

        async with account.turn():
            return await in_thread(keep_body, caller)


def account_of_programs(services: Services, caller: Principal) -> Account:
    """Return the account of programs that a caller is sent whole."""
    whose = f"token {caller.token_id}" if caller.enforcer is None else f"enforcement point {caller.enforcer}"
    return services.pace.account(f"whole programs of {whose}")


def most_followed(caller: Principal) -> int | None:
    """Return how many programs a caller may follow at once; None for any number."""
    return None if caller.enforcer is None else MOST_FOLLOWED


Digest = Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}$", description="of the program that is held")]


HeldGeneration = Annotated[int | None, Query(ge=0, le=BIGGEST, description="of the program that is held")]
