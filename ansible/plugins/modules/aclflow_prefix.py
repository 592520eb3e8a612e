#!/usr/bin/python
"""What tenants own, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_prefix
short_description: Prefixes of aclflow's tenants
description:
  - Gives prefixes to a tenant and takes them away. Nobody else can own an address of a tenant.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service]
options:
  tenant:
    description: The tenant.
    type: str
    required: true
  domain:
    description: Where the tenant is made if it is not there. Left out, a tenant that is not there is a failure.
    type: str
  prefixes:
    description: IPv4 or IPv6 prefixes.
    type: list
    elements: str
    required: true
  exclusive:
    description: Whether the tenant is to own nothing else.
    type: bool
    default: false
  state:
    description: Whether the tenant is to own them.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: A tenant and all that it owns
  aclflow.cloud.aclflow_prefix:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    tenant: shop
    domain: pop1
    prefixes: [198.51.100.0/24, "2001:db8:100::/48"]
    exclusive: true
"""

RETURN = r"""
prefixes:
  description: What the tenant owns afterwards, sorted.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aclflow.cloud.plugins.module_utils.api import (
    ARGUMENTS,
    Problem,
    canonical_prefix,
    finish,
    path,
    run,
)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            tenant={"type": "str", "required": True},
            domain={"type": "str"},
            prefixes={"type": "list", "elements": "str", "required": True},
            exclusive={"type": "bool", "default": False},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        ),
        supports_check_mode=True,
    )
    run(module, lambda api: ensure(module, api))


def ensure(module, api):
    """Have the tenant own what is asked for."""
    tenant, domain = module.params["tenant"], module.params["domain"]
    where = path("tenants", tenant)
    there, _tag = api.find(where)
    if there is None and domain is None:
        raise Problem(404, f"there is no tenant '{tenant}': name the domain that it is to be made in")
    if there is not None and domain is not None and there["domain"] != domain:
        raise Problem(409, f"the tenant '{tenant}' is in the domain '{there['domain']}', not in '{domain}'")
    before, tag = ([], None) if there is None else owned(module, api, where)
    named = [canonical_prefix(module, text) for text in module.params["prefixes"]]
    if module.params["state"] == "absent":
        after = [prefix for prefix in before if prefix not in named]
    else:
        after = named if module.params["exclusive"] else before + [prefix for prefix in named if prefix not in before]
    before, after = ({"tenant": tenant, "prefixes": sorted(each)} for each in (before, after))

    def change():
        if there is None:
            body = {"id": tenant, "name": "", "domain": domain, "prefixes": after["prefixes"]}
            api.write("POST", "/v1/tenants", body)
        else:
            api.write("PUT", f"{where}/prefixes", {"prefixes": after["prefixes"]}, tag)

    finish(module, {} if there is None else before, after, change, prefixes=after["prefixes"])


def owned(module, api, where):
    """What a tenant owns, and the ETag of that."""
    document, tag = api.ask("GET", f"{where}/prefixes")
    return [canonical_prefix(module, text) for text in document["prefixes"]], tag


if __name__ == "__main__":
    main()
