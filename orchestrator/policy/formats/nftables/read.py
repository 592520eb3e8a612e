"""A ruleset as an access list: which chains become which direction, and everything put together.

The kernel gives a packet to every base chain of a hook, in the order of their priorities, and it passes only if all of
them accept it; a table of the family `ip` sees IPv4, `ip6` IPv6, `inet` both. Each IP version is followed by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, shown
from orchestrator.policy.formats.chains import follow
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.lists import name_and_direction
from orchestrator.policy.formats.nftables.document import RawChain, Ruleset, ruleset_of
from orchestrator.policy.formats.nftables.lines import chain_name, changes_dscp, lines_of
from orchestrator.policy.formats.nftables.values import Scope
from orchestrator.policy.formats.results import Effect, Imported, Interfaces, Loss, Notes, Options
from orchestrator.policy.formats.tables import Chain, decides, drops
from orchestrator.policy.model import Action, Direction

_SEES = {Family.IPV4: frozenset({"ip", "inet"}), Family.IPV6: frozenset({"ip6", "inet"})}
_BESIDE = frozenset({"bridge", "netdev"})
_FILTERS = frozenset({"ip", "ip6", "inet"})
MOST_LINES = 500_000
"""The rules of a file may come to so many lines, one for each element of each verdict map."""

_LINE = re.compile(r"^line ([0-9]+)")
_HOOKS = ("forward", "input", "output")
_POLICIES = {"accept": "ACCEPT", "drop": "DROP"}

Chains = Mapping[Family, Mapping[str, Chain]]
Bases = Sequence[RawChain]


def read_nftables(text: str, name: str, options: Options) -> Imported:
    """Read `nft -j list ruleset`. Raises BadInput or TooLarge with a place such as ``nftables[12].rule.expr[0]``."""
    if not text.lstrip().startswith("{"):
        raise BadInput("nftables is read as JSON, as `nft -j list ruleset` gives it, not in the words of `nft -f`")
    ruleset = ruleset_of(load_json(text))
    notes = Notes()
    for taken in options.interfaces.notes():
        notes.add(taken)
    chains = {family: _chains(ruleset, family, options.interfaces) for family in Family}
    active = [chain for chain in ruleset.chains.values() if chain.table not in ruleset.dormant]
    chosen = _named_chains(active, options.chains) if options.chains else _usual(active, chains, notes)
    assembler = Assembler(name, notes, max_rules=options.max_rules)
    for direction, bases in chosen.items():
        for family in Family:
            own = sorted((base for base in bases if base.table.family in _SEES[family]), key=lambda base: base.priority)
            if not own:
                notes.add(f"no chain for {direction.value} sees IPv{family.value}: it is denied here")
                continue
            notes.add(f"{direction.value} of IPv{family.value} is {', '.join(map(_name_chain, own))}")
            followed = [chains[family][chain_name(base.table, base.name)] for base in own]
            try:
                clauses = follow(chains[family], followed, family, notes, stateless=options.stateless)
                assembler.add(clauses, direction)
            except AclflowError as error:  # what is a line elsewhere is an object here
                error.place = _LINE.sub(lambda line: f"nftables[{int(line[1]) - 1}]", error.place or "") or None
                raise
    if Direction.EGRESS not in chosen:
        notes.add("no chain was read for egress: everything may leave")
    egress_default = Action.DENY if Direction.EGRESS in chosen else Action.PERMIT
    acl = assembler.acl(egress_default=egress_default)
    elsewhere = _elsewhere(name, active, chains)
    return Imported(acl, (*assembler.losses(), *elsewhere), notes.taken_notes())


def _chains(ruleset: Ruleset, family: Family, interfaces: Interfaces) -> Mapping[str, Chain]:
    """All chains that packets of an IP version can come to, as lines."""
    found = {}
    count = 0
    changed = any(changes_dscp(rule) for chain in ruleset.chains.values() for rule in chain.rules)
    for (table, name), chain in ruleset.chains.items():
        if table.family not in _SEES[family] | _BESIDE:
            continue
        scope = Scope(table, ruleset.sets, changed)
        lines = tuple(line for rule in chain.rules for line in lines_of(rule, chain, family, scope, interfaces))
        count += len(lines)
        if count > MOST_LINES:
            raise TooLarge(
                f"its verdict maps come to more than {MOST_LINES} lines", place=f"nftables[{chain.number - 1}]"
            )
        policy = _POLICIES[chain.policy] if chain.hook else None
        key = chain_name(table, name)
        found[key] = Chain(key, _label(name), chain.number, policy, lines)
    _check_targets(found)
    return found


def _label(name: str) -> str:
    """A chain's name as ids may begin."""
    return (
        "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:40].strip("-") or "chain"
    )


