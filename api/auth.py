"""Identity of callers, and what each may see.

    role       sees                                 may change
    admin      everything                           everything
    member     its tenant                           its tenant's access list
    reader     its tenant                           nothing
    enforcer   its domain's hosts and programs      its own reports

Enforcers are known by their certificate where the service speaks TLS, by a token where it does not; all others by a
token.

An object that a caller may not see is answered as if it were not there: `NotFound`, in the words that a missing thing
gets. Only who sees a thing and may not change it is told so: `Forbidden`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import APIKeyHeader

from api.bodies import PRINCIPAL, address_of
from api.context import NamePath, Services, ServicesDep
from orchestrator import stages
from orchestrator.errors import BadInput, Forbidden, NotFound, Unauthenticated
from orchestrator.store.records import Principal, Role

CERTIFICATE = "aclflow.certificate"
"""Where the server puts the fingerprint (SHA-256) of the certificate that a connection was made with, if any."""

READS = frozenset({"GET", "HEAD", "OPTIONS"})
AUTH_HEADER = "X-Auth-Token"
_TOKEN = APIKeyHeader(name=AUTH_HEADER, auto_error=False, description="a token of `aclflow token create`")


async def caller(request: Request, services: ServicesDep, token: Annotated[str | None, Depends(_TOKEN)]) -> Principal:
    """Return the principal that shows a certificate, or bears the token of a request.

    Raises Unauthenticated, and BadInput for who does both.

    A machine that has a certificate is known by that alone: were a token taken as well, a request could be made in
    somebody else's name over its connection.
    """
    seen: Principal | None = request.scope.get(PRINCIPAL)
    if seen is not None:  # before the body was read
        return seen
    control = services.control
    fingerprint: bytes | None = request.scope.get(CERTIFICATE)
    if fingerprint is not None:
        if token:
            raise BadInput("you are known by your certificate: leave the token out", place="header.X-Auth-Token")
        known, look = control.known_certified(fingerprint), partial(control.certificate_bearer, fingerprint)
    elif token:
        known, look = control.known_bearer(token), partial(control.bearer, token)
    else:
        raise Unauthenticated("say who you are: X-Auth-Token", place="header.X-Auth-Token")
    principal = known if known is not None else await run_in_threadpool(look)
    principal = replace(principal, address=address_of(request.scope), checked_s=time.monotonic())
    request.scope[PRINCIPAL] = principal
    if request.method not in READS:
        services.rates.take(principal)
    stages.lap("auth")
    return principal


Caller = Annotated[Principal, Depends(caller)]


async def identify(request: Request) -> Principal:
    """Return the caller of a request before its parameters are read. Raises as `caller`."""
    return await caller(request, request.app.state.services, request.headers.get(AUTH_HEADER))


async def bearer(token: Annotated[str | None, Depends(_TOKEN)]) -> str:
    """The token of a request, for who must check it again later."""
    return token or ""


Bearer = Annotated[str, Depends(bearer)]


def is_admin(principal: Principal) -> bool:
    """Whether a caller may do everything."""
    return principal.role is Role.ADMIN


def only_tenant(principal: Principal) -> str | None:
    """The one tenant that a caller sees; None for administrators, who see all.

    Raises NotFound for enforcers.
    """
    if is_admin(principal):
        return None
    if principal.tenant is None:
        raise NotFound("there is no such thing here")
    return principal.tenant


# ---------------------------------------------------------------------------------------------------- guards of routes


async def administrator(principal: Caller) -> Principal:
    """Return the caller if it is an administrator. Raises NotFound."""
    if not is_admin(principal):
        raise NotFound("there is no such thing here")
    return principal


async def tenant_creator(principal: Caller) -> Principal:
    """Allow only administrators to make tenants.

    Members see the list of tenants, which has one, and so are told that they may not add to it.
    """
    if only_tenant(principal) is not None:
        raise Forbidden("only administrators make tenants")
    return principal


async def tenant_reader(tenant: NamePath, principal: Caller) -> Principal:
    """Return the caller if it may read what belongs to a tenant."""
    if not is_admin(principal) and principal.tenant != tenant:
        raise NotFound(f"there is no tenant '{tenant}'")
    return principal


async def tenant_writer(principal: Annotated[Principal, Depends(tenant_reader)]) -> Principal:
    """Return the caller if it may change a tenant's access list."""
    if principal.role is Role.READER:
        raise Forbidden("this token may only read")
    return principal


async def tenant_owner(principal: Annotated[Principal, Depends(tenant_reader)]) -> Principal:
    """Return the caller if it may change a tenant itself and what it owns."""
    if not is_admin(principal):
        raise Forbidden("only administrators change what a tenant is and owns")
    return principal


async def domain_reader(domain: NamePath, principal: Caller) -> Principal:
    """Return the caller if it may read a domain: administrators and the domain's enforcers."""
    if not is_admin(principal) and principal.domain != domain:
        raise NotFound(f"there is no domain '{domain}'")
    return principal


async def domain_owner(principal: Annotated[Principal, Depends(domain_reader)]) -> Principal:
    """Return the caller if it may change a domain."""
    if not is_admin(principal):
        raise Forbidden("only administrators change a domain")
    return principal


async def the_enforcer(enforcer: int, principal: Annotated[Principal, Depends(domain_reader)]) -> Principal:
    """Return the caller if it is just the enforcement point that the path names."""
    if principal.enforcer != enforcer:
        if is_admin(principal):
            raise Forbidden("only the enforcer itself reports")
        raise NotFound(f"there is no enforcer {enforcer}")
    return principal


def sees_domain(services: Services, principal: Principal, domain: str) -> bool:
    """Return whether a caller may see how far a domain's generations have got.

    Tenants of the domain may, too.
    """
    if is_admin(principal) or principal.domain == domain:
        return True
    tenant = principal.tenant
    return tenant is not None and services.control.read(lambda unit: unit.tenants.get(tenant)).domain == domain


Administrator = Annotated[Principal, Depends(administrator)]
TenantCreator = Annotated[Principal, Depends(tenant_creator)]
TenantReader = Annotated[Principal, Depends(tenant_reader)]
TenantWriter = Annotated[Principal, Depends(tenant_writer)]
TenantOwner = Annotated[Principal, Depends(tenant_owner)]
DomainReader = Annotated[Principal, Depends(domain_reader)]
DomainOwner = Annotated[Principal, Depends(domain_owner)]
TheEnforcer = Annotated[Principal, Depends(the_enforcer)]
