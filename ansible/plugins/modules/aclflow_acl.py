#!/usr/bin/python
"""Access lists of tenants, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_acl
short_description: Access lists of aclflow's tenants
description:
  - Makes rules a tenant's access list, the first that matches decides. What is not permitted does not arrive.
  - The list is checked before it is written; what cannot be enforced is refused with the place of the rule.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service, aclflow.cloud.approval]
options:
  tenant:
    description: The tenant.
    type: str
    required: true
  rules:
    description:
      - The rules in order, each as in the native JSON of lists. With O(state=absent) left out; the list is emptied.
    type: list
    elements: dict
    default: []
  groups:
    description: Address groups that rules point to, by name, as in the native JSON of lists.
    type: dict
    default: {}
  ingress_default:
    description: What becomes of packets to the tenant that no rule speaks of.
    type: str
    choices: [deny, permit]
    default: deny
  egress_default:
    description: What becomes of packets from the tenant that no rule speaks of.
    type: str
    choices: [deny, permit]
    default: permit
  wait_s:
    description: How long to wait until every host was read back to hold the list, in seconds; 0 does not wait.
    type: int
    default: 0
  state:
    description: V(absent) empties the list; then nothing comes in, and everything may go out.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: A shop that is reached on port 443, and by its office on port 22
  aclflow.cloud.aclflow_acl:
    url: https://192.0.2.1:8420
    token: "{{ shop_token }}"
    tenant: shop
    groups:
      office: {prefixes: [203.0.113.0/28], description: head office}
    rules:
      - {id: web, action: permit, protocol: tcp, destination_ports: "443"}
      - {id: ssh, action: permit, protocol: tcp, source: "@office", destination_ports: "22"}
    wait_s: 30

- name: Empty a list that another person must approve changes of, and wait an hour for the approval
  aclflow.cloud.aclflow_acl:
    url: https://192.0.2.1:8420
    token: "{{ shop_token }}"
    tenant: shop
    state: absent
    approval: wait
    approval_s: 3600
"""

RETURN = r"""
version:
  description: The list's version.
  type: int
  returned: when it was written
generation:
  description: The domain's generation that holds it.
  type: int
  returned: when it was written
counts:
  description: What a review found in the new list, how many of each kind.
  type: dict
  returned: when the list would change
proposal:
  description: The proposal that holds the change, where another person must approve it.
  type: dict
  returned: when it was proposed, or waits already
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aclflow.cloud.plugins.module_utils.api import (
    APPROVAL,
    ARGUMENTS,
    Problem,
    finish,
    path,
    plain,
    run,
)

DEFAULTS = ("ingress_default", "egress_default")


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            **APPROVAL,
            tenant={"type": "str", "required": True},
            rules={"type": "list", "elements": "dict", "default": []},
            groups={"type": "dict", "default": {}},
            ingress_default={"type": "str", "choices": ["deny", "permit"], "default": "deny"},
            egress_default={"type": "str", "choices": ["deny", "permit"], "default": "permit"},
            wait_s={"type": "int", "default": 0},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        ),
        supports_check_mode=True,
    )
    if module.params["state"] == "absent" and (module.params["rules"] or module.params["groups"]):
        module.fail_json(msg="rules: an absent list has none; leave rules and groups out")
    run(module, lambda api: ensure(module, api))


def ensure(module, api):
    """Have the tenant's list be what is asked for."""
    tenant = module.params["tenant"]
    where = path("tenants", tenant, "acl")
    there, tag = api.find(where)
    if there is None:
        raise Problem(404, f"there is no tenant '{tenant}', or the token may not see it: make it with aclflow_prefix")
    wanted = {key: module.params[key] for key in ("rules", *DEFAULTS)}
    if module.params["groups"]:
        wanted["groups"] = module.params["groups"]
    before, after = comparable(there), comparable(wanted)
    facts = {}
    if before != after:
        facts["counts"] = api.ask("POST", f"{where}/check", wanted)[0]["counts"]

    about = ("tenants", tenant)

    def is_same(seen):
        return comparable(api.ask("GET", path(*about, "proposals", seen["id"], "acl"))[0]) == after

    def change():
        waiting = api.waiting(about, is_same)
        written = {"proposal": waiting} if waiting else api.write("PUT", where, wanted, tag)[0]
        result = {key: written[key] for key in ("changed", "version", "generation") if key in written}
        if written.get("proposal"):
            result.update(api.settle(written["proposal"], about, changed=waiting is None))
            if result["proposal"]["state"] != "approved":
                return result
            result["version"] = api.ask("GET", path(*about))[0]["in_force"]["version"]
            result["generation"] = api.ask("GET", path("domains", domain_of(api, tenant)))[0]["generation"]
        if module.params["wait_s"]:
            api.wait_enforced(domain_of(api, tenant), result["generation"], module.params["wait_s"])
        return result

    finish(module, before, after, change, **facts)


def comparable(document):
    """A list as it is compared and shown."""
    groups = {
        name: {"prefixes": sorted(group.get("prefixes", [])), "description": group.get("description", "")}
        for name, group in (document.get("groups") or {}).items()
    }
    defaults = {key: document[key] for key in DEFAULTS}
    return dict(defaults, rules=[plain(rule) for rule in document["rules"]], groups=groups)


def domain_of(api, tenant):
    """The domain that a tenant is in."""
    return api.ask("GET", path("tenants", tenant))[0]["domain"]


if __name__ == "__main__":
    main()
