"""`aclflow certificates`: the service's certificate authority, and what it signed."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.files import STDIN
from orchestrator.cli.membership import EnrolFile, enrolment_token
from orchestrator.cli.options import AsJson, DomainName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, say_json
from orchestrator.client import Client
from orchestrator.errors import BadInput, Conflict, Missing
from orchestrator.identity.authority import CONSOLE_LASTS, Authority, fingerprint_of, is_signed_by
from orchestrator.identity.files import (
    AuthorityDir,
    Rollover,
    parsed_certificate,
    read_certificate,
    write_file,
    write_key,
)
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import LONGEST_REQUEST, new_key, read_request, request_of
from orchestrator.identity.trust import bare_context
from orchestrator.settings import load
from orchestrator.store import open_store
from orchestrator.wire.enrolment import Certificate

Csr = Annotated[Path, typer.Option("--csr", help="The request that was made on it; `-` for standard input.")]
Out = Annotated[Path | None, typer.Option("--out", help="Where to write it; standard output by default.")]


@taking
def init(
    name: Annotated[str, typer.Option("--name", help="A name of the authority, for people.")] = "aclflow",
    as_json: AsJson = False,
) -> None:
    """Make the certificate authority of the service on this machine, in ACLFLOW_STATE_DIR/authority.

    Its key is for its owner alone: run this as the user that the service runs as, and keep a copy where only you come.
    Anybody who has it can pass for any machine.
    """
    place = AuthorityDir(load().authority_dir)
    _say_authority(place.create(name, dt.datetime.now(dt.UTC)), place, as_json)


@taking
def show(as_json: AsJson = False) -> None:
    """Show the authority of the service on this machine: fingerprint and end."""
    place = AuthorityDir(load().authority_dir)
    _say_authority(place.load(), place, as_json)


@taking
def rotate(
    name: Annotated[str, typer.Option("--name", help="A name of the new authority, for people.")] = "aclflow",
    finish: Annotated[bool, typer.Option("--finish", help="Stop believing the former authority.")] = False,
    despite: Annotated[bool, typer.Option("--despite", help="Finish although machines must enrol again then.")] = False,
    urls: Annotated[
        list[str] | None,
        typer.Option("--service", help="Do nothing while the service at this URL believes others; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replace the service's authority by a new one, one step at a time.

    Restart the service after each step; several services of one database get the files of this one, and --service says
    for each whether it has them. First the new one is announced: running machines learn it within two minutes.
    Then it signs: they renew by it, while the former one is still believed. With --finish the former one is dropped:
    machines that were away must enrol again.
    """
    place, now = AuthorityDir(load().authority_dir), dt.datetime.now(dt.UTC)
    for url in urls or ():
        _check_same(place, url)
    if finish:
        left = _by_former(place)
        if left and not despite:
            raise Conflict(
                f"valid certificates of the former authority are left: {', '.join(left)}. Their bearers would have to "
                "enrol again or get new ones; revoke those that are in use no more, or say --despite"
            )
        place.forget_former()
    elif place.stage is Rollover.OVERLAPPING:
        raise Conflict("the new authority signs already: `aclflow certificates rotate --finish` drops the former one")
    elif place.stage is Rollover.ANNOUNCED:
        place.take_over()
    else:
        place.load()
        place.announce(name, now)
    if not as_json:
        say(_NEXT_STEPS[place.stage])
    _say_authority(place.load(), place, as_json)


_NEXT_STEPS = {
    Rollover.ANNOUNCED: "announced: restart the service; after two minutes `aclflow certificates rotate` again. Give "
    "switches the authorities before: `aclflow certificates authority`",
    Rollover.OVERLAPPING: "the new authority signs: restart the service; once all have new certificates (switches and "
    "consoles by hand), `aclflow certificates rotate --finish`",
    Rollover.NONE: "the former authority is believed no more: restart the service",
}


def _check_same(place: AuthorityDir, url: str) -> None:
    """Refuse a step while a service believes other authorities than are here.

    That is against mistakes alone: what is asked is public, and the answer is not proven. Raises Conflict.
    """
    with Client(url, trust=bare_context()) as client:
        if client.enrolment.read_authority() != place.read_believed():
            raise Conflict(
                f"the service at {url} does not believe the authorities that are here: give it these files, take away "
                "those that are here no more, and restart it before the next step",
                place="--service",
            )


def _by_former(place: AuthorityDir) -> list[str]:
    """Return the holders of valid certificates that the former authority signed.

    Raises Conflict where there is none that is still believed.
    """
    if place.stage is not Rollover.OVERLAPPING:
        raise Conflict("there is no former authority that is still believed", place=str(place.path))
    former = read_certificate(place.former_certificate)
    store = open_store(load().database_url)
    try:
        with store.read() as unit:
            held = [each for each in unit.certificates.list(None) if each.is_valid]
    finally:
        store.close()
    return sorted(f"{each.subject.name} ({each.serial})" for each in held if is_signed_by(each.pem, former))


@taking
def authority(
    fingerprint: Annotated[
        str | None,
        typer.Option(
            "--fingerprint", help="The fingerprint that it must have, as `show` says: then no other is believed."
        ),
    ] = None,
    out: Out = None,
    url: Url = None,
) -> None:
    """Get the authority's certificate from the service, for ACLFLOW_AUTHORITY and for switches.

    The service is believed as ACLFLOW_AUTHORITY says, or, with --fingerprint, by that alone.
    """
    settings = load()
    address = url or settings.url
    trust = bare_context() if fingerprint is not None else None
    believed = None if trust else settings.authority
    with Client(address, trust=trust, authority=believed, plain_http=settings.plain_http) as client:
        pem = client.enrolment.read_authority()
    found = fingerprint_of(parsed_certificate(pem.encode(), "authority")).hex()
    if fingerprint is not None and found != fingerprint.replace(":", "").lower():
        raise BadInput(f"whoever answers at {address} has another authority: {found}", place="--fingerprint")
    _write_text(pem, out)


