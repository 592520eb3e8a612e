"""The typed client of the REST API, for enforcers, the command line and the console.

    with Client("http://127.0.0.1:8420", token) as service:
        written = service.acls.put("blue", acl)
        service.domains.wait_until_enforced("pop1", written.generation, timeout_s=30)

A problem that the service answers with is raised as the error of `orchestrator.errors` that the service itself raised,
place included; a service that does not answer is `Unreachable`. Nothing is retried here: the caller knows whether that
is wise.
"""

from __future__ import annotations

from orchestrator.client.client import Client
from orchestrator.client.domains import Host
from orchestrator.client.hits import TenantHits
from orchestrator.client.lists import AclSeen, Finding, Review, RuleSeen, Standing, Step, Trace
from orchestrator.client.points import Held, PointReport
from orchestrator.client.records import Page, Written
from orchestrator.client.transport import ANY_VERSION

__all__ = [
    "ANY_VERSION",
    "AclSeen",
    "Client",
    "Finding",
    "Held",
    "Host",
    "Page",
    "PointReport",
    "Review",
    "RuleSeen",
    "Standing",
    "Step",
    "TenantHits",
    "Trace",
    "Written",
]
