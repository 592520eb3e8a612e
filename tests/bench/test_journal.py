"""A long suite that was cut off goes on where it was, and never with another run's measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from orchestrator.bench import suites
from orchestrator.bench.traffic.journal import Journal
from orchestrator.bench.traffic.measured import Metric
from orchestrator.errors import BadInput

ASKED = {"suite": "acl-size", "counts": [250, 2000]}


class Measured:
    """Counts how often something is measured."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[Metric, float]:
        self.times += 1
        return {Metric.PACKETS: 10.0 * self.times, Metric.RTT: 0.1}


def test_what_was_written_down_is_not_measured_again(tmp_path: Path) -> None:
    path, measure = tmp_path / "journal", Measured()
    first = Journal(path, ASKED)
    assert first.sample("a", measure) == first.sample("a", measure) == {Metric.PACKETS: 10.0, Metric.RTT: 0.1}
    first.sample("b", measure)
    again = Journal(path, ASKED)
    assert again.sample("a", measure)[Metric.PACKETS] == 10
    assert again.sample("b", measure)[Metric.PACKETS] == 20
    assert again.sample("c", measure)[Metric.PACKETS] == 30
    assert measure.times == 3
    assert len(path.read_text().splitlines()) == 4


@pytest.mark.parametrize("left", range(1, 30, 7))
def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path, left: int) -> None:
    path, measure = tmp_path / "journal", Measured()
    journal = Journal(path, ASKED)
    for name in "ab":
        journal.sample(name, measure)
    whole = path.read_text()
    last = whole.splitlines(keepends=True)[-1]
    path.write_text(whole[: len(whole) - len(last) + left])
    again = Journal(path, ASKED)
    assert (again.sample("a", measure)[Metric.PACKETS], again.sample("b", measure)[Metric.PACKETS]) == (10, 30)
    assert Journal(path, ASKED).sample("b", measure)[Metric.PACKETS] == 30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps({**ASKED, "counts": [250]}) + "\n", "of another run"),
        ("something else\n", "no journal"),
        ("without an end", "no journal"),
        (json.dumps(ASKED) + '\n["a", {"SPEED": 1}]\n', "no journal"),
        (json.dumps(ASKED) + "\n[1]\n", "no journal"),
    ],
)
def test_another_file_is_refused_and_left_as_it_is(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "journal"
    path.write_text(text)
    with pytest.raises(BadInput, match=words) as caught:
        Journal(path, ASKED)
    assert caught.value.place == "--journal"
    assert path.read_text() == text


def test_without_a_file_everything_is_measured() -> None:
    measure = Measured()
    for _ in range(2):
        Journal(None, ASKED).sample("a", measure)
    assert measure.times == 2


def test_a_suite_that_keeps_none_says_who_does(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="acl-size, cloud, promotion, scale, state-sync do"):
        suites.run("edge", quick=True, journal=tmp_path / "journal")


@pytest.mark.parametrize("name", sorted(suites.JOURNALLED))
def test_a_suite_that_keeps_one_says_first_how_long_it_takes(name: str, tmp_path: Path) -> None:
    full, short = (str(suites.warning(name, quick=quick, journal=None)) for quick in (False, True))
    assert re.match(rf"{name}: \d{{2,4}} measurements, which take about (\d\.\d hours|\d\d minutes)", full)
    assert "--journal FILE" in full
    assert re.match(rf"{name}: \d{{2,4}} measurements, which take about \d{{1,2}} minutes", short)
    assert "--journal" not in short
    path = tmp_path / "journal"
    assert f"less what is in {path}" in str(suites.warning(name, quick=False, journal=path))


def test_a_suite_that_keeps_none_says_nothing_before() -> None:
    assert suites.warning("edge", quick=False, journal=None) is None
