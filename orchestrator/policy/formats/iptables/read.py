"""iptables-save as an access list: which chain becomes which direction, and everything put together.

iptables speaks of IPv4 only and ip6tables of IPv6 only, so every rule names its version, and the policy ACCEPT becomes
a last rule that permits that version; both defaults of the list are deny. The lists read from an iptables and an
ip6tables file can therefore simply be put one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, shown
from orchestrator.policy.formats.chains import follow
from orchestrator.policy.formats.iptables.parse import parse
from orchestrator.policy.formats.results import Effect, Imported, Loss, Notes, Options
from orchestrator.policy.formats.tables import Chain, decides
from orchestrator.policy.model import Action, Direction


def read_iptables(text: str, name: str, options: Options) -> Imported:
    """Read iptables-save. Raises BadInput or TooLarge with a place such as ``line 12``."""
    return _read_tables(text, name, options, Family.IPV4)


def read_ip6tables(text: str, name: str, options: Options) -> Imported:
    """Read ip6tables-save. Raises BadInput or TooLarge with a place such as ``line 12``."""
    return _read_tables(text, name, options, Family.IPV6)


def _read_tables(text: str, name: str, options: Options, family: Family) -> Imported:
    notes = Notes()
    table = parse(text, family, notes, options.interfaces)
    for taken in options.interfaces.notes():
        notes.add(taken)
    chosen = _named_chains(table.chains, options.chains) if options.chains else _usual_chains(table.chains, notes)
    assembler = Assembler(name, notes, max_rules=options.max_rules)
    for direction, chain in chosen.items():
        notes.add(f"{direction.value} is the chain {chain.name}")
        clauses = follow(table.chains, [chain], family, notes, stateless=options.stateless)
        assembler.add(clauses, direction)
    if Direction.EGRESS not in chosen:
        notes.add("no chain was read for egress: everything may leave")
    elsewhere = [Loss(name, doubt.line, shown(doubt.text), doubt.reason, Effect.REFUSED) for doubt in table.elsewhere]
    egress_default = Action.DENY if Direction.EGRESS in chosen else Action.PERMIT
    acl = assembler.acl(egress_default=egress_default)
    losses = sorted([*assembler.losses(), *elsewhere], key=lambda loss: loss.line)
    return Imported(acl, tuple(losses), notes.taken_notes())


def _usual_chains(chains: Mapping[str, Chain], notes: Notes) -> Mapping[Direction, Chain]:
    """FORWARD into ingress, or INPUT where only that one decides about anything; OUTPUT into egress."""
    chosen = {}
    candidates = [chains[name] for name in ("FORWARD", "INPUT") if name in chains]
    deciding = [chain for chain in candidates if decides(chains, chain)]
    if candidates:
        ingress = (deciding or candidates)[0]
        chosen[Direction.INGRESS] = ingress
        for other in deciding:
            if other is not ingress:
                notes.add(f"the chain {other.name} ({len(other.lines)} lines) is left out: choose it with its name")
    if "OUTPUT" in chains:
        chosen[Direction.EGRESS] = chains["OUTPUT"]
    if not chosen:
        raise BadInput("the filter table has none of the chains FORWARD, INPUT and OUTPUT")
    return chosen


def _named_chains(chains: Mapping[str, Chain], wanted: tuple[str, ...]) -> Mapping[Direction, Chain]:
    """The chains that the caller named, as ``NAME=ingress``; the kernel's own need no direction."""
    chosen: dict[Direction, Chain] = {}
    for text in wanted:
        name, _, direction_text = text.partition("=")
        direction = _read_direction(direction_text or ("egress" if name == "OUTPUT" else "ingress"))
        if name not in chains:
            raise BadInput(f"there is no chain {shown(name)}; there are {shown(', '.join(chains))}")
        if direction in chosen:
            raise BadInput(f"both {chosen[direction].name} and {name} are chosen for {direction.value}: name one chain")
        chosen[direction] = chains[name]
    return chosen


def _read_direction(text: str) -> Direction:
    found = next((direction for direction in Direction if direction.value == text), None)
    if found is None:
        raise BadInput(f"'{shown(text)}' is not a direction: ingress or egress")
    return found
