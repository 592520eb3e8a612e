"""Lists brought up to date are what they would be from scratch, and say exactly what became of their rows."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence, Sized
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flow_tables import content
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import FAR_POOL, OWN_POOL, acls, prefixes, rules

from orchestrator.compile import _index
from orchestrator.compile.conjunctions import covers
from orchestrator.compile.lists import atoms as atoms_module
from orchestrator.compile.lists import exchange, labels, lists, pieces
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import ATOM_WORDS, pack_atoms
from orchestrator.compile.lists.lists import CompiledList
from orchestrator.compile.openflow import encoder as openflow
from orchestrator.errors import AclflowError, BadPolicy, TooLarge
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    GroupName,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.delta import difference
from orchestrator.program.flows import FlowTable

LARGE = settings(deadline=None, suppress_health_check=list(HealthCheck))
PLANTED = settings(
    max_examples=150, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def tenant(acl: Acl, numbers: dict[str, int] | None = None) -> Tenant:
    named = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    return Tenant(TenantId("t"), 1, (), acl, named if numbers is None else numbers)


def columns(compiled: CompiledList) -> dict[str, Any]:
    """The rows of a list as columns, without regard to how they are cut and to instructions that no row has."""
    whole = FlowTable.join_tables(compiled.rows).compact_sets()
    return {each.name: np.asarray(getattr(whole, each.name)).tolist() for each in dataclasses.fields(whole)}


def check_update(before: CompiledList, after: Tenant, returns: ReturnTraffic) -> CompiledList:
    """Bring a list up to date and hold the result against starting from scratch."""
    old = columns(before)
    updated, scratch = before.update_list(after, returns), CompiledList.of(after, returns)
    assert columns(updated) == columns(scratch)
    assert columns(before) == old, "the list that was brought up to date has changed"
    assert levels_in(updated) == levels_in(scratch)
    if updated.change is not None:
        removed, added = difference(FlowTable.join_tables(before.rows), FlowTable.join_tables(updated.rows))
        assert content(updated.change.removed) == content(removed)
        assert content(updated.change.added) == content(added)
        assert len(updated.change.removed) == len(removed)
        assert len(updated.change.added) == len(added)
    return updated


def levels_in(compiled: CompiledList) -> list[int]:
    assert all(len(piece) for piece in compiled.pieces.items)
    return [level for piece in compiled.pieces.items for level in piece.level.tolist()]


# ---------------------------------------------------------------------------------------------------- random edits


def edited(draw: st.DrawFn, acl: Acl, spare: list[Rule]) -> Acl:
    """One change of a list: a rule comes, goes, moves, changes or changes places with another, or a group changes."""
    found = list(acl.rules)
    what = draw(st.sampled_from(("insert", "insert", "remove", "move", "edit", "swap", "regroup", "regroup")))
    place = draw(st.integers(0, len(found)))
    if what == "regroup" and acl.groups:
        name = draw(st.sampled_from(sorted(acl.groups)))
        members = list(acl.groups[name].prefixes)
        gone = draw(st.integers(0, 1)) if members else 0
        for _ in range(gone):
            del members[draw(st.integers(0, len(members) - 1))]
        pool = OWN_POOL if members and members[0] in OWN_POOL else FAR_POOL
        members += draw(st.lists(prefixes(pool), max_size=2))
        return replace(acl, groups={**acl.groups, name: replace(acl.groups[name], prefixes=tuple(members))})
    if what == "insert" and spare:
        found.insert(place, spare.pop())
    elif place < len(found):
        rule = found[place]
        if what == "remove":
            spare.append(found.pop(place))
        elif what == "move":
            found.insert(draw(st.integers(0, len(found) - 1)), found.pop(place))
        elif what == "swap":
            other = draw(st.integers(0, len(found) - 1))
            found[place], found[other] = found[other], rule
        elif what == "edit":
            changed = draw(rules(rule.id, direction=rule.direction, groups=sorted(acl.groups)))
            found[place] = draw(st.sampled_from((changed, replace(rule, action=flipped(rule.action)))))
    return replace(acl, rules=tuple(found))


def flipped(action: Action) -> Action:
    return Action.DENY if action is Action.PERMIT else Action.PERMIT


@st.composite
def stories(draw: st.DrawFn) -> tuple[Tenant, ...]:
    """A list, and lists that each came from the one before by one to three changes."""
    acl = draw(acls(max_rules=14, min_rules=3))
    spare = [replace(rule, id=RuleId(f"x{rule.id}")) for rule in draw(acls(max_rules=6, with_groups=False)).rules]
    numbers = {rule.id: number for number, rule in enumerate((*acl.rules, *spare), 1)}
    found = [tenant(acl, numbers)]
    for _ in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 3))):
            acl = edited(draw, acl, spare)
        found.append(replace(found[-1], acl=acl))
    return tuple(found)


def check_story(story: Sequence[Tenant], returns: ReturnTraffic = ReturnTraffic.EXPLICIT) -> None:
    compiled = CompiledList.of(story[0], returns)
    for following in story[1:]:
        compiled = check_update(compiled, following, returns)


@settings(LARGE, max_examples=examples(150))
@given(stories(), st.sampled_from(list(ReturnTraffic)))
def test_updated_lists_are_what_scratch_gives(story: tuple[Tenant, ...], returns: ReturnTraffic) -> None:
    check_story(story, returns)


@settings(LARGE, max_examples=examples(60))
@given(stories())
def test_pieces_of_a_few_rows_and_labels_that_run_out(story: tuple[Tenant, ...]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "MOST_ROWS", 4)
        patch.setattr(pieces, "_ROWS", 3)
        patch.setattr(labels, "_STEP", 2)
        patch.setattr(labels, "_CHUNK", 2)
        patch.setattr(labels, "_WIDER", 1)
        check_story(story)


@settings(LARGE, max_examples=examples(60))
@given(stories())
def test_what_is_thrown_away_leaves_no_trace(story: tuple[Tenant, ...]) -> None:
    """Updates that fail or are not kept, in between, and several from one list."""
    base = CompiledList.of(story[0], ReturnTraffic.EXPLICIT)
    broken = replace(story[-1], rule_numbers={})
    for following in story[1:]:
        for other in story:
            check_update(base, other, ReturnTraffic.EXPLICIT)
        if broken.acl.rules:
            with pytest.raises(BadPolicy):
                base.update_list(broken, ReturnTraffic.EXPLICIT)
        base = check_update(base, following, ReturnTraffic.EXPLICIT)


@settings(LARGE, max_examples=examples(30))
@given(acls(min_rules=2, max_rules=6))
def test_other_numbers_or_settings_count(acl: Acl) -> None:
    before = CompiledList.of(tenant(acl), ReturnTraffic.ESTABLISHED)
    renumbered = tenant(acl, {rule.id: number for number, rule in enumerate(acl.rules, 50)})
    numbers = RuleNumbers(before.tenant.rule_numbers)
    with_base = CompiledList.of(replace(before.tenant, rule_numbers=numbers), ReturnTraffic.ESTABLISHED)
    one_other = replace(before.tenant, rule_numbers=numbers.exchange_ids((), {acl.rules[0].id: 99}))
    for old, after, returns in (
        (before, renumbered, ReturnTraffic.ESTABLISHED),
        (before, tenant(acl), ReturnTraffic.EXPLICIT),
        (before, replace(tenant(acl), number=2), ReturnTraffic.ESTABLISHED),
        (with_base, one_other, ReturnTraffic.ESTABLISHED),
    ):
        assert columns(old.update_list(after, returns)) == columns(CompiledList.of(after, returns))


# ---------------------------------------------------------------------------------------------------- planted bugs


def blind_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels of the rules that changed are found, those that depend on them stay."""
    real = exchange._Moves.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[exchange._Moves], label: bytes, was: bytes, level: bytes) -> exchange._Moves:
        moves = real(cls, label, was, level)
        fresh = np.frombuffer(was, np.int32) < 0
        return cls(moves.label[fresh], moves.level[fresh], moves.moved)

    monkeypatch.setattr(exchange._Moves, "of", classmethod(of))


