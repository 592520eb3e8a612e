"""What hosts and firewalls have in common: members of a domain that are there or not, and waited for."""

from __future__ import annotations

from ansible_collections.aclflow.cloud.plugins.module_utils import api as service
from ansible_collections.aclflow.cloud.plugins.module_utils.api import finish, path

ARGUMENTS = dict(
    service.ARGUMENTS,
    domain={"type": "str", "required": True},
    name={"type": "str", "required": True},
    wait_s={"type": "int", "default": 0},
    state={"type": "str", "choices": ["present", "absent"], "default": "present"},
)


class Member:
    """A member of a domain, under `kind` (hosts, firewalls), said by the parameters `keys`."""

    def __init__(self, module, kind, keys):
        self._module = module
        self._domain = path("domains", module.params["domain"])
        self._kind = f"{self._domain}/{kind}"
        self._where = path("domains", module.params["domain"], kind, module.params["name"])
        self._keys = keys

    def ensure(self, api):
        """Have the member belong to the domain, or not; then wait, where that is asked for."""
        module = self._module
        there, tag = api.find(self._where)
        before = {key: there[key] for key in self._keys} if there else None
        wanted = {key: module.params[key] for key in self._keys} if module.params["state"] == "present" else None

        def change():
            if there is not None:
                api.write("DELETE", self._where, etag=tag)
            if wanted is not None:
                api.write("POST", self._kind, wanted)

        if wanted is None or module.check_mode or not module.params["wait_s"]:
            finish(module, before, wanted, change)
        if before != wanted:
            change()
        generation = api.ask("GET", self._domain)[0]["generation"]
        api.wait_enforced(module.params["domain"], generation, module.params["wait_s"], module.params["name"])
        finish(module, before, wanted, lambda: None, generation=generation)
