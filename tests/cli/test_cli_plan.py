"""`aclflow plan`: numbers for people and programs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.plan import whole
from orchestrator.cli.run import main
from orchestrator.errors import BadInput


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["plan", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_edge_is_planned_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "edge", "--chunk", "16384")
    assert code == 0
    assert "one line matches wrongly (paper's formula)\t4.02e-06" in out
    assert "any line matches wrongly (exactly)\t1" in out
    assert "12 VPCs, 16 gateways, 2 peerings" in out
    assert "for 1e-09: chunks of 65,536 addresses" in out


def test_the_edge_is_planned_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(
        capsys, "edge", "--vms", "1e13", "--popularity", "1:0.5", "--popularity", "25:0.9", "--shared", "--json"
    )
    assert code == 0
    found = json.loads(out)
    assert found["plan"]["filters"]["union_rate"] == 1.0
    assert found["plan"]["bypass"] > 0.99
    assert found["suggestion"]["chunk_size"] == 1 << 20


def test_figures_are_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = called(capsys, "edge", "--plot", str(tmp_path / "new"))
    assert code == 0
    assert len(list((tmp_path / "new").glob("figure-*.svg"))) == err.count(".svg") == 4


def test_what_nothing_reaches_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = called(capsys, "edge", "--vms", "1e10", "--tenants", "1e8")
    assert "nothing reaches 1e-09" in out
    assert "entries would do" in out


def test_formulas_are_held_against_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "sample", "--samples", "1e6", "--lines", "200", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["agrees"]
    assert found["misdirected"] == 0
    assert not found["compared"]["one line, the usual formula"]["agrees"]
    code, out, _ = called(capsys, "sample", "--samples", "64000", "--lines", "50")
    assert out.splitlines()[0] == "rate\tobserved\tpredicted\tt\tverdict"
    assert "64,000 draws over 32 sets of lines; 0 chunks reach a wrong server" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("edge", "--vms", "some"), "--vms: 'some' is not a whole number"),
        (("edge", "--vms", "5"), "--vms: 5 VMs are fewer"),
        (("edge", "--vms", "1e40"), "--vms: 1e+40 is not between"),
        (("edge", "--tenants", "0"), "--tenants: 0 is not between"),
        (("edge", "--blocks", "-1"), "--blocks: -1 is not between"),
        (("edge", "--pairs", "inf"), "--pairs: inf is not between"),
        (("edge", "--regions", "0"), "--regions: 0 is not between"),
        (("edge", "--chunk", "1000"), "--chunk: 1000 addresses share no prefix"),
        (("edge", "--tcam", "-1"), "--tcam: -1 is not between"),
        (("edge", "--width", "5000"), "--width: 5000 is not between"),
        (("edge", "--most-functions", "0"), "--most-functions: 0 is not between"),
        (("edge", "--permitted", "inf"), "--permitted: inf is not between"),
        (("edge", "--attack", "-1"), "--attack: -1 is not between"),
        (("edge", "--wan", "nan"), "--wan: nan is not between"),
        (("edge", "--wan", "0"), "--wan: a WAN without capacity"),
        (("edge", "--popularity", "25"), "--popularity: '25' is no point"),
        (("edge", "--popularity", "25:1.5"), "--popularity: 25 rules"),
        (("edge", "--popularity", "inf:0.5"), "--popularity: inf rules"),
        (("edge", "--heavy-share", "1"), "--heavy-share: 1 is no share"),
        (("edge", "--forwarding-share", "nan"), "--forwarding-share: nan is no share"),
        (("edge", "--target", "0"), "--target: 0 is no rate"),
        (("edge", "--tcam", "1", "--heavy-share", "0.9"), "--tcam: no line is left"),
        (("edge", "--memory", "nan"), "--memory: nan is not between"),
        (("edge", "--memory", "0"), "--memory: a server without"),
        (("edge", "--octets", "inf"), "--octets: inf is not between"),
        (("edge", "--server-gbps", "0"), "--server-gbps: a server without"),
        (("edge", "--server-cores", "inf"), "--server-cores: inf is not between"),
        (("edge", "--gateway-cores", "-1"), "--gateway-cores: -1 is not between"),
        (("edge", "--hop", "inf"), "--hop: inf is not between"),
        (("sample", "--samples", "3"), "--samples: 3 draws over 32 sets"),
        (("sample", "--samples", "1e15"), "--samples: 1000000000000000 draws take"),
        (("sample", "--width", "1000"), "--samples: lines match"),
        (("sample", "--sets", "0"), "--sets: 0 sets say nothing"),
        (("sample", "--lines", "0"), "--lines: 0 is not between"),
        (("sample", "--width", "9999"), "--width: 9999 is not between"),
        (("sample", "--per-line", "99999"), "--per-line: 99999 is not between"),
        (("sample", "--functions", "-1"), "--functions: -1 is not between"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    code, _, err = called(capsys, *arguments)
    assert code == 2
    assert complaint in err


@pytest.mark.parametrize(
    ("text", "number"), [("65536", 65536), ("1e12", 10**12), ("9007199254740993", 9007199254740993)]
)
def test_whole_numbers_are_read(text: str, number: int) -> None:
    assert whole(text, "--vms") == number


@pytest.mark.parametrize("text", ["1.5", "", "1e-3", "inf", "nan", "-"])
def test_other_numbers_are_not(text: str) -> None:
    with pytest.raises(BadInput, match="--vms"):
        whole(text, "--vms")
