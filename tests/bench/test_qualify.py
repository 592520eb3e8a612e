"""Whom a qualification measures, what it is held against, and what is said where one of the two is wrong."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import aclflow

from orchestrator.bench.qualify import inventory, pairgauges
from orchestrator.bench.qualify.inventory import Host
from orchestrator.bench.qualify.pairgauges import Measure
from orchestrator.bench.qualify.suite import missed_figures, write_page
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.errors import BadInput, Missing

WRITTEN = """
all:
  vars: {ansible_user: operator, ansible_ssh_common_args: -o "StrictHostKeyChecking=yes"}
  children:
    bench:
      vars: {aclflow_bench_port: 5301, ansible_user: bench}
      children:
        bench_clients:
          hosts:
            alice: {ansible_host: 192.0.2.10, ansible_port: 2222, ansible_ssh_private_key_file: /keys/alice}
        bench_servers:
          vars: {aclflow_bench_refused_port: 8081, aclflow_bench_port: 5302}
    hosts:
      hosts: {host1: {ansible_host: 192.0.2.99}}
    bench_servers:
      hosts:
        web1: {ansible_host: 192.0.2.11, aclflow_bench_address: 198.51.100.10}
        db1: {ansible_host: 192.0.2.12, aclflow_bench_address: 198.51.100.20, aclflow_bench_port: 5303}
