#!/usr/bin/python
"""Firewalls of security domains, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_firewall
short_description: Firewalls of aclflow's domains
description:
  - Brings a machine that filters with nftables or iptables into a security domain, and takes it out again.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service, aclflow.cloud.member]
options:
  plane:
    description: What it filters with.
    type: str
    choices: [nftables, iptables]
    default: nftables
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
from ansible_collections.aclflow.cloud.plugins.module_utils.api import run
from ansible_collections.aclflow.cloud.plugins.module_utils.members import ARGUMENTS, Member


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            plane={"type": "str", "choices": ["nftables", "iptables"], "default": "nftables"},
        ),
        supports_check_mode=True,
    )
    run(module, Member(module, "firewalls", ("name", "plane")).ensure)


if __name__ == "__main__":
    main()
