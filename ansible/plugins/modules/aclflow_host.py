#!/usr/bin/python
"""Hosts of security domains, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_host
short_description: Hosts of aclflow's domains
description:
  - Brings a host with its switch into a security domain, and takes it out again.
  - The role P(aclflow.cloud.ovs_host#role) configures the switch first; this module is what tells the service.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service, aclflow.cloud.member]
options:
  datapath_id:
    description: Of its bridge, 16 hexadecimal digits. Needed with O(state=present).
    type: str
  uplink:
    description: The bridge's interface towards the edge. Needed with O(state=present).
    type: str
"""

EXAMPLES = r"""
- name: A host whose switch is configured already
  aclflow.cloud.aclflow_host:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    domain: pop1
    name: host1
    datapath_id: 57c15bd0a288c5bf
    uplink: eth1
    wait_s: 60
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
            datapath_id={"type": "str"},
            uplink={"type": "str"},
        ),
        required_if=[("state", "present", ("datapath_id", "uplink"))],
        supports_check_mode=True,
    )
    run(module, Member(module, "hosts", ("name", "datapath_id", "uplink")).ensure)


if __name__ == "__main__":
    main()