@taking
def request(
    name: Annotated[str, typer.Option("--name", help="The host that the switch belongs to.")],
    key: Annotated[Path, typer.Option("--key", help="Where to write the key, for its owner alone.")],
    out: Out = None,
) -> None:
    """Make a key and a certificate request on this machine. The key never leaves it."""
    if key.exists():
        raise Conflict("there is a key already: remove it, or take another place", place=str(key))
    made = new_key()
    asked = request_of(made, name)
    write_key(key, made)
    _write_text(asked, out)


@taking
def issue(
    domain: DomainName,
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host whose switch it is for.")],
    csr: Csr,
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A further host whose switch it is; may be repeated.")
    ] = None,
    out: Out = None,
    url: Url = None,
) -> None:
    """Have the request of a switch signed. Give the certificate to it with `ovs-vsctl set-ssl`."""
    with service(url) as client:
        made = client.certificates.issue_for_switch(domain, host, _read_request(csr), also=also or ())
    _write_text(made.certificate, out)


@taking
def enrol(
    name: Annotated[str, typer.Argument(metavar="HOST", help="The host whose switch it is for.")],
    csr: Csr,
    enrol_file: EnrolFile = None,
    out: Out = None,
    url: Url = None,
) -> None:
    """Have a switch's certificate request signed for a one-time token.

    `aclflow domain invite --kind switch --name HOST` makes the token; no other is needed. Certificates that the
    switch had before become invalid.
    """
    settings = load()
    token = enrolment_token(settings, enrol_file)
    with Client(url or settings.url, authority=settings.authority, plain_http=settings.plain_http) as client:
        made = client.enrolment.enrol_switch(token, name=name, csr=_read_request(csr))
    _write_text(made.certificate, out)


@taking
def console(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The machine that it runs on.")],
    csr: Csr,
    host: Annotated[
        list[str], typer.Option("--host", help="A name or address that browsers reach it by; may be repeated.")
    ],
    out: Out = None,
) -> None:
    """Sign the certificate request of a web console on this machine.

    The authority is that of the service on this machine, in ACLFLOW_STATE_DIR/authority. `aclflow console` shows the
    certificate to browsers; at the service it stands for nobody.
    """
    authority = AuthorityDir(load().authority_dir).load()
    asked = read_request(_read_request(csr), name)
    subject = Subject(Usage.CONSOLE, "service", name)
    made = authority.issue(subject, asked.key, dt.datetime.now(dt.UTC), CONSOLE_LASTS, hosts=host)
    _write_text(made.pem, out)


@taking
def list_all(
    shown: Shown,
    domain: Annotated[
        str | None, typer.Option("--domain", help="Only those of this domain.", autocompletion=complete.domains)
    ] = None,
    url: Url = None,
) -> None:
    """List what was issued, until 90 days after its end."""
    with service(url) as client:
        found = list(client.certificates.read_all(domain))
    rows = (
        (each.serial, each.usage, each.domain, each.name, f"{each.ends:%Y-%m-%d}", _describe_state(each))
        for each in found
    )
    shown.say([*map(_write_certificate, found)], ("serial", "usage", "domain", "name", "ends", "state"), rows)


@taking
def revoke(
    serial: Annotated[
        str, typer.Argument(metavar="SERIAL", help="As `list` shows it.", autocompletion=complete.certificates)
    ],
    url: Url = None,
) -> None:
    """Make a certificate invalid, at once: open connections of its bearer are cut.

    The service cuts off an enforcement point within a second; controllers cut off a switch as soon as they hear of it,
    which is every two seconds.
    """
    with service(url) as client:
        client.certificates.revoke(serial)
    say(f"certificate {serial} is valid no more")


def _say_authority(made: Authority, place: AuthorityDir, as_json: bool) -> None:
    said = {
        "certificate": str(place.certificate),
        "fingerprint": made.fingerprint.hex(),
        "ends": made.ends.isoformat(),
    }
    if as_json:
        say_json(said)
    else:
        for name, value in said.items():
            say(f"{name:12} {value}")


def _read_request(csr: Path) -> str:
    try:
        return sys.stdin.read(LONGEST_REQUEST + 1) if str(csr) == STDIN else csr.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Missing(f"cannot be read: {error}", place=str(csr)) from None


def _write_text(text: str, out: Path | None) -> None:
    if out is None:
        for line in text.strip().splitlines():
            say(line)
    else:
        write_file(out, text.encode(), 0o644)


def _describe_state(one: Certificate) -> str:
    if one.valid:
        return "valid"
    return f"revoked {one.revoked:%Y-%m-%d %H:%M}" if one.revoked is not None else "not valid"


def _write_certificate(one: Certificate) -> dict[str, object]:
    return {
        "serial": one.serial,
        "usage": one.usage,
        "domain": one.domain,
        "name": one.name,
        "issued": one.issued.isoformat(),
        "ends": one.ends.isoformat(),
        "revoked": one.revoked and one.revoked.isoformat(),
        "valid": one.valid,
    }