"""
OPTIONS = ("-o", "StrictHostKeyChecking=yes")
ALICE = Host("alice", "192.0.2.10", 2222, "bench", "/keys/alice", OPTIONS, "192.0.2.10", 5301)
WEB1 = Host("web1", "192.0.2.11", 22, "bench", None, OPTIONS, "198.51.100.10", 5302, 8080, 8081)
DB1 = Host("db1", "192.0.2.12", 22, "bench", None, OPTIONS, "198.51.100.20", 5303, 8080, 8081)


def test_machines_and_their_variables_are_what_ansible_takes_them_for() -> None:
    found = inventory.parse(yaml.safe_load(WRITTEN))
    assert found.clients == (ALICE,)
    assert found.servers == (DB1, WEB1)
    assert {host.name for host in found.hosts} == {"alice", "db1", "web1"}


def test_what_ansible_lists_is_read_too() -> None:
    own: dict[str, Any] = {"ansible_host": "192.0.2.11", "ansible_user": "bench"}
    listed = {
        "_meta": {"hostvars": {"web1": own, "alice": {"ansible_host": "192.0.2.10"}}},
        "all": {"children": ["ungrouped", "bench_clients", "outer"]},
        "bench_clients": {"hosts": ["alice"]},
        "outer": {"children": ["bench_servers"]},
        "bench_servers": {"hosts": ["web1"]},
    }
    found = inventory.parse(json.loads(json.dumps(listed)))
    assert [host.user for host in found.hosts] == ["root", "bench"]
    assert found.servers[0].traffic == "192.0.2.11"


@pytest.mark.parametrize(
    ("change", "place", "reason"),
    [
        (("bench_clients:", "clients:"), "bench_clients", "no machine"),
        (("192.0.2.11,", "web1.example,"), None, None),
        (("198.51.100.10", "web1.example"), "web1.aclflow_bench_address", "no IPv4 address"),
        (("198.51.100.10", '"2001:db8::1"'), "web1.aclflow_bench_address", "no IPv4 address"),
        (("5303", "70000"), "db1.aclflow_bench_port", "1 to 65535"),
        (("8081", "none"), "db1.aclflow_bench_refused_port", "1 to 65535"),
        (("192.0.2.10,", '"{{ outside }}",'), "alice.ansible_host", "template"),
        (("hosts: {host1", "host: {host1"), "all.children.hosts.host", "hosts, children and vars"),
        (("hosts: {host1: {ansible_host: 192.0.2.99}}", "hosts: [host1]"), "all.children.hosts.hosts", "no mapping"),
        (("    hosts:\n      hosts: {host1: {ansible_host: 192.0.2.99}}", "    bench_servers: {children: {bench: }}"),
         None, None),
    ],
)  # fmt: skip
def test_an_inventory_that_cannot_be_meant_is_refused_with_the_place(
    change: tuple[str, str], place: str | None, reason: str | None
) -> None:
    assert change[0] in WRITTEN
    document = yaml.safe_load(WRITTEN.replace(*change))
    if place is None:
        inventory.parse(document)
        return
    with pytest.raises(BadInput, match=reason) as refused:
        inventory.parse(document)
    assert refused.value.place == place


def test_a_group_within_itself_ends() -> None:
    document = {"a": {"children": {"b": {"children": {"a": None}}}}, "bench_clients": {"children": {"a": None}}}
    with pytest.raises(BadInput, match="in itself"):
        inventory.parse(document)


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[bench_clients]\nalice ansible_host=192.0.2.10\n[bench_servers\n")
    with pytest.raises(BadInput, match="ansible-inventory -i FILE --list") as refused:
        inventory.read(path)
    assert refused.value.place == str(path)
    with pytest.raises(Missing):
        inventory.read(tmp_path / "nowhere")


def test_limits_are_bounds_of_figures() -> None:
    found = pairgauges.parse_limits({"tcp_mbit_s": {"at_least": 900}, "connect_ms": {"at_most": 1.5}})
    assert found == {Measure.TCP: Target(900.0, at_most=False), Measure.CONNECT: Target(1.5)}


@pytest.mark.parametrize(
    ("said", "place", "reason"),
    [
        ({"tcp_mbits": {"at_least": 1}}, "tcp_mbits", "they are tcp_mbit_s, packets_per_s"),
        ({"tcp_mbit_s": 900}, "tcp_mbit_s", "at_least"),
        ({"tcp_mbit_s": {"at_least": 1, "at_most": 2}}, "tcp_mbit_s", "either"),
        ({"tcp_mbit_s": {"least": 1}}, "tcp_mbit_s", "either"),
        ({"tcp_mbit_s": {"at_least": "much"}}, "tcp_mbit_s.at_least", "no number"),
        ({"tcp_mbit_s": {"at_least": True}}, "tcp_mbit_s.at_least", "no number"),
        ({"tcp_mbit_s": {"at_least": float("nan")}}, "tcp_mbit_s.at_least", "no number"),
        (["tcp_mbit_s"], None, "at_least"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused_with_the_place(said: object, place: str | None, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refused:
        pairgauges.parse_limits(said)
    assert refused.value.place == place


def _results() -> Results:
    results = Results("qualify", {"rounds": 1, "web1": "(2 cores, <b>, kernel 6.1)"})
    results.figures["tcp_mbit_s alice web1"] = Figure.of([950.0], "Mbit/s", Target(900.0, at_most=False))
    results.figures["connect_ms alice web1"] = Figure.of([3.0], "ms", Target(2.0))
    results.figures["requests_per_s alice web1"] = Figure.of([10.0], "1/s")
    return results


def test_what_misses_its_limit_or_could_not_be_measured_does_not_pass() -> None:
    results = _results()
    results.absent["refused_answered alice web1"] = "no port"
    assert missed_figures(results) == ["connect_ms alice web1", "refused_answered alice web1"]


def test_the_report_to_hand_over_needs_nothing_beside_it(tmp_path: Path) -> None:
    plot = tmp_path / "connect.svg"
    plot.write_text('<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "x" "http://example.org">\n<svg id="drawn"></svg>\n')
    page = tmp_path / "report.html"
    results = _results()
    results.figures["packets_per_s alice web1"] = Figure.of([128_341.0], "1/s", Target(50_000.0, at_most=False))
    results.notes.append("`connect_ms`: under that load")
    write_page(results, [plot], page, dt.datetime(2030, 1, 2, tzinfo=dt.UTC))
    text = page.read_text()
    assert "Not passed: connect_ms alice web1." in text
    assert '<svg id="drawn">' in text
    assert "2030-01-02" in text
    assert "128,300</td>" in text
    assert "at least 50,000" in text
    assert "<code>connect_ms</code>: under" in text
    assert "&lt;b&gt;" in text
    assert all(word not in text for word in ("src=", "href=", "<b>", "<?xml"))


CALLS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no inventory": ((), 2, "--inventory: which machines?"),
    "an inventory where none is wanted": (("control-plane", "--inventory", "x"), 2, "--inventory: the suite control-"),
    "limits where none are wanted": (("promotion", "--limits", "x"), 2, "--limits: the suite promotion"),
    "a file that is not there": (("--inventory", "/nowhere"), 3, "/nowhere: the inventory cannot be read"),
}


@pytest.mark.parametrize("call", CALLS)
def test_wrong_calls_are_told_what_to_change(call: str) -> None:
    words, code, said = CALLS[call]
    ended = aclflow("bench", *words)
    assert (ended.code, said in ended.err) == (code, True), ended.err


def test_limits_are_read_before_anybody_is_called(tmp_path: Path) -> None:
    path, bounds = tmp_path / "hosts.yml", tmp_path / "pairgauges.yml"
    path.write_text(WRITTEN)
    bounds.write_text("speed: {at_least: 3}\n")
    ended = aclflow("bench", "--inventory", str(path), "--limits", str(bounds))
    assert ended.code == 2
    assert f"{bounds}: speed: is no figure; they are tcp_mbit_s" in ended.err
