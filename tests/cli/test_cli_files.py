"""`aclflow acl` on files: what it prints, for people and for programs, and how it ends."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from command_line import aclflow

CISCO = """ip access-list extended edge
 permit tcp any 198.51.100.0 0.0.0.255 eq 80
 permit tcp any host 198.51.100.7 eq 80
 deny ip any any
"""
CISCO_DIALER = """ip access-list extended odd
 permit tcp any host 198.51.100.7 eq 80
 permit ip any any ttl eq 5
"""
IPTABLES = """*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -d 198.51.100.0/24 -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
"""


def rule(name: str, action: str, ports: str | None = None, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {"id": name, "action": action, **more}
    if ports:
        fields |= {"protocol": "tcp", "destination_ports": ports}
    return fields


def document(*rules: dict[str, object], **more: object) -> str:
    return json.dumps({"rules": rules, **more})


CLEAN = document(rule("web", "permit", "80", destination="198.51.100.0/24"))
SHADOWED = document(rule("low", "permit", "0-99"), rule("high", "permit", "100-200"), rule("in", "deny", "50-150"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    texts = {
        "clean.json": CLEAN,
        "shadowed.json": SHADOWED,
        "edge.cisco": CISCO,
        "lossy.cisco": CISCO_DIALER,
        "fw.iptables": IPTABLES,
        "wider.json": document(rule("web", "permit", "80-90", destination="198.51.100.0/24")),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


# ------------------------------------------------------------------------------------------------------------- check


def test_a_list_without_findings_ends_with_0_and_says_so_beside_the_result(files: Path) -> None:
    path = str(files / "clean.json")
    ended = aclflow("acl", "check", path)
    assert (ended.code, ended.out, ended.err) == (0, "", f"{path}: no findings\n")


def test_a_finding_ends_with_1_and_names_rule_kind_reason_and_packet(files: Path) -> None:
    path = str(files / "shadowed.json")
    ended = aclflow("acl", "check", path)
    assert ended.code == 1
    assert ended.out == (
        "rule\tkind\tseverity\tbecause\texample\n"
        "in\tshadowed\terror\t'in' never decides a packet: 'low' and 'high' before it take all"
        " (what it says does not happen: rules with the other action come first)"
        "\ttcp 192.0.2.1:49152 > 192.0.2.1:50 syn\n"
    )


def test_of_many_findings_the_first_are_shown_and_all_are_counted(files: Path) -> None:
    ports = [rule(f"p{port}", "deny", str(port), source="192.0.2.0/24") for port in range(1, 9)]
    (files / "many.json").write_text(document(*ports, rule("web", "permit", destination="198.51.100.0/24")))
    path = str(files / "many.json")
    ended = aclflow("acl", "check", path, "--only", "conflict", "--most", "3")
    assert (ended.code, len(ended.out.splitlines())) == (0, 4)
    assert f"{path}: 8 notes (8 conflict)" in ended.err
    assert "the first 3 are shown" in ended.err
    every = aclflow("acl", "check", path, "--only", "conflict", "--most", "0")
    assert (len(every.out.splitlines()), "the first" in every.err) == (9, False)
    assert len(aclflow("acl", "check", path, "--only", "conflict", "--json", "--most", "3").json()["findings"]) == 8


def test_a_group_that_says_things_twice_is_named_with_the_rules_that_use_it() -> None:
    groups = {"servers": {"prefixes": ["198.51.100.0/25", "198.51.100.128/25", "198.51.100.7/32"]}}
    listed = document(rule("web", "permit", "80", destination="@servers"), groups=groups)
    (finding,) = aclflow("acl", "check", "-", "--json", stdin=listed).json()["findings"]
    assert (finding["kind"], finding["group"], finding["rules"]) == ("group", "servers", ["web"])
    assert "198.51.100.0/24 for 198.51.100.0/25, 198.51.100.7/32 and 198.51.100.128/25" in finding["explanation"]
    assert finding["witness"]["destination"] == "198.51.100.0"


def test_findings_as_json(files: Path) -> None:
    path = str(files / "shadowed.json")
    ended = aclflow("acl", "check", path, "--json")
    (finding,) = ended.json()["findings"]
    assert (ended.code, finding["kind"], finding["rules"]) == (1, "shadowed", ["in", "low", "high"])
    assert finding["file"] == path
    assert finding["witness"] == {
        "source": "192.0.2.1",
        "destination": "192.0.2.1",
        "protocol": "tcp",
        "source_port": 49152,
        "destination_port": 50,
        "icmp_type": 0,
        "icmp_code": 0,
        "tcp_flags": 2,
        "dscp": 0,
        "later_fragment": False,
    }
    (account,) = ended.json()["files"]
    assert (account["format"], account["rules"], account["losses"]) == ("native", 3, [])


def test_how_much_of_the_world_a_wide_permit_lets_in() -> None:
    listed = document(rule("all", "permit"), rule("half", "permit", source="128.0.0.0/1", destination="198.51.100.7"))
    found = aclflow("acl", "check", "-", "--only", "wide", "--wide-prefix", "1", "--json", stdin=listed).json()
    said = {finding["rules"][0]: finding["explanation"] for finding in found["findings"]}
    assert said["all"].endswith("ports from all IPv4 addresses")
    assert said["half"].endswith("ports from 0.5 of all IPv4 addresses")


def test_several_files_and_formats_are_checked_at_once(files: Path) -> None:
    ended = aclflow("acl", "check", str(files / "clean.json"), str(files / "edge.cisco"), "--json")
    assert ended.code == 1
    found = [(finding["kind"], finding["file"]) for finding in ended.json()["findings"]]
    assert found == [("redundant", str(files / "edge.cisco"))] or ("shadowed", str(files / "edge.cisco")) in found
    assert [one["format"] for one in ended.json()["files"]] == ["native", "cisco"]


def test_every_list_of_a_router_is_checked_by_itself(files: Path) -> None:
    (files / "router.cfg").write_text(CISCO + CISCO.replace("edge", "core"))
    ended = aclflow("acl", "check", str(files / "router.cfg"), "--json")
    assert [one["file"].rpartition(", list ")[2] for one in ended.json()["files"]] == ["edge", "core"]
    named = aclflow("acl", "check", str(files / "router.cfg"), "--list", "core", "--json")
    assert len(named.json()["files"]) == 1


def test_only_some_kinds_may_be_asked_for(files: Path) -> None:
    assert aclflow("acl", "check", str(files / "shadowed.json"), "--only", "conflict").code == 0
    assert aclflow("acl", "check", str(files / "shadowed.json"), "--only", "shadowed", "--only", "wide").code == 1


def test_the_tenants_prefixes_sharpen_what_any_means() -> None:
    listed = document(rule("mine", "permit", "80", destination="198.51.100.0/24"), rule("all", "deny", "80"))
    assert aclflow("acl", "check", "-", "--only", "shadowed", stdin=listed).code == 0
    assert aclflow("acl", "check", "-", "--only", "shadowed", "--own", "198.51.100.0/24", stdin=listed).code == 1


def test_return_traffic_changes_what_is_redundant() -> None:
    listed = document({"id": "no", "action": "deny", "protocol": "tcp"})
    asked = ("acl", "check", "-", "--fail-on", "note")
    assert aclflow(*asked, stdin=listed).code == 1
    assert aclflow(*asked, "--return-traffic", "established", stdin=listed).code == 0


def test_expiry_is_judged_at_the_time_given() -> None:
    listed = document(rule("old", "permit", "80", expires="2030-01-01T00:00:00Z", source="192.0.2.0/24"))
    assert aclflow("acl", "check", "-", "--now", "2029-12-31", stdin=listed).code == 0
    ended = aclflow("acl", "check", "-", "--now", "2030-01-02", stdin=listed)
    assert (ended.code, "expired" in ended.out) == (1, True)


def test_a_list_with_losses_is_not_judged_unless_approximated(files: Path) -> None:
    path = str(files / "lossy.cisco")
    ended = aclflow("acl", "check", path)
    assert (ended.code, ended.out) == (1, "")
    assert f"aclflow: {path}:3:" in ended.err
    assert aclflow("acl", "check", path, "--approximate").code == 0


def test_a_report_counts_what_was_read_and_found(files: Path) -> None:
    ended = aclflow("acl", "check", str(files / "shadowed.json"), "--report")
    assert "native, 3 rules (3 ingress, 0 egress)" in ended.out
    assert ended.out.endswith("shadowed.json: 1 error (1 shadowed)\n")


# --------------------------------------------------------------------------------------------------- import and export


def test_import_writes_native_json_that_means_the_same(files: Path) -> None:
    ended = aclflow("acl", "import", str(files / "edge.cisco"))
    assert ended.code == 0
    assert len(ended.json()["rules"]) == 3
    again = aclflow("acl", "diff", str(files / "edge.cisco"), "-", stdin=ended.out)
    assert (again.code, again.out) == (0, "")


def test_import_refuses_what_it_cannot_carry_over_and_writes_nothing(files: Path) -> None:
    target = files / "out.json"
    ended = aclflow("acl", "import", str(files / "lossy.cisco"), "--output", str(target))
    assert (ended.code, ended.out, target.exists()) == (1, "", False)
    assert "lossy.cisco:3:" in ended.err
    assert "--approximate" in ended.err
    approximate = aclflow("acl", "import", str(files / "lossy.cisco"), "--approximate", "--output", str(target))
    assert (approximate.code, len(json.loads(target.read_text())["rules"])) == (0, 1)


def test_an_import_report_of_several_files(files: Path) -> None:
    paths = [str(files / name) for name in ("edge.cisco", "lossy.cisco", "fw.iptables")]
    ended = aclflow("acl", "import", "--report", "--json", *paths)
    assert ended.code == 1, "one of them loses something"
    accounts = ended.json()["files"]
    assert [(one["format"], one["ingress_rules"], len(one["losses"])) for one in accounts] == [
        ("cisco", 3, 0),
        ("cisco", 1, 1),
        ("iptables", 1, 0),
    ]
    assert "nothing is lost" in aclflow("acl", "import", "--report", *paths[:1]).out


def test_several_lists_do_not_become_one(files: Path) -> None:
    assert aclflow("acl", "import", str(files / "edge.cisco"), str(files / "fw.iptables")).code == 2


@pytest.mark.parametrize("target", ["cisco", "iptables", "native"])
def test_export_writes_what_can_be_read_back(files: Path, target: str) -> None:
    ended = aclflow("acl", "export", str(files / "clean.json"), "--format", target)
    assert ended.code == 0
    again = aclflow("acl", "diff", str(files / "clean.json"), "-", stdin=ended.out)
    assert again.code in (0, 1)
    assert all("IPv4" not in line for line in again.out.splitlines()), again.out


def test_export_refuses_what_the_format_cannot_say() -> None:
    listed = document(rule("brief", "permit", "80", expires="2030-01-01T00:00:00Z"))
    ended = aclflow("acl", "export", "-", "--format", "iptables", stdin=listed)
    assert (ended.code, ended.out) == (1, "")
    assert "brief" in ended.err
    assert aclflow("acl", "export", "-", "--format", "iptables", "--report", "--json", stdin=listed).json()["losses"]


# ------------------------------------------------------------------------------------------------------ diff and trace


def test_lists_that_mean_the_same_do_not_differ(files: Path) -> None:
    split = document(
        rule("a", "permit", "80", destination="198.51.100.0/25"),
        rule("b", "permit", "80", destination="198.51.100.128/25"),
    )
    ended = aclflow("acl", "diff", str(files / "clean.json"), "-", stdin=split)
    assert (ended.code, ended.out) == (0, "")


def test_a_difference_shows_packets_and_rules(files: Path) -> None:
    ended = aclflow("acl", "diff", str(files / "clean.json"), str(files / "wider.json"))
    assert ended.code == 1
    assert ended.out == ("+ ingress: tcp any IPv4 > 198.51.100.0/24, to port 81-90  (the default before, web after)\n")
    back = aclflow("acl", "diff", str(files / "wider.json"), str(files / "clean.json"), "--json")
    assert back.json()["permitted"] == []
    (change,) = back.json()["denied"]
    assert (change["before"], change["after"]) == (["web"], ["_default"])
    assert change["packets"]["destination_ports"] == ["81-90"]
    assert change["witness"]["destination_port"] == 81


def test_a_difference_shows_what_a_stateless_rule_decides_alone_where_connections_are_tracked(files: Path) -> None:
    marked = json.loads((files / "wider.json").read_text())
    marked["rules"][0]["stateless"] = True
    two = "acl", "diff", str(files / "wider.json"), "-"
    tracked = "--return-traffic", "tracked"
    ended = aclflow(*two, *tracked, stdin=json.dumps(marked))
    assert ended.code == 1
    line = "~ ingress: tcp any IPv4 > 198.51.100.0/24, to port 80-90  (web before, web after), stateless from then on\n"
    assert ended.out == line
    told = aclflow(*two, *tracked, "--json", stdin=json.dumps(marked)).json()
    assert {fate: len(changes) for fate, changes in told.items()} == {
        "permitted": 0, "denied": 0, "stateless": 1, "tracked": 0,
    }  # fmt: skip
    assert aclflow(*two, stdin=json.dumps(marked)).code == 0, "elsewhere the mark has no effect"


def test_a_stateless_rule_is_no_duplicate_of_another_where_connections_are_tracked(files: Path) -> None:
    (web,) = json.loads((files / "wider.json").read_text())["rules"]
    two = json.dumps({"rules": [web, {**web, "id": "alone", "stateless": True}]})
    assert aclflow("acl", "check", "-", "--json", stdin=two).json()["findings"][0]["kind"] == "duplicate"
    tracked = aclflow("acl", "check", "-", "--return-traffic", "tracked", "--json", stdin=two)
    assert [(each["kind"], each["severity"]) for each in tracked.json()["findings"]] == [("shadowed", "error")]


def test_trace_names_the_rule_and_ends_with_the_answer(files: Path) -> None:
    to_web = ("--source", "192.0.2.1", "--destination", "198.51.100.9", "--port")
    permitted = aclflow("acl", "trace", str(files / "clean.json"), *to_web, "80")
    assert permitted.code == 0
    assert permitted.out.endswith("clean.json: permit, by rule 'web'\n")
    denied = aclflow("acl", "trace", str(files / "clean.json"), *to_web, "81", "--json")
    assert denied.code == 1
    assert denied.json()["answers"][0]["rule"] is None
    assert denied.json()["packet"]["tcp_flags"] == 2


def test_trace_of_a_reply_depends_on_return_traffic(files: Path) -> None:
    reply = ("-s", "192.0.2.1", "-d", "198.51.100.9", "--port", "40000", "--flags", "syn,ack")
    assert aclflow("acl", "trace", str(files / "clean.json"), *reply).code == 1
    returned = aclflow("acl", "trace", str(files / "clean.json"), *reply, "--return-traffic", "established")
    assert (returned.code, "by return traffic" in returned.out) == (0, True)


def test_a_trace_report_lists_every_rule_that_matches(files: Path) -> None:
    ended = aclflow(
        "acl", "trace", str(files / "shadowed.json"), "-s", "192.0.2.1", "-d", "192.0.2.2", "--port", "60", "--report"
    )
    assert [line.strip() for line in ended.out.splitlines()[2:]] == ["permit low", "deny in"]


def test_what_would_steer_a_terminal_is_shown_escaped() -> None:
    listed = document(rule("r", "permit", "80", description="\x1b[2Jgone\u202e"), rule("s", "permit", "80"))
    ended = aclflow("acl", "trace", "-", "-s", "192.0.2.1", "-d", "192.0.2.2", "--port", "80", "--report", stdin=listed)
    assert "\x1b" not in ended.out
    assert "gone" not in ended.out or "\\x1b[2Jgone" in ended.out


def test_a_difference_with_many_holes_is_told_with_what_makes_them() -> None:
    holes = [rule(f"h{n}", "deny", str(2 * n), source=f"10.{n}.0.0/16") for n in range(1, 60)]
    before, after = (document(*holes, rule("web", action, "0-65535")) for action in ("permit", "deny"))
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old.json"
        old.write_text(before)
        ended = aclflow("acl", "diff", str(old), "-", stdin=after)
        asked = aclflow("acl", "diff", str(old), "-", "--json", stdin=after).json()
    assert any(", less what 59 rules before take  (web before, web after)" in line for line in ended.out.splitlines())
    assert any(change["less_before"] == [hole["id"] for hole in holes] for change in asked["denied"])


# -------------------------------------------------------------------------------------------------- blame and bisect

PACKET = ("-s", "192.0.2.9", "-d", "198.51.100.7", "--port", "80")


@pytest.fixture
def history(tmp_path: Path) -> list[str]:
    """Six versions of a list: the web is closed, closed, open, open, closed, and opened by another rule."""
    web, www, ssh = (rule(name, "permit", port) for name, port in (("web", "80"), ("www", "80"), ("ssh", "22")))
    names = []
    for number, rules in enumerate(((), (ssh,), (web,), (web, ssh), (ssh,), (www,))):
        names.append(str(tmp_path / f"v{number}.json"))
        Path(names[-1]).write_text(document(*rules))
    return names


def test_blame_names_the_version_that_opened_a_packet(history: list[str]) -> None:
    ended = aclflow("acl", "blame", *history[:4], *PACKET)
    assert (ended.code, ended.out.splitlines()[1:]) == (
        0,
        [
            f"before {history[1]}: denied, by the default",
            f"since {history[2]}: permitted, by rule 'web'",
            f"now {history[3]}: permitted, by rule 'web'",
        ],
    )
    found = aclflow("acl", "blame", *history, *PACKET, "--json").json()
    assert found["before"] == {"version": history[4], "action": "deny", "rule": None}
    assert found["after"] == found["now"] == {"version": history[5], "action": "permit", "rule": "www"}


def test_blame_of_what_was_always_so_is_nobodys(history: list[str]) -> None:
    ended = aclflow("acl", "blame", *history[2:4], *PACKET)
    assert (ended.code, "in all versions that are given" in ended.out) == (1, True)
    assert aclflow("acl", "blame", *history[2:4], *PACKET, "--json").json()["before"] is None


def test_blame_reads_no_further_than_it_must(history: list[str]) -> None:
    assert aclflow("acl", "blame", "/no/such/file", *history, *PACKET).code == 0
    assert aclflow("acl", "blame", "/no/such/file", *history[2:4], *PACKET).code == 3


def test_bisect_finds_a_change_and_says_how_much_it_saw(history: list[str]) -> None:
    ended = aclflow("acl", "bisect", *history, *PACKET, "--json")
    change = ended.json()["change"]
    assert (ended.code, change["before"]["version"], change["after"]["version"]) == (0, history[1], history[2])
    assert (change["looked_at"], change["of"]) == (4, 6)
    assert "4 of 6 versions were looked at" in aclflow("acl", "bisect", *history, *PACKET).err
    by_rule = aclflow("acl", "bisect", *history, *PACKET, "--decided-by", "www", "--json").json()["change"]
    assert (by_rule["before"]["version"], by_rule["after"]["version"]) == (history[4], history[5])


def test_bisect_of_two_that_agree_says_that_it_looked_at_no_more(history: list[str]) -> None:
    ended = aclflow("acl", "bisect", *history[:5], *PACKET)
    assert (ended.code, "what lies between was not looked at" in ended.out) == (1, True)
    assert aclflow("acl", "bisect", *history[:5], *PACKET, "--json").json()["change"] is None


def test_a_version_given_twice_is_a_wrong_call(history: list[str]) -> None:
    assert aclflow("acl", "bisect", history[0], history[0], *PACKET).code == 2


def test_a_file_of_100_megabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    """It has no content at all: whoever looked into it would find zeros."""
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    ended = aclflow("acl", "check", str(path))
    assert (ended.code, ended.err) == (1, f"aclflow: {path}: it is larger than 67108864 bytes\n")


def test_names_of_a_file_can_be_explained(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    rule = {"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "remote_group_id": "cache"}
    path.write_text(json.dumps([{"name": "web", "security_group_rules": [rule]}]))
    assert aclflow("acl", "import", str(path)).code == 1
    told = aclflow("acl", "import", str(path), "--address", "cache=10.9.0.0/16,10.8.0.0/16", "--address", "x=::/0")
    assert json.loads(told.out)["rules"][0]["source"] == "10.8.0.0/15"
    wrong = aclflow("acl", "import", str(path), "--address", "cache")
    assert (wrong.code, "--address: 'cache' does not say what a name stands for" in wrong.err) == (2, True)


# ------------------------------------------------------------------------------------------------- single endpoints


SHOP = {
    "rules": [
        {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.10", "destination_ports": 443},
        {"id": "db", "action": "permit", "protocol": "tcp", "source": "198.51.100.10", "destination": "198.51.100.20"},
        {"id": "flags", "action": "permit", "protocol": "tcp", "established": True},
    ]
}


def test_a_security_group_says_at_an_endpoint_what_it_cannot_say_of_all(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps({"rules": SHOP["rules"][:2]}))
    refused = aclflow("acl", "export", str(file), "-f", "aws-sg")
    assert (refused.code, refused.err.count("only the far side can be named")) == (1, 2)
    assert "with --endpoint NAME, or all" in refused.err
    ended = aclflow(
        *("acl", "export", str(file), "-f", "aws-sg", "-o", str(tmp_path / "groups")),
        *("--endpoint", "web1=198.51.100.10", "--endpoint", "db1=198.51.100.20"),
    )
    assert ended.code == 0, ended.err
    assert sorted(each.name for each in (tmp_path / "groups").iterdir()) == ["db1.aws-sg", "web1.aws-sg"]
    assert "198.51.100.10/32" in (tmp_path / "groups" / "db1.aws-sg").read_text()
    for wrong in ("web1", "=10.0.0.1", "web1=10.0.0.0/33"):
        assert aclflow("acl", "export", str(file), "-f", "aws-sg", "--endpoint", wrong).code == 2
    several = ("--endpoint", "a=198.51.100.10", "--endpoint", "b=198.51.100.20")
    assert aclflow("acl", "export", str(file), "-f", "aws-sg", *several).code == 2


def test_rules_of_an_endpoints_file_are_numbered_as_in_the_whole_list(tmp_path: Path) -> None:
    """Its shortened list has two rules; people look for them in the whole one."""
    file, groups = tmp_path / "shop.json", tmp_path / "groups"
    web, db, flags = SHOP["rules"]
    file.write_text(json.dumps({**SHOP, "rules": [web, {**db, "log": True}, flags]}))
    words = ("acl", "export", str(file), "-f", "aws-sg", "--endpoint", "db1=198.51.100.20", "-o", str(groups))
    ended = aclflow(*words, "--approximate")
    assert "aws-sg:3: permit left out" in ended.err
    told = (groups / "db1.aws-sg.losses").read_text().splitlines()
    assert told[1] == "rule 3, 'flags': permit left out (narrower): TCP flags are not looked at"
    assert "note: rule 2: there is no log of single rules" in told


def test_what_could_not_be_said_is_a_list_beside_the_file(tmp_path: Path) -> None:
    file, output = tmp_path / "shop.json", tmp_path / "shop.aws"
    first, *others = SHOP["rules"]
    file.write_text(json.dumps({**SHOP, "rules": [{**first, "log": True}, *others]}))
    assert aclflow("acl", "export", str(file), "-f", "aws-sg", "-o", str(output)).code == 1
    assert not output.exists()
    assert aclflow("acl", "export", str(file), "-f", "aws-sg", "-o", str(output), "--approximate").code == 0
    told = (tmp_path / "shop.aws.losses").read_text().splitlines()
    assert "3 places could not be said exactly" in told[0]
    assert told[3] == "rule 3, 'flags': permit left out (narrower): TCP flags are not looked at"
    assert "note: rule 1: there is no log of single rules" in told


@pytest.mark.parametrize(
    "command", [("trace", "--source", "192.0.2.1", "--destination", "198.51.100.7"), ("test", "--expect", "none")]
)
def test_connections_are_not_judged_yet(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A list that is asked packet by packet says nothing of connections, so the question is refused."""
    file = tmp_path / "list.json"
    file.write_text('{"rules": []}')
    verb, *options = command
    ended = aclflow("acl", verb, str(file), *options, "--return-traffic", "tracked")
    assert ended.code == 2
    assert "choose established or explicit" in ended.err


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_an_empty_file_is_called_empty(text: str) -> None:
    ended = aclflow("acl", "check", "-", stdin=text)
    assert (ended.code, ended.err.startswith("aclflow: standard input: it is empty: ")) == (2, True), ended
