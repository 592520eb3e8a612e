"""OpenStack's lists as Neutron's interface and openstacksdk give them: security groups, and FWaaS v2 policies."""
