"""Bearer tokens: for administrators; everybody may ask about the own one."""

from __future__ import annotations

import datetime as dt
from typing import TypeVar

from fastapi import APIRouter, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import Administrator, Caller, is_admin
from api.context import ConditionDep, Limit, NumberMarker, NumberPath, OnceDep, ServicesDep, log_event
from api.limits import SmallBody
from api.schemas.tenants import Rotation, TokenRequest
from orchestrator.control.units import NO_DOMAIN
from orchestrator.errors import NotFound
from orchestrator.store.records import Reply, Role, TokenRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Page
from orchestrator.wire.enrolment import NewToken, Token

Shown = TypeVar("Shown", bound=Token)

router = APIRouter(prefix="/v1", tags=["tokens"], route_class=SmallBody)


@router.get("/tokens", response_model=Page[Token])
def list_tokens(_: Administrator, services: ServicesDep, limit: Limit = 100, marker: NumberMarker = None) -> Response:
    """The tokens, oldest first, without their secrets."""
    found = services.control.read(lambda unit: unit.tokens.list(limit=limit + 1, marker=marker or 0))
    following = found[limit - 1].id if len(found) > limit else None
    return answer(Page(tuple(_seen(Token, record) for record in found[:limit]), following))


@router.post("/tokens", status_code=201, response_model=NewToken)
def create_token(caller: Administrator, services: ServicesDep, body: TokenRequest, once: OnceDep) -> Response:
    """Make a token, whose secret is only in this answer.

    A repeated request with the same key is answered 409.
    """

    def create(unit: Unit) -> Reply:
        new = unit.tokens.create(
            Role(body.role),
            tenant=body.tenant,
            expires=body.expires,
            description=body.description,
            person=body.person,
            maker=unit.tokens.bearing(caller.token_id),
        )
        detail = {"role": body.role, "tenant": body.tenant, "person": new.record.bearing.person}
        log_event(unit, caller, "token.created", str(new.record.id), detail)
        location = f"/v1/tokens/{new.record.id}"
        return reply(_seen(NewToken, new.record, token=new.secret), tag=etag(new.record.id), location=location)

    return answer_write(services.control.carry_out(once.of(caller, create, secret=True), domain=NO_DOMAIN))


@router.get("/tokens/mine", response_model=Token)
def get_own_token(caller: Caller, services: ServicesDep) -> Response:
    """The token that this request was made with: who its bearer is, and until when."""
    record = services.control.read(lambda unit: unit.tokens.get(caller.token_id))
    return answer(_seen(Token, record), tag=etag(record.id))


@router.post("/tokens/{token}/rotation", status_code=201, response_model=NewToken)
def rotate_token(caller: Caller, services: ServicesDep, token: NumberPath, body: Rotation, once: OnceDep) -> Response:
    """Make a token's successor, for the same bearer.

    The old one ends after an overlap. Bearers may replace their own tokens.
    """

    def rotate(unit: Unit) -> Reply:
        if token != caller.token_id and not is_admin(caller):
            raise NotFound(f"there is no token {token}")
        unit.tokens.require(caller.token_id)
        maker, overlap = unit.tokens.bearing(caller.token_id), dt.timedelta(seconds=body.overlap_s)
        new = unit.tokens.rotate(token, overlap=overlap, expires=body.expires, maker=maker)
        bearer = new.record.principal
        detail = {"role": bearer.role.value, "tenant": bearer.tenant, "replaces": token, "overlap_s": body.overlap_s}
        log_event(unit, caller, "token.rotated", str(new.record.id), detail)
        location = f"/v1/tokens/{new.record.id}"
        return reply(_seen(NewToken, new.record, token=new.secret), tag=etag(new.record.id), location=location)

    return answer_write(services.control.carry_out(once.of(caller, rotate, secret=True), domain=NO_DOMAIN))


@router.get("/tokens/{token}", response_model=Token)
def get_token(_: Administrator, services: ServicesDep, token: NumberPath) -> Response:
    """One token, without its secret."""
    record = services.control.read(lambda unit: unit.tokens.get(token))
    return answer(_seen(Token, record), tag=etag(record.id))


@router.delete("/tokens/{token}", status_code=204)
def revoke_token(caller: Administrator, services: ServicesDep, token: NumberPath, condition: ConditionDep) -> Response:
    """Make a token invalid, at once."""

    def revoke(unit: Unit) -> None:
        unit.tokens.require(caller.token_id)
        condition.require(etag(unit.tokens.get(token).id))
        unit.tokens.revoke(token)
        log_event(unit, caller, "token.revoked", str(token), {})

    services.control.write(revoke, domain=NO_DOMAIN)
    return Response(status_code=204)


def _seen(kind: type[Shown], record: TokenRecord, **more: object) -> Shown:
    """Return a token as a document."""
    bearer = record.principal
    named = {"person": record.bearing.person, "made_by": record.bearing.maker}
    return fill(kind, record, role=bearer.role.value, tenant=bearer.tenant, domain=bearer.domain, **named, **more)
