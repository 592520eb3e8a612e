"""Documents with very many faults: each of them once cost a thousand bytes and ten microseconds of everybody's time."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from served import Served

from api import limits, problems
from api.context import read_body
from api.schemas.acl import MembersChange
from api.schemas.enforcers import ReportBody
from orchestrator.client import Client
from orchestrator.errors import BadInput

MANY = 5_000
UNKNOWN = b"{" + b",".join(b'"%x":0' % number for number in range(MANY)) + b"}"


@pytest.fixture(autouse=True)
def _nothing_is_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told = problems.bad_input

    def few(faults: list[object]) -> BadInput:
        assert len(faults) <= problems.MOST_FAULTS
        return told(faults)  # type: ignore[arg-type]

    monkeypatch.setattr(problems, "bad_input", few)


@pytest.mark.parametrize(
    ("model", "raw", "says"),
    [
        (ReportBody, UNKNOWN, str(MANY)),
        (ReportBody, b'{"points":[' + b"0," * MANY + b"0]}", "points[0]"),
        (ReportBody, b'{"points":[' + b"{}," * MANY + b"{}]}", "points[0].host"),
        (MembersChange, b'{"add":[' + b"0," * MANY + b"0]}", ""),
    ],
)
def test_faults_of_a_body_are_counted(model: type[BaseModel], raw: bytes, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_body(model, raw)
    assert says in str(refused.value)


def test_what_fastapi_reads_is_refused_before_it_tells_of_faults(service: Served, admin: Client) -> None:
    for path, token in (("/v1/enrol", ""), ("/v1/tenants", service.token)):
        with service.http(token) as http:
            answer = http.post(path, content=UNKNOWN, headers={"Content-Type": "application/json"})
            assert answer.status_code == 400
            assert int(answer.json()["detail"].split()[0]) >= MANY


def test_enrolments_and_reports_have_limits_of_their_own(service: Served, admin: Client) -> None:
    admin.domains.create("faulty")
    token = admin.enrolment.invite("faulty", name="fw", kind="nftables")
    with service.client("") as anybody:
        new = anybody.enrolment.enrol(token, name="fw", kind="nftables")
    most = limits.SMALL_REPORT_BYTES + limits.OF_A_HOST_BYTES
    with service.http(new.token) as http:
        for path, limit in (
            ("/v1/enrol", limits.StrangersBody.limit_bytes),
            (f"/v1/domains/faulty/enforcers/{new.enforcer}/report", most),
        ):
            assert http.post(path, content=b"{}".ljust(limit + 1)).status_code == 413, path
            assert http.post(path, content=b"{}".ljust(limit)).status_code != 413, path


@pytest.mark.parametrize("path", ["/v1/enrol", "/v1/enrol/switch"])
def test_what_strangers_send_is_small(service: Served, path: str) -> None:
    with service.http("") as http:
        for body in (bytes(1 << 16), iter([bytes(1 << 16)])):
            assert http.post(path, content=body).status_code == 400
        for body in (bytes((1 << 16) + 1), iter([bytes(1 << 16), b" "])):
            assert http.post(path, content=body).status_code == 413
