"""What a firewall says of its load, from the counters of two moments."""

from __future__ import annotations

from pathlib import Path

from orchestrator.enforce.load import LoadCounters, load_between, read_counters
from orchestrator.wire.firewalls import Load

DEVICES = """Inter-|   Receive          |  Transmit
 face |bytes    packets errs |bytes packets errs
    lo:     900       9    0      900       9    0
  left: 1000000    1000    0        7       7    0
 right:  500000     500    0        7       7    0
"""
PROCESSORS = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"


def texts(path: Path) -> str:
    if path.name == "nf_conntrack_count":
        raise FileNotFoundError(path)
    return DEVICES if path.name == "dev" else PROCESSORS


def test_named_interfaces_are_read_or_all_but_the_loopback() -> None:
    assert read_counters(5.0, ("left",), texts) == LoadCounters(5.0, 1000, 1_000_000, 1000, 800, 0)
    assert read_counters(5.0, (), texts) == LoadCounters(5.0, 1500, 1_500_000, 1000, 800, 0)


def test_rates_are_between_two_moments() -> None:
    before, now = LoadCounters(10.0, 1000, 64_000, 1000, 800, 3), LoadCounters(12.0, 5000, 320_000, 1400, 900, 7)
    assert load_between(before, now, None) == Load(2000, 1_024_000, 750, 7)


def test_counters_that_began_anew_count_nothing_and_no_time_is_no_fault() -> None:
    before, now = LoadCounters(10.0, 1000, 64_000, 1000, 800, 3), LoadCounters(10.0, 10, 640, 10, 8, 0)
    assert load_between(before, now, "the disk is full") == Load(0, 0, 1000, 0, "the disk is full")
