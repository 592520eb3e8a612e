"""Who an enforcement point is: from its disk, or by enrolling with a one-time token."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from orchestrator.client import Enrolment
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.enforce.watch import Patience
from orchestrator.errors import Missing, TryAgain

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Membership:
    """Where an enforcement point belongs. `token` is needed once; afterwards the credentials in `state_dir` serve."""

    url: str
    state_dir: Path
    name: str
    token: str = field(default="", repr=False)
    authority: Path | None = None
    """Whose certificate (PEM) the service's must be signed by; None: one that the machine believes."""
    patience: Patience = field(default_factory=Patience)


class Office(Protocol):
    """Where to enrol: the service's client."""

    def enrol(self, token: str, *, name: str, kind: str) -> Enrolment:
        """Use up an enrolment token."""
        ...


def enrolled(
    membership: Membership, kind: str, state: StateDir, connect: Callable[[str], Office], stopping: threading.Event
) -> Credentials | None:
    """Who we are: from the disk, else by enrolling, for which the service is waited for. None when told to stop.

    Raises Missing without credentials and token, Unauthenticated when the token is wrong or was used.
    """
    credentials = state.credentials()
    if credentials is not None:
        return credentials
    if not membership.token:
        raise Missing("there are no credentials yet, so a one-time enrolment token is needed", place="token")
    state.check()  # the token is good for one time: better to know now that its fruit cannot be kept
    office = connect(membership.url)
    failures = 0
    while not stopping.is_set():
        try:
            found = office.enrol(membership.token, name=membership.name, kind=kind)
        except TryAgain as error:
            failures += 1
            log.warning("enrolment.waits", error=str(error), url=membership.url)
            stopping.wait(membership.patience.delay_s(failures))
        else:
            credentials = Credentials(found.domain, found.enforcer, found.token, found.epoch)
            state.keep_credentials(credentials)
            log.info("enrolment.done", domain=found.domain, enforcer=found.enforcer, epoch=found.epoch)
            return credentials
    return None
