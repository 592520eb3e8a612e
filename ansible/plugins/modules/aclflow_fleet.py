#!/usr/bin/python
"""Fleets of firewall VNFs, as an Ansible module."""

from __future__ import annotations

DOCUMENTATION = r"""
module: aclflow_fleet
short_description: Fleets of firewall VNFs of aclflow's domains
description:
  - Says how many firewall VNFs a domain is to have and what they are, takes single ones out, and ends the fleet.
  - The service makes and removes the VNFs afterwards, through the cloud that it was started with.
author: [aclflow (@aclflow)]
extends_documentation_fragment: [aclflow.cloud.service]
options:
  domain:
    description: The domain.
    type: str
    required: true
  size:
    description:
      - So many VNFs, or V(auto) for as many as the load needs, or V(alarms) for as many as the cloud's alarms make.
        Left out, a new fleet has V(auto).
    type: str
  plane:
    description: What VNFs that are made from now on filter with. Left out, a new fleet has V(nftables).
    type: str
    choices: [nftables, iptables, queue]
  spread:
    description:
      - Whether a spreading switch of aclflow gives each its share and is waited for. Left out, a new fleet has one.
    type: bool
  stateful:
    description: Whether both directions of a connection meet the same VNF. Left out, a new fleet is not so.
    type: bool
  decide_every_s:
    description: How often the size is decided, in seconds.
    type: float
  limits:
    description: What C(aclflow fleet set --limit) takes, as C(fewest) and C(most). What is left out stays.
    type: dict
    default: {}
  patience:
    description: What C(aclflow fleet set --patience) takes, as C(build_s). What is left out stays.
    type: dict
    default: {}
  drain:
    description:
      - VNFs that are to go, by their names, as before work on their compute hosts. Each loses its traffic first, and
        another one comes where the size asks for it. One that is going or gone already is left alone.
    type: list
    elements: str
    default: []
  state:
    description: Whether there is to be a fleet. One that has VNFs is not ended; set its O(size) to V(0) before.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Firewalls in OpenStack, as many as the traffic needs
  aclflow.cloud.aclflow_fleet:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    domain: pop1
    size: auto
    limits: {fewest: 2, most: 8}
    patience: {build_s: 1800}

- name: Move a firewall away from a compute host
  aclflow.cloud.aclflow_fleet:
    url: https://192.0.2.1:8420
    token: "{{ aclflow_token }}"
    domain: pop1
    drain: [fw-3]
"""

RETURN = r"""
settings:
  description: The settings afterwards. In check mode those that are there.
  type: dict
  returned: when there is a fleet
drained:
  description: The VNFs that were told to go.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aclflow.cloud.plugins.module_utils.api import ARGUMENTS, Problem, finish, path, run

PLAIN = ("plane", "spread", "stateful", "decide_every_s")
NESTED = ("limits", "patience")
STAYING = ("requested", "building", "enrolled", "loaded", "proven", "serving")
"""The states of VNFs that are not on their way out."""


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            domain={"type": "str", "required": True},
            size={"type": "str"},
            plane={"type": "str", "choices": ["nftables", "iptables", "queue"]},
            spread={"type": "bool"},
            stateful={"type": "bool"},
            decide_every_s={"type": "float"},
            limits={"type": "dict", "default": {}},
            patience={"type": "dict", "default": {}},
            drain={"type": "list", "elements": "str", "default": []},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        ),
        supports_check_mode=True,
    )
    run(module, lambda api: absent(module, api) if module.params["state"] == "absent" else present(module, api))


def absent(module, api):
    """End the fleet."""
    where = path("domains", module.params["domain"], "fleet")
    there, tag = api.find(where)
    before = there["settings"] if there else None
    finish(module, before, None, lambda: api.write("DELETE", where, etag=tag) and None, drained=[])


def present(module, api):
    """Make the fleet or change it, then drain."""
    where = path("domains", module.params["domain"], "fleet")
    there, tag = api.find(where)
    asked = settings_asked(module.params)
    known = there["settings"] if there else {}
    drained = members_to_drain(module.params["drain"], there["members"] if there else [])
    before = dict(picked(known, asked), drained=[]) if there else None
    after = dict(asked, drained=drained)

    def change():
        settings = known
        if before is None or picked(known, asked) != asked:
            settings = api.write("PATCH", where, asked, tag)[0]["settings"]
        for member in drained:
            api.write("POST", path("domains", module.params["domain"], "fleet", "members", member, "drain"))
        return {"settings": settings}

    finish(module, before, after, change, drained=drained, **({"settings": known} if there else {}))


def settings_asked(params):
    """The settings that the task names, as the service has them."""
    asked = {key: params[key] for key in PLAIN if params[key] is not None}
    asked.update({key: {name: number(key, name, text) for name, text in params[key].items()}
                  for key in NESTED if params[key]})  # fmt: skip
    size = params["size"]
    if size is not None:
        asked["alarms"] = size == "alarms"
        asked["size"] = None if size in ("auto", "alarms") else number("size", "", size)
    return asked


def number(place, name, text):
    """A number of a setting, whole where it can be."""
    try:
        found = float(text)
    except (TypeError, ValueError):
        raise Problem(0, f"{place}{'.' if name else ''}{name}: '{text}' is no number") from None
    return int(found) if found.is_integer() else found


def picked(settings, asked):
    """The settings that are asked for, as they are now."""
    return {
        key: {name: settings[key].get(name) for name in value} if isinstance(value, dict) else settings.get(key)
        for key, value in asked.items()
    }


def members_to_drain(names, members):
    """Those of the named VNFs that the fleet has and that do not go already, as they are named."""
    staying = {each["name"] for each in members if each["state"] in STAYING}
    return [name for name in names if name in staying]


if __name__ == "__main__":
    main()
