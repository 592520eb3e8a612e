#!/usr/bin/python
"""Security domains, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_domain
short_description: Security domains of aclflow
description:
  - Makes, changes and removes a security domain, and the operator's rules that stand above all its tenants.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service, aclflow.cloud.approval]
options:
  name:
    description: The domain.
    type: str
    required: true
  return_traffic:
    description:
      - How replies come back in, where V(tracked) is as packets of a connection that the lists permit, and
        V(path-mtu) as V(established) with ICMP errors that say which size of packet a path takes, from anybody, up to
        O(path_mtu_rate). Left out, a new domain has V(established), and one that is there keeps what it has.
    type: str
    choices: [established, explicit, path-mtu, tracked]
  path_mtu_rate:
    description:
      - How many ICMP errors of V(path-mtu) a switch or firewall VNF lets through a second to each tenant, 1 to
        10000. Left out, a new domain has 100, and one that is there keeps what it has.
    type: int
  operator_rules:
    description:
      - The rules above all tenants, in order, each as in the native JSON of lists. Left out, they stay as they are.
      - Essential services (DHCP, DNS, NTP) belong here.
    type: list
    elements: dict
  state:
    description: Whether the domain is to be there. One that has tenants or hosts is not removed.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Have a domain in which hosts may ask for names and the time
  aclflow.cloud.aclflow_domain:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    name: pop1
    operator_rules:
      - {id: dns, direction: egress, action: permit, protocol: udp, destination: 192.0.2.53, destination_ports: 53}
      - {id: ntp, direction: egress, action: permit, protocol: udp, destination: 192.0.2.123, destination_ports: 123}
"""

RETURN = r"""
generation:
  description: The domain's generation afterwards.
  type: int
  returned: when the domain is there
proposal:
  description: The proposal that holds the operator rules, where another person must approve them.
  type: dict
  returned: when they were proposed, or wait already
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aclflow.cloud.plugins.module_utils.api import (
    APPROVAL,
    ARGUMENTS,
    finish,
    path,
    plain,
    run,
)


def rules_of(api, name):
    """The operator's rules of a domain and their ETag."""
    document, tag = api.ask("GET", path("domains", name, "operator-rules"))
    return document["rules"], tag


def set_rules(api, name, rules, etag):
    """Set the operator's rules of a domain, or have them approved by another person; what came of that."""
    about = ("domains", name)
    wanted = [plain(rule) for rule in rules]

    def is_same(seen):
        if seen["kind"] != "operator-rules":
            return False
        document, _tag = api.ask("GET", path(*about, "proposals", seen["id"], "operator-rules"))
        return [plain(rule) for rule in document["rules"]] == wanted

    waiting = api.waiting(about, is_same)
    if waiting is not None:
        return api.settle(waiting, about, changed=False)
    written, _tag = api.write("PUT", path(*about, "operator-rules"), {"rules": rules}, etag)
    if written.get("proposal"):
        return api.settle(written["proposal"], about)
    return {"changed": written["changed"]}


_SETTINGS = ("return_traffic", "path_mtu_rate")


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            **APPROVAL,
            name={"type": "str", "required": True},
            return_traffic={"type": "str", "choices": ["established", "explicit", "path-mtu", "tracked"]},
            path_mtu_rate={"type": "int"},
            operator_rules={"type": "list", "elements": "dict"},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        ),
        supports_check_mode=True,
    )
    run(module, lambda api: absent(module, api) if module.params["state"] == "absent" else present(module, api))


def absent(module, api):
    """Remove the domain."""
    where = path("domains", module.params["name"])
    there, tag = api.find(where)
    finish(module, there, None, lambda: api.write("DELETE", where, etag=tag) and None)


def present(module, api):
    """Make the domain, or change it."""
    name, setting, rules = (module.params[key] for key in ("name", "return_traffic", "operator_rules"))
    where = path("domains", name)
    there, tag = api.find(where)
    before, rules_tag = {}, None
    rate = module.params["path_mtu_rate"]
    if there is not None:
        before = {key: there[key] for key in _SETTINGS}
        if rules is not None:
            before["operator_rules"], rules_tag = rules_of(api, name)
    after = {"return_traffic": setting or before.get("return_traffic", "established")}
    if rate is not None or there is not None:
        after["path_mtu_rate"] = rate if rate is not None else before["path_mtu_rate"]
    settings = {key: after[key] for key in _SETTINGS if key in after}
    if rules is not None:
        after["operator_rules"] = [plain(rule) for rule in rules]
        if there is not None:
            before["operator_rules"] = [plain(rule) for rule in before["operator_rules"]]

    def change():
        changed, proposed = False, {}
        if there is None:
            api.write("POST", "/v1/domains", dict(settings, id=name))
            changed = True
        elif any(before[key] != value for key, value in settings.items()):
            api.write("PATCH", where, settings, tag)
            changed = True
        if rules is not None and before.get("operator_rules") != after["operator_rules"]:
            etag = rules_tag or rules_of(api, name)[1]
            proposed = set_rules(api, name, rules, etag)
            changed = changed or proposed["changed"]
        return dict(proposed, changed=changed, generation=api.ask("GET", where)[0]["generation"])

    finish(module, before, after, change, **({"generation": there["generation"]} if there else {}))


if __name__ == "__main__":
    main()
