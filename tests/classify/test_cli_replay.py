"""`aclflow replay`: tables for people, JSON for programs, and the exit code of a difference."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from classify.recorded import V4, V6, ethernet, icmp, ipv4, ipv6, packed, pcap, pcap_header, tcp, web
from command_line import aclflow
from public_data import DATA

PCAP = DATA / "pcap"

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": ["80"]}
SSH = {"id": "ssh", "action": "permit", "protocol": "tcp", "destination_ports": ["22"]}
FRAMES = [web(), web(port=22), web(port=22), ethernet(0x0806, bytes(28)), web(port=25)]


@pytest.fixture
def day(tmp_path: Path) -> str:
    path = tmp_path / "day.pcap"
    path.write_bytes(pcap(FRAMES))
    return str(path)


@pytest.fixture
def listed(tmp_path: Path) -> str:
    return _list(tmp_path, "new.json", WEB)


def _list(folder: Path, name: str, *rules: object) -> str:
    path = folder / name
    path.write_text(json.dumps({"rules": rules}))
    return str(path)


def test_says_fates_rules_and_flows(day: str, listed: str) -> None:
    ended = aclflow("replay", day, "--acl", listed)
    size = len(web())
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "fate\tpackets\tbytes",
        f"permitted\t1\t{size}",
        f"denied\t3\t{3 * size}",
        "not decided: not IP\t1\t42",
        f"all\t5\t{4 * size + 42}",
        "",
        "direction\trule\taction\tpackets\tbytes",
        f"ingress\tthe default\tdeny\t3\t{3 * size}",
        f"ingress\tweb\tpermit\t1\t{size}",
        "",
        "denied\tpackets\tbytes\tby\tfirst",
        f"tcp 192.0.2.1 > 198.51.100.7:22\t2\t{2 * size}\tthe default\tpacket 2",
        f"tcp 192.0.2.1 > 198.51.100.7:25\t1\t{size}\tthe default\tpacket 5",
    ]


def test_a_bar_on_a_terminal_shows_how_far_it_is(day: str, listed: str) -> None:
    """It stands beside the answer, which a pipe gets as ever, and comes to its end."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "orchestrator.cli", "replay", day, "--acl", listed]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # how a terminal ends
            while part := os.read(ours, 4096):
                shown += part
        assert process.stdout is not None
        answer = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert answer == aclflow("replay", day, "--acl", listed).out
    assert b"replaying" in shown
    assert b"100/100" in shown


def test_says_what_would_change_and_ends_with_1(tmp_path: Path, day: str, listed: str) -> None:
    before = _list(tmp_path, "now.json", SSH, {**WEB, "action": "deny"})
    ended = aclflow("replay", day, "--acl", listed, "--against", before)
    assert ended.code == 1
    assert ended.out.splitlines()[-3:] == [
        "1 packet more is permitted, 2 packets more are denied",
        "+ tcp 192.0.2.1 > 198.51.100.7:80: 1 packet, first packet 1  (web before, web after)",
        "- tcp 192.0.2.1 > 198.51.100.7:22: 2 packets, first packet 2  (ssh before, the default after)",
    ]


def test_a_table_is_named_ordered_and_printed_as_csv(tmp_path: Path, day: str, listed: str) -> None:
    """`--most` cuts tables of the report, not the one that is asked for."""
    before = _list(tmp_path, "now.json", SSH, {**WEB, "action": "deny"})
    call = ("replay", day, "--acl", listed)
    denied = aclflow(*call, "--table", "denied", "--sort", "packets", "-c", "packets,by", "-o", "csv")
    assert denied.out.splitlines() == ["packets,by", "1,the default", "2,the default"]
    rules = aclflow(*call, "--table", "rules", "--filter", "action=permit", "-o", "json").json()
    assert [(each["rule"], each["packets"]) for each in rules] == [("web", "1")]
    changes = aclflow(*call, "--against", before, "--table", "changes", "-c", "now,before,after", "-o", "csv")
    assert changes.out.splitlines() == ["now,before,after", "permitted,web,web", "denied,ssh,the default"]
    assert aclflow(*call, "--table", "changes").out.startswith("now\tflow")
    assert "denied_flows" in yaml.safe_load(aclflow(*call, "-o", "yaml").out)
    for wrong in (("-o", "csv"), ("--sort", "packets"), ("--table", "nonsense")):
        ended = aclflow("replay", "/no/such/capture", "--acl", listed, *wrong)
        assert (ended.code, "--table: " in ended.err) == (2, True), "it is told before anything is read"


def test_ends_with_0_where_nothing_changes(tmp_path: Path, day: str, listed: str) -> None:
    renamed = _list(tmp_path, "renamed.json", {**WEB, "id": "http"})
    ended = aclflow("replay", day, "--acl", listed, "--against", renamed)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "nothing that the captures hold would be decided otherwise")