def _check_targets(chains: Mapping[str, Chain]) -> None:
    for chain in chains.values():
        for line in chain.lines:
            if "/" in line.target and line.target not in chains:
                raise BadInput(
                    f"it jumps to {shown(line.target, 80)}, which is not there", place=f"nftables[{line.number - 1}]"
                )


def _usual(active: Bases, chains: Chains, notes: Notes) -> Mapping[Direction, Bases]:
    """Return the base chains of each direction in the usual case.

    The hook forward is ingress, or input where only that one decides about anything; output is egress.
    """
    at = {
        hook: [one for one in active if one.hook == hook and _is_filter(one)] for hook in ("forward", "input", "output")
    }
    candidates = [at[hook] for hook in ("forward", "input") if at[hook]]
    deciding = [bases for bases in candidates if any(_has_decision(base, chains) for base in bases)]
    chosen: dict[Direction, Bases] = {}
    if candidates:
        chosen[Direction.INGRESS] = (deciding or candidates)[0]
        for other in deciding[1:]:
            notes.add(
                f"the hook {other[0].hook} ({', '.join(map(_name_chain, other))}) is left out: choose it with --chain"
            )
    if at["output"]:
        chosen[Direction.EGRESS] = at["output"]
    if not chosen:
        raise BadInput("no chain filters at the hooks forward, input or output")
    return chosen


def _named_chains(active: Bases, wanted: tuple[str, ...]) -> Mapping[Direction, Bases]:
    """The chains that the caller named, as ``forward=ingress`` or ``inet filter forward=ingress``."""
    chosen: dict[Direction, list[RawChain]] = {}
    for text in wanted:
        name, direction = name_and_direction(text)
        found = [
            chain for chain in active if name in (chain.name, _name_chain(chain)) and chain.table.family in _FILTERS
        ]
        if not found:
            raise BadInput(
                f"there is no chain {shown(name, 80)}; there are {shown(', '.join(map(_name_chain, active)))}"
            )
        usual = Direction.EGRESS if found[0].hook == "output" else Direction.INGRESS
        bases = chosen.setdefault(direction or usual, [])
        bases += [chain for chain in found if chain not in bases]
        if len(bases) > 1 and not all(base.hook == bases[0].hook and base.hook for base in bases):
            raise BadInput(f"{', '.join(map(_name_chain, bases))} are not chains of one hook: name one")
    return chosen


def _elsewhere(file: str, active: Bases, chains: Chains) -> Iterator[Loss]:
    """Drops at other hooks: they permit nothing, but what they deny is not carried over."""
    for base in active:
        if base.hook is None or (_is_filter(base) and base.hook in _HOOKS):
            continue
        followed = [found[key] for found in chains.values() if (key := chain_name(base.table, base.name)) in found]
        if any(one.policy == "DROP" or drops(chains[family], one) for family in Family for one in followed):
            reason = f"a drop at the hook {base.hook} is not carried over"
            yield Loss(file, base.number, shown(_name_chain(base)), reason, Effect.REFUSED)


def _is_filter(base: RawChain) -> bool:
    return base.kind != "nat" and base.table.family in _FILTERS


def _has_decision(base: RawChain, chains: Chains) -> bool:
    key = chain_name(base.table, base.name)
    return any(key in found and decides(found, found[key]) for found in chains.values())


def _name_chain(chain: RawChain) -> str:
    return f"{chain.table} {chain.name}"
