"""Attributes as columns: the extension reads what Python says."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references.columns import reference_distinct, reference_prefix_words, reference_range_words
from strategies import FAR_POOL, OWN_POOL, PORT_POOL, acls

from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.lists import atoms as atoms_module
from orchestrator.compile.lists.atoms import atoms, atoms_by_column
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Acl, Rule
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.policy.ports import PortRange

NAMES = [
    ("source",),
    ("destination_ports",),
    ("action",),
    ("protocol", "icmp_type", "tcp_flags"),
    ("id", "established"),
]


def chosen(found: tuple[list[Any], Any]) -> list[Any]:
    """What each object has."""
    values, which = found
    return [values[place] for place in which.tolist()]


@given(acls(max_rules=10), st.sampled_from(NAMES))
def test_distinct_values_are_those_of_python(acl: Acl, names: tuple[str, ...]) -> None:
    fast, plain = atoms_module.distinct(acl.rules, *names), reference_distinct(acl.rules, *names)
    assert chosen(fast) == chosen(plain)
    assert len(fast[0]) == len(plain[0]), "told apart by identity"
    assert len(set(fast[1].tolist())) == len(fast[0])


PREFIXES = st.one_of(
    st.sampled_from((*FAR_POOL, *OWN_POOL)),
    st.integers(0, (1 << 32) - 1).map(lambda network: Prefix(Family.IPV4, network, 32)),
    st.integers(0, (1 << 128) - 1).map(lambda network: Prefix(Family.IPV6, network, 128)),
)


@given(st.lists(PREFIXES), st.lists(st.sampled_from(PORT_POOL)))
def test_prefixes_and_ranges_are_read_whole(prefixes: list[Prefix], ranges: list[PortRange]) -> None:
    assert np.array_equal(atoms_module.prefix_words(prefixes), reference_prefix_words(prefixes))
    assert np.array_equal(atoms_module.range_words(ranges), reference_range_words(ranges))


PLAIN = {
    "distinct": reference_distinct, "prefix_words": reference_prefix_words, "range_words": reference_range_words,
}  # fmt: skip


@given(acls(max_rules=8))
def test_atoms_are_the_same_without_the_extension(acl: Acl) -> None:
    numbers = np.zeros(len(acl.rules), np.uint64)
    fast = atoms_by_column(acl.rules, acl.groups, 0, numbers)
    with pytest.MonkeyPatch.context() as patch:
        for name, plain_function in PLAIN.items():
            patch.setattr(atoms_module, name, plain_function)
        plain = atoms_by_column(acl.rules, acl.groups, 0, numbers)
    assert {name: column.tolist() for name, column in fast.columns().items()} == {
        name: column.tolist() for name, column in plain.columns().items()
    }


def test_many_rules_look_their_numbers_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = synthetic(200).rules
    numbers = RuleNumbers({rule.id: number for number, rule in enumerate(rules, 1)}).exchange_ids(
        (), {rules[7].id: 900}
    )
    table = atoms(rules, {}, numbers=numbers)
    monkeypatch.setattr(RuleNumbers, "as_dict", None)
    few = atoms(rules[:20], {}, numbers=numbers)
    assert table.number[:20].tolist() == few.number.tolist() == [1, 2, 3, 4, 5, 6, 7, 900, *range(9, 21)]


class Unslotted:
    """An object that keeps its attributes in a dictionary."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = low, high


def test_objects_of_any_type_are_read() -> None:
    mixed: list[Any] = [PortRange(1, 2), Unslotted(3, 4), PortRange(5, 6)]
    assert atoms_module.range_words(mixed).tolist() == [[1, 2], [3, 4], [5, 6]]
    values, which = atoms_module.distinct(mixed, "low")
    assert [values[place] for place in which] == [1, 3, 5]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: atoms_module.distinct([1], "nothing_such"), AttributeError),
        (lambda: atoms_module.distinct([1]), ValueError),
        (lambda: atoms_module.distinct(1, "real"), TypeError),  # type: ignore[arg-type]
        (lambda: atoms_module.range_words([Unslotted(1, "x")]), TypeError),  # type: ignore[list-item]
        (lambda: atoms_module.range_words([Unslotted(-1, 1)]), OverflowError),  # type: ignore[list-item]
        (lambda: atoms_module.prefix_words([PortRange(1, 2)]), AttributeError),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_read_is_an_error(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_nothing_is_leaked_or_lost() -> None:
    """References are given back: reading a value a thousand times leaves it as it was."""
    marker = object()
    objects = [Unslotted(marker, 1) for _ in range(50)]
    before = sys.getrefcount(marker)
    for _ in range(1000):
        atoms_module.distinct(objects, "low", "high")
    assert sys.getrefcount(marker) == before


def test_rules_without_anything() -> None:
    nothing: tuple[Rule, ...] = ()
    assert len(atoms(nothing, {})) == 0
