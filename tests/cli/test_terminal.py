"""What commands say, for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from orchestrator.cli.terminal import AsTheyCome, say_json


@pytest.mark.parametrize("items", [[], [1], [{"a": []}, "ü", None], [[[]], {}]])
def test_a_list_whose_items_come_one_by_one_is_a_list(items: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"first": AsTheyCome(iter(items)), "then": [AsTheyCome(iter(items)), 2]})
    told = {"first": items, "then": [items, 2]}
    assert capsys.readouterr().out == json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def test_items_are_said_before_the_last_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def items() -> Iterator[int]:
        for number in range(50_000):
            said.append(capsys.readouterr().out)
            yield number

    say_json(AsTheyCome(items()))
    assert sum(map(bool, said)) >= 4
    assert json.loads("".join(said) + capsys.readouterr().out) == [*range(50_000)]
