"""The scenes of a demo: the lists that ship, or a user's list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.errors import BadInput, Missing
from orchestrator.lab import specfile, trials
from orchestrator.lab.aims import TENANT, aims, description
from orchestrator.lab.pop import Lab
from orchestrator.lab.sockets import Conversation
from orchestrator.lab.spec import FirewallSpec, PopSpec
from orchestrator.lab.trials import Trial
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats import registry
from orchestrator.policy.formats.results import Imported, Options
from orchestrator.policy.model import Acl, Policy, ReturnTraffic, TenantId
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

POLICIES = Path(__file__).with_name("policies")
SHIPPED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "shop": ("shop.cisco", ("SHOP-IN", "SHOP-IN-6")),
    "bank": ("bank.iptables", ()),
}
"""The files that ship and the lists to read in them, by tenant of the default point of presence."""

SERVERS = ("fs1", "fs2")
"""The firewall servers behind the edge switch of the default point of presence."""

MOST_TRIALS = 40
"""The format whose files hold many lists."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A lab's description, the lists to load, and the trials.

    `notes` say how the lists were read.
    """

    spec: PopSpec
    acls: Mapping[TenantId, Acl]
    act: Callable[[Lab, Policy], tuple[Trial, ...]]
    notes: tuple[str, ...] = ()


def of_file(path: Path, format_name: str | None, lists: tuple[str, ...] = ()) -> Scene:
    """Return a scene for a user's list, with packets made for it.

    Raises Missing, BadInput, BadPolicy, TooLarge.

    `lists` name what to read of a file with several (access lists, chains), as ``NAME``, ``NAME=egress``. Parts that a
    stateless list cannot say are read as its safe approximation; the notes say which lines are concerned.
    """
    imported = read_file(path, format_name, lists)
    if imported.losses and not imported.acl.rules:
        raise BadInput(f"nothing of it could be carried over; {imported.losses[0]}")
    chosen = aims(imported.acl, ReturnTraffic.ESTABLISHED, MOST_TRIALS)
    return Scene(
        description(chosen),
        {TENANT: imported.acl},
        lambda lab, _: trials.send(lab, chosen),
        (*_summarize_losses(imported), *imported.notes, *map(str, imported.losses)),
    )


def _summarize_losses(imported: Imported) -> tuple[str, ...]:
    count = len(imported.losses)
    return (f"not carried over exactly: {count}; their safe approximation is used",) if count else ()


def shipped_scene() -> Scene:
    """The lists that ship, tried with conversations."""
    read = {TenantId(tenant): read_file(POLICIES / file, None, lists) for tenant, (file, lists) in SHIPPED.items()}
    return Scene(
        replace(specfile.load(), servers=tuple(FirewallSpec(name, number=n) for n, name in enumerate(SERVERS, 1))),
        {tenant: imported.acl for tenant, imported in read.items()},
        lambda lab, policy: trials.talk(lab, policy, CONVERSATIONS),
        tuple(f"{tenant}: {note}" for tenant, imported in read.items() for note in imported.notes),
    )


def read_file(path: Path, format_name: str | None = None, lists: tuple[str, ...] = ()) -> Imported:
    """Read an access list from a file.

    Of several in a configuration, none named, the longest is read; a note says so.

    Raises Missing, BadInput, BadPolicy, TooLarge.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Missing(f"cannot read the access list: {error.strerror}", place=str(path)) from None
    options = Options(lists=lists, chains=lists, stateless=True)
    known = (
        registry.format_named(format_name) if format_name else registry.guess(text.decode(errors="replace"), path.name)
    )
    if known.read_all is not None and not lists:
        return _take_longest(registry.read_all(text, known.name, name=path.name, options=options))
    return registry.read(text, known.name, name=path.name, options=options)


def _take_longest(found: Mapping[str, Imported]) -> Imported:
    if not found:
        raise BadInput("it holds no access list")
    name = max(found, key=lambda each: len(found[each].acl.rules))
    if len(found) == 1:
        return found[name]
    note = f"of {len(found)} access lists the longest is taken, {name}; --list names others"
    return replace(found[name], notes=(note, *found[name].notes))


def _both(client: str, server: str, protocol: int, port: int = 0) -> tuple[Conversation, ...]:
    """Return a conversation over IPv4 and one over IPv6."""
    return tuple(Conversation(client, server, family, protocol, port) for family in Family)


def _make_pings(client: str, server: str) -> tuple[Conversation, ...]:
    return (
        Conversation(client, server, Family.IPV4, ICMP),
        Conversation(client, server, Family.IPV6, ICMPV6),
    )


CONVERSATIONS = (
    *_both("alice", "web1", TCP, 80),
    *_both("alice", "web1", TCP, 443),
    *_both("alice", "web1", TCP, 22),
    *_both("alice", "web1", UDP, 53),
    *_make_pings("alice", "web1"),
    *_both("mallory", "web1", TCP, 80),
    *_both("alice", "db1", TCP, 5432),
    *_both("web1", "db1", TCP, 5432),
    *_both("bank1", "db1", TCP, 5432),
    *_both("alice", "bank1", TCP, 443),
    *_both("alice", "bank2", TCP, 443),
    *_both("web1", "bank1", TCP, 8443),
    *_both("bank1", "bank2", TCP, 5432),
    *_both("web1", "alice", TCP, 25),
    *_make_pings("mallory", "bank1"),
)
