#!/usr/bin/python
"""Endpoints of security domains, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_endpoint
short_description: Endpoints of aclflow's tenants
description:
  - Tells the service of a tenant's network port, which is an interface on its host's switch with the addresses that it
    may use, and has the service forget it again.
  - No host is named. An endpoint moves with its interface, and is filtered on the host where that appears.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service]
options:
  domain:
    description: The domain.
    type: str
    required: true
  name:
    description: The endpoint.
    type: str
    required: true
  tenant:
    description: Whose list decides. Needed with O(state=present).
    type: str
  port:
    description: The interface on the bridge of its host. Needed with O(state=present).
    type: str
  mac:
    description: Its MAC address. Needed with O(state=present).
    type: str
  prefixes:
    description: The addresses and prefixes that it may use, all of its tenant's. Needed with O(state=present).
    type: list
    elements: str
  shared:
    description:
      - Whether other endpoints of the tenant may live behind the same interface, as behind the leg of a VNF-ACL. Each
        of them must say so, and has single addresses.
    type: bool
    default: false
  wait_s:
    description:
      - How long to wait until every host of the domain enforces its newest generation, in seconds; 0 does not wait.
    type: int
    default: 0
  state:
    description: Whether it is to be known.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Two machines behind the leg of a VNF-ACL
  aclflow.cloud.aclflow_endpoint:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    domain: pop1
    name: "{{ item.name }}"
    tenant: shop
    port: tenants
    mac: "{{ item.mac }}"
    prefixes: ["{{ item.address }}"]
    shared: true
  loop:
    - {name: web1, mac: "02:00:00:00:00:11", address: 198.51.100.11/32}
    - {name: web2, mac: "02:00:00:00:00:12", address: 198.51.100.12/32}
"""

RETURN = r"""
generation:
  description: The generation that was waited for.
  type: int
  returned: with O(wait_s)
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aclflow.cloud.plugins.module_utils.api import ARGUMENTS, canonical_prefix, finish, path, run

KEYS = ("tenant", "port", "mac", "prefixes", "shared")


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            domain={"type": "str", "required": True},
            name={"type": "str", "required": True},
            tenant={"type": "str"},
            port={"type": "str"},
            mac={"type": "str"},
            prefixes={"type": "list", "elements": "str"},
            shared={"type": "bool", "default": False},
            wait_s={"type": "int", "default": 0},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        ),
        required_if=[("state", "present", ("tenant", "port", "mac", "prefixes"))],
        supports_check_mode=True,
    )
    run(module, lambda api: ensure(module, api))


def ensure(module, api):
    """Have the endpoint known as it is asked for, or forgotten; then wait, where that is asked for."""
    domain, wait_s = module.params["domain"], module.params["wait_s"]
    where = path("domains", domain, "endpoints", module.params["name"])
    there, tag = api.find(where)
    before = described(module, there) if there else None
    after = described(module, module.params) if module.params["state"] == "present" else None

    def change():
        if after is None:
            api.write("DELETE", where, etag=tag)
        else:
            api.write("PUT", where, after, tag)

    if module.check_mode or not wait_s:
        finish(module, before, after, change)
    if before != after:
        change()
    generation = api.ask("GET", path("domains", domain))[0]["generation"]
    api.wait_enforced(domain, generation, wait_s)
    finish(module, before, after, lambda: None, generation=generation)


def described(module, said):
    """An endpoint in one spelling: MAC address in small letters, prefixes sorted."""
    return dict(
        {key: said[key] for key in KEYS},
        mac=said["mac"].lower(),
        prefixes=sorted(canonical_prefix(module, text) for text in said["prefixes"]),
    )


if __name__ == "__main__":
    main()
