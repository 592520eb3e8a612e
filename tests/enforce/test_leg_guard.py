"""The table that keeps legs to what they are for: written, looked at, taken away."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.enforce.guardtable import leg_guard
from orchestrator.errors import Refused

LEGS = Legs(("left",), ("right",))


class Machine:
    """`nft` for one table: what was written last is what is listed."""

    def __init__(self) -> None:
        self.table = ""
        self.writes = 0

    def run(self, command: Sequence[str], text: str) -> str:
        if command[1] == "-f":
            self.table = "\n".join(text.splitlines()[2:])
            self.writes += 1
            return ""
        if not self.table:
            raise Refused("nft: Error: No such file or directory")
        return self.table


def test_the_text_names_both_legs_and_what_is_beside() -> None:
    text = leg_guard(LEGS, ("rehome",)).script
    assert 'iifname { "left", "right" } drop' in text
    assert 'iifname { "left", "right" } oifname != { "left", "right", "rehome" } drop' in text
    assert 'oifname { "left", "right" } iifname != { "left", "right", "rehome" } drop' in text


def test_what_somebody_changed_is_written_anew() -> None:
    machine = Machine()
    guard = leg_guard(LEGS, run=machine.run)
    guard.close()
    written = machine.table
    assert not guard.look()
    for changed in ("", written.replace("drop", "accept")):
        machine.table = changed
        assert guard.look()
        assert machine.table == written
    assert machine.writes == 3


def test_without_legs_an_older_table_goes_and_nothing_is_written() -> None:
    machine = Machine()
    leg_guard(LEGS, run=machine.run).close()
    leg_guard(NO_LEGS, run=machine.run).close()
    assert machine.table == ""
    guard = leg_guard(NO_LEGS, run=machine.run)
    guard.close()
    assert machine.writes == 2
    assert not guard.look()


def test_a_machine_that_cannot_have_it_says_so() -> None:
    def broken(command: Sequence[str], text: str) -> str:
        raise Refused("nft: Error: Operation not permitted")

    with pytest.raises(Refused):
        leg_guard(LEGS, run=broken).close()
