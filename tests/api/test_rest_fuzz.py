"""Requests made from the OpenAPI document: whatever comes in, the service answers as it says there, never with 500."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks
from served import Served, served

from orchestrator.client import Host
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, TenantId

EXAMPLES = 12
"""An operation; there are about fifty."""


@dataclass(frozen=True)
class Town:
    """A service with a few things in it, whose names the document's patterns allow."""

    served: Served
    enforcer: str
    names: Mapping[str, str | int]

    def token_for(self, operation: str) -> str:
        """Only the enforcer itself may report; all else is an administrator's."""
        return self.enforcer if operation.endswith(("/report", "/epoch")) else self.served.token


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with served(tmp_path_factory.mktemp("fuzzed"), watch_limit_s=0.05) as running:
        with running.client() as admin:
            admin.domains.create("0")
            admin.tenants.create("0", domain="0", prefixes=[Prefix.parse("10.0.0.0/8")])
            groups = {"0": {"prefixes": ["192.0.2.1"]}}
            admin.acls.put("0", acl_from_json({"groups": groups, "rules": [{"id": "0", "action": "permit"}]}))
            admin.domains.add_host("0", Host("0", 1, "up0"))
            admin.domains.put_endpoint("0", Endpoint("0", TenantId("0"), "tap0", 2, (Prefix.parse("10.0.0.1"),)))
            enrolment = admin.enrolment.enrol(admin.enrolment.invite("0"), name="0", kind="openflow")
        names = dict.fromkeys(("tenant", "domain", "rule", "group", "host", "endpoint"), "0") | {"version": 1}
        yield Town(running, enrolment.token, {**names, "enforcer": enrolment.enforcer})


MAY_LOCK_OUT = ("POST /v1/enrol", "POST /v1/enrol/switch", "DELETE /v1/tokens/{token}")
"""Enrolling with a nonsense token; and revoking the token that asks."""

CHECKS = (
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
)


def test_every_operation_answers_as_documented(town: Town, subtests: pytest.Subtests) -> None:
    document = schemathesis.openapi.from_url(f"{town.served.url}/v1/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) > 45
    granted = 0
    for operation in sorted(operations, key=_destruction):
        with subtests.test(operation.label):
            answers = asked(operation.as_strategy(), operation.label, town)
            granted += any(status < 300 for status in answers)
            assert 401 not in answers or operation.label in MAY_LOCK_OUT
    assert granted > 35, "most operations must have been granted once, or nothing was tried but refusals"


def _destruction(operation: schemathesis.APIOperation) -> int:
    """What removes things goes last, and tokens after all else."""
    return (operation.method == "delete") + ("/tokens/" in operation.label)


def asked(cases: SearchStrategy[schemathesis.Case], label: str, town: Town) -> Counter[int]:
    """Ask what the strategy draws and check each answer; how often each status came."""
    answers: Counter[int] = Counter()
    token = town.token_for(label)

    @given(cases)
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=HealthCheck)
    def ask(case: schemathesis.Case) -> None:
        for name in case.path_parameters:
            if len(str(case.path_parameters[name])) < 4:
                case.path_parameters[name] = town.names.get(name, case.path_parameters[name])
        response = case.call(headers={"X-Auth-Token": token, "If-Match": "*"})
        answers[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    ask()
    return answers
