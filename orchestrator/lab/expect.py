"""The expected result for a packet in a lab: policy and node reached."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from orchestrator.lab.spec import ClientSpec, EndpointSpec, PopSpec, TenantSpec
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Acl, Endpoint, Packet, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.oracle import decide


def policy_of(
    spec: PopSpec, acls: Mapping[TenantId, Acl], returns: ReturnTraffic = ReturnTraffic.ESTABLISHED
) -> Policy:
    """Return the policy of a fully onboarded lab.

    A tenant without a list has the empty one.
    """
    numbers = itertools.count(1)
    return Policy(
        tenants=tuple(
            _make_tenant(tenant, acls.get(tenant.id, Acl()), number, numbers)
            for number, tenant in enumerate(spec.tenants, 1)
        ),
        return_traffic=returns,
        endpoints=tuple(map(endpoint_of, spec.endpoints)),
    )


def _make_tenant(tenant: TenantSpec, acl: Acl, number: int, numbers: Iterator[int]) -> Tenant:
    return Tenant(tenant.id, number, tenant.prefixes, acl, {rule.id: next(numbers) for rule in acl.rules})


def endpoint_of(endpoint: EndpointSpec) -> Endpoint:
    """The policy's view of an endpoint."""
    return Endpoint(endpoint.name, endpoint.tenant, endpoint.port, endpoint.mac, endpoint.addresses)


def holder(spec: PopSpec, family: Family, address: int) -> ClientSpec | EndpointSpec | None:
    """The node that an address leads to: the longest prefix wins."""
    found = [
        (prefix.length, node)
        for node in spec.nodes
        for prefix in node.addresses
        if prefix.family is family and prefix.holds(address)
    ]
    return max(found, key=lambda item: item[0])[1] if found else None


def landing(spec: PopSpec, policy: Policy, packet: Packet) -> tuple[str, ...]:
    """Return the nodes (one or none) that a packet with a permitted source reaches."""
    node = holder(spec, packet.family, packet.destination)
    return (node.name,) if node is not None and decide(policy, packet).permitted else ()
