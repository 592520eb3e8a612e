"""Enrolment and certificates."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.schemas.common import Incoming, Name
from orchestrator.identity.requests import LONGEST_REQUEST

_LONGEST_S = 30 * 86400
_MOST_HOSTS = 1000

Request = Annotated[str, Field(max_length=LONGEST_REQUEST, description="certificate request (PKCS #10) in PEM")]


class NewInvitation(Incoming):
    """A request for an enrolment token: its lifetime, and its user if known."""

    lasts_s: int = Field(default=3600, ge=1, le=_LONGEST_S)
    name: Name | None = None
    kind: Name | None = None
    hosts: list[Name] = Field(
        default=[], max_length=_MOST_HOSTS, description="a controller's: it speaks for these switches alone"
    )


class NewGroup(Incoming):
    """A request for a group's enrolment token: the group, and the token's lifetime.

    The group is one of machines in the domain's cloud.
    """

    group: Name
    kind: Name
    lasts_s: int = Field(default=86400, ge=1, le=366 * 86400)


class Enrol(Incoming):
    """The use of an enrolment token.

    `csr` is needed where the service has an authority, `instance` for a group's.
    """

    token: str = Field(max_length=200)
    name: Name
    kind: Name
    csr: Request | None = None
    instance: Name | None = None


class EnrolSwitch(Incoming):
    """The use of an enrolment token of the kind `switch`.

    It is for the switch of the host that is named.
    """

    token: str = Field(max_length=200)
    name: Name
    csr: Request


class Signing(Incoming):
    """A key to be certified."""

    csr: Request


class SwitchSigning(Signing):
    """A key of an Open vSwitch to be certified.

    It may be the switch of several hosts.
    """

    also: list[Name] = Field(default=[], max_length=64, description="further hosts that it is the switch of")
