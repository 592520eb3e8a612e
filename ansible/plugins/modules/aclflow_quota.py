#!/usr/bin/python
"""What a tenant may use, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_quota
short_description: Quotas of aclflow's tenants
description:
  - Sets the limits of a tenant. A limit that is left out stays as it is, and V(-1) takes one away.
  - A list that costs more than a new limit stays in force, and may not grow.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service]
options:
  tenant:
    description: The tenant. One that is not there is a failure.
    type: str
    required: true
  rules:
    description: How many rules its list may have.
    type: int
  flows:
    description: How many flow entries its list may need on a switch.
    type: int
  stored_bytes:
    description: What the list and its history may take up. The oldest versions are forgotten first.
    type: int
  versions:
    description: How many versions of the list are kept, two at least.
    type: int
  streams:
    description: How many streams of events its members may have open at one service. Without a limit, 64.
    type: int
  analysis_seconds:
    description: For how many seconds of a minute one service looks at the list for its members.
    type: int
  state:
    description: Whether the tenant is to have these limits, or V(absent) none at all.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: A tenant that neither fills the tables nor keeps the service busy
  aclflow.cloud.aclflow_quota:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    tenant: shop
    rules: 2000
    flows: 50000
    streams: 8
    analysis_seconds: 10
"""

RETURN = r"""
quota:
  description: The limits afterwards. Null is no limit.
  type: dict
  returned: always
used:
  description: What is used of them.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aclflow.cloud.plugins.module_utils.api import ARGUMENTS, finish, path, run

LIMITS = ("rules", "flows", "stored_bytes", "versions", "streams", "analysis_seconds")
NO_LIMIT = -1


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            tenant={"type": "str", "required": True},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            **{limit: {"type": "int"} for limit in LIMITS},
        ),
        supports_check_mode=True,
    )
    run(module, lambda api: ensure(module, api))


def ensure(module, api):
    """Have the tenant be limited as is asked for."""
    where = path("tenants", module.params["tenant"], "quota")
    found, tag = api.ask("GET", where)
    before = {limit: found[limit] for limit in LIMITS}
    after = {limit: limit_after(module, limit, before[limit]) for limit in LIMITS}
    finish(module, before, after, lambda: api.write("PUT", where, after, tag) and None, quota=after, used=found["used"])


def limit_after(module, limit, now):
    """What one limit is to be; None: there is none."""
    wanted = module.params[limit]
    if module.params["state"] == "absent":
        if wanted is not None:
            module.fail_json(msg=f"{limit}: with state absent all limits go, so leave it out")
        return None
    if wanted is not None and wanted < NO_LIMIT:
        module.fail_json(msg=f"{limit}: {wanted} is no limit; {NO_LIMIT} takes it away")
    return now if wanted is None else None if wanted == NO_LIMIT else wanted


if __name__ == "__main__":
    main()
