"""Machines of a domain as an Ansible inventory: what aclflow knows, and where OpenStack runs it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: aclflow
short_description: Hosts and firewalls of aclflow's domains
description:
  - Reads the hosts and firewalls of all domains (or of some) from aclflow's REST interface into the groups C(hosts) and
    C(firewalls), and into one group a domain, C(domain_NAME).
  - Addresses come from O(addresses), from OpenStack's servers of the same names where O(openstack) says where to ask,
    else the name itself is the address.
  - The file must end with C(aclflow.yml) or C(aclflow.yaml).
author: [aclflow (@aclflow)]
options:
  plugin:
    description: Must be V(aclflow.cloud.aclflow).
    required: true
    choices: [aclflow.cloud.aclflow]
  url:
    description: Where the service answers.
    required: true
    env: [{name: ACLFLOW_URL}]
  token:
    description: An administrator's token.
    required: true
    env: [{name: ACLFLOW_TOKEN}]
  authority:
    description: The certificate (PEM) that the service's must be signed by.
    type: path
    env: [{name: ACLFLOW_AUTHORITY}]
  plain_http:
    description:
      - Whether O(url) may begin with C(http://) and lead off this machine. The token can then be read on the way.
    type: bool
    default: false
    env: [{name: ACLFLOW_PLAIN_HTTP}]
  domains:
    description: Only these domains; all by default.
    type: list
    elements: str
    default: []
  addresses:
    description: Where machines are reached, by name.
    type: dict
    default: {}
  openstack:
    description:
      - Where OpenStack is asked for servers, C(auth_url), C(username), C(password), C(project), C(network) and, where
        they are not C(Default), C(user_domain) and C(project_domain).
      - A server is taken for the machine of the same name, or of that name behind its domain's and a hyphen, as
        C(security-domain.yaml) calls them; its address is the first on C(network).
    type: dict
"""

EXAMPLES = r"""
# pop.aclflow.yml
plugin: aclflow.cloud.aclflow
url: https://192.0.2.1:8420
authority: /etc/aclflow/tls/authority.pem
addresses:
  host1: 192.0.2.11
openstack:
  auth_url: https://keystone.example.org/v3
  username: aclflow
  password: "{{ lookup('env', 'OS_PASSWORD') }}"
  project: infrastructure
  network: management
"""

import json
from urllib.error import HTTPError, URLError

from ansible.errors import AnsibleParserError
from ansible.module_utils.urls import open_url
from ansible_collections.aclflow.cloud.plugins.module_utils.api import refusal_in_clear

from ansible.plugins.inventory import BaseInventoryPlugin


class InventoryModule(BaseInventoryPlugin):
    """The inventory plugin."""

    NAME = "aclflow.cloud.aclflow"

    def verify_file(self, path):
        """Whether a file is one of ours."""
        return super().verify_file(path) and path.endswith(("aclflow.yml", "aclflow.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        """Read the machines. Fails with what to change where a service does not answer."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        refusal = refusal_in_clear(self.get_option("url"), self.get_option("plain_http"))
        if refusal is not None:
            raise AnsibleParserError(refusal)
        addresses = dict(self._servers(), **self.get_option("addresses"))
        for group in ("hosts", "firewalls"):
            self.inventory.add_group(group)
        for domain in self.get_option("domains") or [each["id"] for each in self._every("/v1/domains")]:
            self._read_domain(domain, addresses)

    def _read_domain(self, domain, addresses):
        group = self.inventory.add_group("domain_" + "".join(each if each.isalnum() else "_" for each in domain))
        for kind, keys in (("hosts", {"uplink": "aclflow_uplink"}), ("firewalls", {"plane": "aclflow_firewall_plane"})):
            for machine in self._every(f"/v1/domains/{domain}/{kind}"):
                name = machine["name"]
                self.inventory.add_host(name, group=kind)
                self.inventory.add_child(group, name)
                self.inventory.set_variable(name, "aclflow_domain", domain)
                address = addresses.get(name) or addresses.get(f"{domain}-{name}") or name
                self.inventory.set_variable(name, "ansible_host", address)
                for key, variable in keys.items():
                    self.inventory.set_variable(name, variable, machine[key])

    def _every(self, where):
        url, found, marker = self.get_option("url").rstrip("/"), [], None
        while True:
            page = self._ask(
                url + where + (f"?marker={marker}" if marker else ""),
                {"X-Auth-Token": self.get_option("token")},
                self.get_option("authority"),
            )[0]
            if isinstance(page, list):
                return page
            found += page["items"]
            marker = page.get("next")
            if marker is None:
                return found

    # ------------------------------------------------------------------------------------------------ OpenStack

    def _servers(self):
        """Addresses of OpenStack's servers, by name."""
        cloud = self.get_option("openstack")
        if not cloud:
            return {}
        missing = [key for key in ("auth_url", "username", "password", "project", "network") if not cloud.get(key)]
        if missing:
            raise AnsibleParserError(f"openstack: {', '.join(missing)} must be said")
        body, headers = self._ask(f"{cloud['auth_url'].rstrip('/')}/auth/tokens", {}, None, _credentials(cloud))
        computes = [each for each in body["token"]["catalog"] if each["type"] == "compute"]
        endpoints = [
            each["url"] for compute in computes for each in compute["endpoints"] if each["interface"] == "public"
        ]
        if not endpoints:
            raise AnsibleParserError("openstack: the catalogue names no public compute service")
        token = {"X-Auth-Token": headers["X-Subject-Token"]}
        servers, page = [], f"{endpoints[0].rstrip('/')}/servers/detail"
        while page:
            answer = self._ask(page, token, None)[0]
            servers += answer["servers"]
            page = next((each["href"] for each in answer.get("servers_links", []) if each["rel"] == "next"), None)
        networks = {server["name"]: server["addresses"].get(cloud["network"], []) for server in servers}
        return {name: addresses[0]["addr"] for name, addresses in networks.items() if addresses}

    def _ask(self, url, headers, authority, body=None):
        """A JSON document and the answer's headers."""
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = open_url(
                url,
                method="GET" if body is None else "POST",
                data=data,
                headers=dict(headers, Accept="application/json", **{"Content-Type": "application/json"}),
                ca_path=authority or None,
                timeout=30,
            )
            return json.loads(answer.read()), answer.headers
        except HTTPError as error:
            raise AnsibleParserError(f"{url} says {error.code}: check the token and what it may see") from error
        except (URLError, OSError, ValueError) as error:
            raise AnsibleParserError(f"{url} does not answer: {getattr(error, 'reason', error)}") from error


def _credentials(cloud):
    """What Keystone is asked with."""
    user = {
        "name": cloud["username"],
        "password": cloud["password"],
        "domain": {"name": cloud.get("user_domain", "Default")},
    }
    project = {"name": cloud["project"], "domain": {"name": cloud.get("project_domain", "Default")}}
    identity = {"methods": ["password"], "password": {"user": user}}
    return {"auth": {"identity": identity, "scope": {"project": project}}}