def forgotten_removals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_row_change", lambda written: exchange.RowChange(pieces.NO_ROWS, pieces.NO_ROWS))


def misplaced_atoms(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes stands behind its neighbour."""
    real = exchange.merge_runs

    def merged(whole: pieces.Run, gone: pieces.Run, come: pieces.Run) -> pieces.Places:
        order = real(whole, gone, come)
        for place in np.flatnonzero(order[:-1] >= len(whole)).tolist():
            order[[place, place + 1]] = order[[place + 1, place]]
        return order

    monkeypatch.setattr(exchange, "merge_runs", merged)


def stale_covers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that go leave their prefixes in the cover."""
    monkeypatch.setattr(covers, "_let_go", lambda prefixes, gone, members: set())


def moves_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that changed places are taken to have stayed."""
    real = lists.Step.between

    def between(old: Tenant, new: Tenant, *rest: Any) -> Any:
        same = {rule.id: rule for rule in new.acl.rules}
        if same.keys() == {rule.id for rule in old.acl.rules}:
            new = replace(new, acl=replace(new.acl, rules=tuple(same[rule.id] for rule in old.acl.rules)))
        return real(old, new, *rest)

    monkeypatch.setattr(lists.Step, "between", between)


@pytest.mark.parametrize("bug", [blind_index, forgotten_removals, misplaced_atoms, stale_covers, moves_not_seen])
def test_the_law_notices(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    @PLANTED
    @given(stories())
    def law(story: tuple[Tenant, ...]) -> None:
        check_story(story)

    with pytest.raises((AssertionError, ValueError, IndexError)):
        law()


# ---------------------------------------------------------------------------------------------------- long lists


def many_rules(count: int, seed: int) -> list[Rule]:
    """Rules of a few shapes that overlap in long chains."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        length, far = draw.choice((16, 20, 24, 28, 32)), draw.choice((0, 8, 8, 16))
        network = (0x0A000000 | draw.getrandbits(16)) >> (32 - length) << (32 - length)
        source = draw.getrandbits(far) << (32 - far) if far else 0
        low = draw.choice((0, 0, 22, 80, 443, 1024))
        ports = (PortRange(low, draw.choice((low, 65535))),)
        found.append(
            Rule(
                RuleId(f"r{seed}-{number}"),
                Action.PERMIT,
                draw.choice(list(Direction)),
                TCP,
                Addresses((Prefix(Family.IPV4, source, far),)),
                Addresses((Prefix(Family.IPV4, network, length),)),
                EVERY_PORT,
                ports,
            )
        )
    return found


def check_script(rules: list[Rule], spare: list[Rule], seed: int) -> int:
    """Edit a list at random places, a rule or two at a time. How many updates were followed, not started anew."""
    draw = random.Random(seed)
    numbers = {rule.id: number for number, rule in enumerate((*rules, *spare), 1)}
    compiled = CompiledList.of(tenant(Acl(tuple(rules)), numbers), ReturnTraffic.ESTABLISHED)
    followed = 0
    for fresh in spare:
        place = draw.choice((0, len(rules) - 1, draw.randrange(len(rules))))
        what = draw.randrange(4)
        if what < 2:
            rules.insert(place + what, fresh)
        elif what == 2:
            rules.insert(draw.randrange(len(rules)), rules.pop(place))
        else:
            del rules[place]
        after = tenant(Acl(tuple(rules)), numbers)
        compiled = check_update(compiled, after, ReturnTraffic.ESTABLISHED)
        followed += compiled.change is not None
    return followed


def test_deep_chains_are_followed_exactly() -> None:
    assert check_script(many_rules(1500, 1), many_rules(60, 2), 7) > 50


def test_lists_in_which_everything_overlaps() -> None:
    everything = Rule(RuleId("top"), Action.PERMIT, source=Addresses((Prefix.parse("0.0.0.0/0"),)))
    chain = [replace(everything, id=RuleId(f"r{i}")) for i in range(300)]
    spare = [replace(everything, id=RuleId(f"s{i}"), action=Action.DENY) for i in range(40)]
    check_script(chain, spare, 3)


def test_an_edit_shares_the_pieces_that_it_is_not_in() -> None:
    everywhere = [rule for rule in many_rules(4000, 4) if rule.destination.prefixes[0].length > 20]
    numbers = {rule.id: number for number, rule in enumerate(everywhere, 1)}
    before = CompiledList.of(tenant(Acl(tuple(everywhere)), numbers), ReturnTraffic.EXPLICIT)
    changed = list(everywhere)
    changed[1000] = replace(changed[1000], action=Action.DENY)
    after = check_update(before, tenant(Acl(tuple(changed)), numbers), ReturnTraffic.EXPLICIT)
    old, new = {id(table) for table in before.rows}, {id(table) for table in after.rows}
    assert len(before.rows) == len(after.rows) >= 4
    assert len(new - old) == 1
    assert after.change is not None
    assert len(after.change.removed) == len(after.change.added) > 0


def test_one_member_more_costs_its_atoms() -> None:
    """Rules over a group of many: pieces end inside rules, and one member touches only the pieces that it is in."""
    far = [Prefix(Family.IPV4, 0x0A000000 + 2 * number, 32) for number in range(3000)]
    group = AddressGroup(GroupName("far"), tuple(far))
    anyone = Rule(RuleId("r0"), Action.PERMIT, protocol=TCP, source=Addresses((), ("far",)))
    of_group = [replace(anyone, id=RuleId(f"r{port}"), destination_ports=(PortRange(port, port),)) for port in (22, 80)]
    acl = Acl(tuple(of_group), {"far": group})
    before = CompiledList.of(tenant(acl), ReturnTraffic.EXPLICIT)
    looked_at: list[Sized] = []

    def noting(real: Callable[..., Sized]) -> Callable[..., Sized]:
        return lambda *a, **n: looked_at.append(real(*a, **n)) or looked_at[-1]

    with pytest.MonkeyPatch.context() as patch:
        for way in ("atoms", "atoms_one_by_one"):
            patch.setattr(lists, way, noting(getattr(lists, way)))
        for change in (
            (*far, Prefix(Family.IPV4, 0x0A000001, 32)),  # with its neighbour it makes a /31
            tuple(far[:1500] + far[1501:]),
            tuple(each for each in far if each != far[0]),
        ):
            regrouped = replace(acl, groups={"far": replace(group, prefixes=change)})
            after = before.update_list(tenant(regrouped), ReturnTraffic.EXPLICIT)
            assert after.change is not None
            assert len(after.change.removed) == 2
            assert len({id(table) for table in after.rows} - {id(table) for table in before.rows}) <= 4
    assert sum(map(len, looked_at)) == 2 * 4
    check_update(before, tenant(regrouped), ReturnTraffic.EXPLICIT)


# ---------------------------------------------------------------------------------------------------- limits


def test_refusals_name_the_rule_and_change_nothing() -> None:
    everything = Rule(RuleId("top"), Action.PERMIT, source=Addresses((Prefix.parse("0.0.0.0/0"),)))
    chain = [replace(everything, id=RuleId(f"r{i}")) for i in range(20)]
    numbers = {rule.id: number for number, rule in enumerate((*chain, everything), 1)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lists._RANGES, ReturnTraffic.EXPLICIT, lists._Range(30000, 29981))
        before = CompiledList.of(tenant(Acl(tuple(chain)), numbers), ReturnTraffic.EXPLICIT)
        with pytest.raises(TooLarge) as caught:
            before.update_list(tenant(Acl((everything, *chain)), numbers), ReturnTraffic.EXPLICIT)
        assert caught.value.place == "rules[20]"
        with pytest.raises(AclflowError) as caught_too:
            before.update_list(tenant(Acl((*chain, everything)), {}), ReturnTraffic.EXPLICIT)
        assert caught_too.value.place == "rules[0].id"
        check_update(before, tenant(Acl(tuple(chain[:-1])), numbers), ReturnTraffic.EXPLICIT)


@pytest.mark.parametrize(("module", "limit"), [(atoms_module, "MOST_ATOMS"), (openflow, "MOST_FLOWS")])
def test_a_list_that_outgrows_its_limits_is_refused(module: Any, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (module, lists):
        monkeypatch.setattr(each, limit, 5)
    some = [replace(rule, direction=Direction.INGRESS, destination_ports=EVERY_PORT) for rule in many_rules(6, 1)]
    numbers = {rule.id: number for number, rule in enumerate(some, 1)}
    before = CompiledList.of(tenant(Acl(tuple(some[:5])), numbers), ReturnTraffic.EXPLICIT)
    with pytest.raises(TooLarge) as caught:
        before.update_list(tenant(Acl(tuple(some)), numbers), ReturnTraffic.EXPLICIT)
    assert (caught.value.place or "").startswith("rules[")
    swapped = before.update_list(tenant(Acl((*some[:4], some[5])), numbers), ReturnTraffic.EXPLICIT)
    assert swapped.change is not None


@settings(LARGE, max_examples=examples(40))
@given(stories())
def test_priorities_are_told_by_position(story: tuple[Tenant, ...]) -> None:
    compiled = CompiledList.of(story[0], ReturnTraffic.EXPLICIT).update_list(story[-1], ReturnTraffic.EXPLICIT)
    acl, by_number = story[-1].acl, {}
    for row in (row for table in compiled.rows for row in table.rows()):
        by_number[row.cookie & 0xFFFFFFFFFF] = row.priority
    numbers = [story[-1].rule_numbers[rule.id] for rule in acl.rules]
    expected = [by_number.get(number) for number in numbers]
    assert compiled.priorities_of(range(len(acl.rules))) == expected


ATOM = pack_atoms(atoms(many_rules(1, 1), {}))


def index_of_one() -> Any:
    return _index.build(np.array([5], np.uint64), ATOM, np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("label", "atom", "level"),
    [(bytes(8), bytes(8 * ATOM_WORDS), bytes(4)), (bytes(8), ATOM, b""), (b"", ATOM, bytes(4))],
)
def test_the_extension_refuses_columns_that_do_not_fit(label: bytes, atom: Any, level: bytes) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        _index.build(label, atom, level)


def test_the_extension_refuses_changes_that_do_not_fit() -> None:
    index, touched = index_of_one(), np.zeros(2, np.uint64)
    five, six = np.array([5], np.uint64), np.array([6], np.uint64)
    with pytest.raises(ValueError, match="not in the index"):
        index.followed(b"", (), (), six, ATOM, b"", b"", touched, 9)
    with pytest.raises(ValueError, match="do not fit"):
        index.followed(b"", (), (), six, b"", b"", b"", touched, 9)
    with pytest.raises(ValueError, match="do not fit"):
        index.followed(five, (), (), b"", b"", b"", b"", touched, 9)
    touched[0] = 5
    with pytest.raises(TypeError):
        index.followed(five, (None,), (ATOM,), b"", b"", five, ATOM, touched, 9)
    gone = np.array([5, 0], np.uint64)
    after, (label, was, level) = index.followed(b"", (), (), five, ATOM, b"", b"", gone, 9)
    assert (label, was, level) == (five.tobytes(), bytes(4), b"\xff" * 4)
    with pytest.raises(ValueError, match="not in the index"):
        after.followed(b"", (), (), five, ATOM, b"", b"", gone, 9)
    assert index.followed(b"", (), (), five, ATOM, b"", b"", gone, 9) is not None, "the first index is as it was"


@pytest.mark.parametrize(
    ("gone", "come", "room"),
    [((6,), (), 0), ((6,), (), 1), ((), (), 0), ((), (), 2), ((), (6,), 1), ((5, 5), (), 0), ((5,), (6,), 2)],
)
def test_the_extension_refuses_an_exchange_that_is_not_one(gone: tuple[int], come: tuple[int], room: int) -> None:
    """What goes is not there, or what is left does not fill the column: nothing is written behind it."""
    runs = [(np.array(labels, np.uint64), np.repeat(ATOM, len(labels), axis=0)) for labels in ((5,), gone, come)]
    column = np.full(room + 2, 77, np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        _index.merged(*runs[0], *runs[1], *runs[2], column[:room])
    assert column[room:].tolist() == [77, 77]
