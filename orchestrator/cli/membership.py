"""Where an enforcement point belongs, as its command line and settings say.

Apart from `controller.py`, so that a firewall's agent does not load the OpenFlow library: half of its start was that.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.enforce.enrolment import Membership
from orchestrator.errors import Missing
from orchestrator.settings import Settings

EnrolFile = Annotated[
    Path | None, typer.Option("--enrol-file", help="Where the enrolment token is; else it is in ACLFLOW_TOKEN.")
]
"""How an enforcement point is told its token: never on the command line, which everybody on the machine can read."""


def membership(settings: Settings, name: str | None, url: str | None, enrol_file: Path | None) -> Membership:
    """Where an enforcement point of this machine belongs."""
    return Membership(
        url=url or settings.url,
        state_dir=settings.state_dir,
        name=name or socket.gethostname(),
        token=enrolment_token(settings, enrol_file),
        authority=settings.authority,
        plain_http=settings.plain_http,
        certificate_look_s=settings.certificate_look_s,
        certificate_overlap_s=settings.certificate_overlap_s,
    )


def enrolment_token(settings: Settings, path: Path | None) -> str:
    """Return the enrolment token in a file, else in the settings.

    It is empty where there is no such file, because a machine that has enrolled already needs none.
    """
    if path is None:
        return settings.token
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Missing(f"cannot be read: {error}", place=str(path)) from None
