#!/usr/bin/python
"""Firewalls of security domains, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_firewall
short_description: Firewalls of aclflow's domains
description:
  - Brings a machine that filters with nftables or iptables into a security domain, and takes it out again.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service]
attributes:
  check_mode: {support: full, description: Says what would be changed and changes nothing.}
  diff_mode: {support: full, description: Shows the firewall before and after.}
options:
  domain:
    description: The domain.
    type: str
    required: true
  name:
    description: The firewall's name, which its agent bears.
    type: str
    required: true
  plane:
    description: What it filters with.
    type: str
    choices: [nftables, iptables]
    default: nftables
  wait_s:
    description:
      - How long to wait until the domain's newest generation is enforced everywhere, in seconds; 0 does not wait.
    type: int
    default: 0
  state:
    description: Whether the firewall is to belong to the domain.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: A firewall
  aclflow.cloud.aclflow_firewall:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    domain: pop1
    name: fw1
"""

RETURN = r"""
generation:
  description: The generation that was waited for.
  type: int
  returned: with O(wait_s)
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aclflow.cloud.plugins.module_utils.api import ARGUMENTS, run
from ansible_collections.aclflow.cloud.plugins.module_utils.members import Member


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            domain={"type": "str", "required": True},
            name={"type": "str", "required": True},
            plane={"type": "str", "choices": ["nftables", "iptables"], "default": "nftables"},
            wait_s={"type": "int", "default": 0},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        ),
        supports_check_mode=True,
    )
    run(module, Member(module, "firewalls", ("name", "plane")).ensure)


if __name__ == "__main__":
    main()