def test_json_has_all_of_it(tmp_path: Path, day: str, listed: str) -> None:
    before = _list(tmp_path, "now.json", SSH)
    ended = aclflow("replay", day, day, "--acl", listed, "--against", before, "--json", "--most", "1")
    told = ended.json()
    assert ended.code == 1
    assert told["all"]["packets"] == 10
    assert told["permitted"]["packets"] == 2
    assert told["rules"] == [
        {"direction": "ingress", "rule": "web", "action": "permit", "packets": 2, "octets": 2 * len(web())},
        {"direction": "ingress", "rule": None, "action": "deny", "packets": 6, "octets": 6 * len(web())},
    ]
    assert told["undecided"]["not_ip"] == {"packets": 2, "octets": 84}
    assert told["against"]["permitted"]["packets"] == 4
    assert told["changed"]["denied"]["packets"] == 4
    assert told["denied_flows"]["known"] == 2
    assert told["changed"]["denied_flows"]["largest"] == [
        {
            "source": "192.0.2.1", "destination": "198.51.100.7", "protocol": "tcp", "source_port": None,
            "destination_port": 22, "icmp_type": None, "icmp_code": None, "later_fragment": False,
            "packets": 4, "octets": 4 * len(web()), "first": {"capture": day, "packet": 2},
            "decided_by": {"direction": "ingress", "rule": None, "action": "deny"},
            "before": {"direction": "ingress", "rule": "ssh", "action": "permit"},
        }
    ]  # fmt: skip


def test_the_tenants_prefixes_tell_the_direction(tmp_path: Path, listed: str) -> None:
    path = tmp_path / "both.pcap"
    path.write_bytes(pcap([web(), ethernet(V4, ipv4(6, tcp(80, 40000, 0x12), "198.51.100.7", "192.0.2.1"))]))
    found = aclflow("replay", str(path), "--acl", listed, "--for", "198.51.100.0/24", "--for", "2001:db8::/32").json
    assert (
        aclflow("replay", str(path), "--acl", listed, "--way", "egress").out.splitlines()[1].startswith("permitted\t2")
    )
    told = aclflow("replay", str(path), "--acl", listed, "--for", "198.51.100.0/24", "--json").json()
    assert [(rule["direction"], rule["rule"], rule["packets"]) for rule in told["rules"]] == [
        ("egress", None, 1),
        ("ingress", "web", 1),
        ("ingress", None, 0),
    ]
    elsewhere = aclflow("replay", str(path), "--acl", listed, "--own", "203.0.113.0/24")
    assert "neither from the tenant nor to it\t2" in elsewhere.out
    assert found


def test_reads_standard_input(listed: str) -> None:
    ended = aclflow("replay", "-", "--acl", listed, stdin=packed(pcap(FRAMES)))
    assert (ended.code, ended.out.splitlines()[1]) == (0, f"permitted\t1\t{len(web())}")
    told = aclflow("replay", "-", "--acl", listed, "--json", stdin=pcap(FRAMES)).json()
    assert told["captures"] == ["standard input"]
    assert told["denied_flows"]["largest"][0]["first"]["capture"] == "standard input"
    assert "standard input can be read only once" in aclflow("replay", "-", "--acl", "-").err


def test_rules_that_were_never_met_are_named(tmp_path: Path, day: str) -> None:
    several = _list(
        tmp_path, "several.json", WEB, *({**SSH, "id": f"r{n}", "destination_ports": ["99"]} for n in range(4))
    )
    ended = aclflow("replay", day, "--acl", several, "--most", "2")
    assert "4 of 5 rules were never met: r0, r1, ..." in ended.out
    assert "2 flows were denied" not in ended.err


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (["99"], "1 of 2 rules was never met: r0"),
        (["99", "98"], "2 of 3 rules were never met: r0, r1"),
        ([], "1 of 1 rule was never met: web"),
    ],
)
def test_one_rule_and_several(tmp_path: Path, day: str, others: list[str], words: str) -> None:
    rules = [{**SSH, "id": f"r{n}", "destination_ports": [port]} for n, port in enumerate(others)]
    web = WEB if others else {**WEB, "destination_ports": ["99"]}
    assert words in aclflow("replay", day, "--acl", _list(tmp_path, "list.json", web, *rules)).out.splitlines()


def test_rules_of_the_way_that_is_not_asked_are_told(tmp_path: Path, day: str) -> None:
    away = {**SSH, "direction": "egress"}
    one, two = _list(tmp_path, "one.json", WEB, away), _list(tmp_path, "two.json", away, {**away, "id": "more"})
    ended = aclflow("replay", day, "--acl", one, "--against", two, "--json")
    remarks = [
        f"{one}: 1 egress rule is not asked without --for or --way egress",
        f"{two}: 2 egress rules are not asked without --for or --way egress",
    ]
    assert ended.err.splitlines() == remarks == ended.json()["remarks"]
    assert "1 ingress rule is not asked" in aclflow("replay", day, "--acl", one, "--way", "egress").err
    assert not aclflow("replay", day, "--acl", one, "--for", "198.51.100.0/24").err


def test_json_says_of_a_flow_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "few.pcap"
    fragment = ethernet(V4, ipv4(1, icmp(), fragment=1))
    path.write_bytes(pcap([ethernet(V4, ipv4(1, icmp(3, 4))), fragment, ethernet(V6, ipv6(58, icmp(128))), web()]))
    told = aclflow("replay", str(path), "--acl", _list(tmp_path, "nothing.json"), "--json").json()
    assert [
        [flow["protocol"], flow["icmp_type"], flow["icmp_code"], flow["destination_port"]]
        for flow in told["denied_flows"]["largest"]
    ] == [["icmp", 3, 4, None], ["icmp", None, None, None], ["icmpv6", 128, 0, None], ["tcp", None, None, 80]]


def test_says_what_it_leaves_out(day: str, listed: str) -> None:
    ended = aclflow("replay", day, "--acl", listed, "--most", "1")
    assert "2 flows were denied; the first is shown, --most 0 shows all" in ended.err


def timed(folder: Path) -> str:
    """A minute with a packet a second, of which every third is to port 22."""
    path = folder / "minute.pcap"
    frames = [web() if second % 3 else web(port=22) for second in range(60)]
    path.write_bytes(pcap_header() + b"".join(
        struct.pack("<IIII", 1_700_000_000 + second * 10, 0, len(frame), len(frame)) + frame
        for second, frame in enumerate(frames)
    ))  # fmt: skip
    return str(path)


def test_by_time(tmp_path: Path, listed: str) -> None:
    before = _list(tmp_path, "now.json", SSH, WEB)
    told = aclflow("replay", timed(tmp_path), "--acl", listed, "--against", before, "--by-time")
    assert told.out.splitlines()[-60:][:3] == [
        "2023-11-14T22:13:20Z\t0\t1\t0\t1\t0",
        "2023-11-14T22:13:30Z\t1\t0\t0\t0\t0",
        "2023-11-14T22:13:40Z\t1\t0\t0\t0\t0",
    ]
    assert "from, 10 s each\tpermitted\tdenied\tnewly permitted\tnewly denied\tundecided" in told.out
    times = aclflow("replay", timed(tmp_path), "--acl", listed, "--json").json()["times"]
    assert times["width_ns"] == 10_000_000_000
    assert sum(each["permitted"] for each in times["intervals"]) == 40
    assert sum(each["denied"] for each in times["intervals"]) == 20


def test_a_plot_of_packets_by_time(tmp_path: Path, listed: str) -> None:
    ended = aclflow("replay", timed(tmp_path), "--acl", listed, "--plot", str(tmp_path / "plots"))
    drawn = Path(ended.out.splitlines()[-1].removeprefix("drawn: "))
    text = drawn.read_text()
    assert all(word in text for word in ("permitted", "denied", "seconds after 2023-11-14T22:13:20Z"))
    nowhere = aclflow("replay", timed(tmp_path), "--acl", listed, "--plot", str(drawn / "below"))
    assert nowhere.code != 0
    assert "no folder can be made" in nowhere.err


def test_wrong_calls(tmp_path: Path, day: str, listed: str) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(pcap(FRAMES)[:-1])
    for code, words, arguments in (
        (2, "it is no capture", (listed, "--acl", listed)),
        (3, "it cannot be read", (str(tmp_path / "none"), "--acl", listed)),
        (2, "is not UTF-8 text", (day, "--acl", day, "--format", "json")),
        (2, "--for: '10.0.0.0/33'", (day, "--acl", listed, "--for", "10.0.0.0/33")),
        (2, "--way: --for tells", (day, "--acl", listed, "--for", "10.0.0.0/8", "--way", "egress")),
        (2, "name captures, or an interface", ("--acl", listed)),
        (2, "name captures, or an interface", (day, "--acl", listed, "--interface", "lo")),
        (3, "there is no interface 'nothere' here", ("--acl", listed, "--interface", "nothere")),
        (2, "cannot be an interface's name", ("--acl", listed, "--interface", "much-too-long-a-name")),
        (0, "is cut off: it ends at byte", (str(cut), "--acl", listed)),
    ):
        ended = aclflow("replay", *arguments)
        assert ended.code == code, ended.err
        assert words in ended.err


@pytest.mark.skipif(not PCAP.is_dir(), reason="the recorded captures are not here")
def test_recorded_captures_are_decided_whole(listed: str) -> None:
    """Every frame of these is IP; some segments claim more than their frames have."""
    names = [str(path) for path in sorted(PCAP.rglob("*.pcap*"))]
    told = aclflow("replay", *names, "--acl", listed, "--json").json()
    assert told["all"]["packets"] == 89_841
    assert {why: count["packets"] for why, count in told["undecided"].items() if count["packets"]} == {"broken": 5}
    assert told["permitted"]["packets"] + told["denied"]["packets"] == 89_836
