"""A machine that the service is asked to make a host: over REST, with Ansible, over SSH."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from deployment.fabric import ALICE, DB3, ENDPOINTS, Fabric
from deployment.machines import Machines
from deployment.site import DOMAIN, SERVICE
from deployment.traffic import Stream

NAME = DB3.through
RULE = {"id": "db3", "action": "permit", "protocol": "udp", "destination": DB3.address, "destination_ports": "81"}
OLD_SWITCH = "#!/bin/sh\necho 'ovs-vswitchd (Open vSwitch) 2.17.9'\n"
FAKED = "/usr/local/bin/ovs-appctl"


class Guest:
    """The machine `host3`, which is in no inventory."""

    def __init__(self, machines: Machines, fabric: Fabric, aclflow: Callable[..., str]) -> None:
        """`aclflow` is the command line, as an administrator."""
        self._fabric, self._aclflow = fabric, aclflow
        machines.add(NAME)
        self._machine = machines.start(NAME)
        self._service = machines[SERVICE].address
        self.streams = (Stream(ALICE, DB3, 80, permitted=False), Stream(ALICE, DB3, 81, permitted=True))

    def is_refused_until_all_is_right(self) -> None:
        """Everything that can be wrong is, one after the other; each time it is said what to change."""
        keys = ("/root/.ssh/authorized_keys", "/root/.ssh/away")
        self._machine.run("mv", *keys)
        assert "does not take the key" in self._refusal()
        self._machine.run("mv", *reversed(keys))
        assert "there is no way" in (said := self._refusal(address="10.77.0.99")) or "does not answer" in said
        assert "cannot use the uplink" in self._refusal()
        self._fabric.connect_host(NAME)
        self._machine.run("tee", FAKED, text=OLD_SWITCH)
        self._machine.run("chmod", "+x", FAKED)
        assert "Open vSwitch 2.17.9 is too old" in self._refusal()
        self._machine.run("rm", FAKED)
        self._in_use()
        assert "1 flows of somebody" in self._refusal()
        self._machine.run("ovs-vsctl", "del-br", "br-aclflow")

    def is_added(self) -> None:
        """It becomes a host, and the second time there is nothing to do. It gets an endpoint."""
        assert json.loads(self._aclflow(*self._add()))["state"] == "done"
        steps = self._steps()
        assert any("Configure the switch" in step for step in steps), steps
        assert self._machine.run("ovs-vsctl", "get", "bridge", "br-aclflow", "fail_mode").strip() == "secure"
        assert self._machine.run("ovs-vsctl", "get-ssl").count("/etc/aclflow/tls/") == 3
        before = self._machine.run("ovs-vsctl", "list", "controller")
        assert json.loads(self._aclflow(*self._add()))["state"] == "done"
        assert not any("Configure the switch" in step for step in self._steps()[len(steps) :])
        assert self._machine.run("ovs-vsctl", "--columns=target,_uuid", "list", "controller").split()[-1] in before
        self._fabric.steer((*ENDPOINTS, DB3))
        self._fabric.plug_endpoint(DB3)
        words = ("--tenant", "shop", "--port", DB3.name, "--mac", DB3.mac, "--prefix", f"{DB3.address}/32")
        self._aclflow("domain", "endpoint", "add", DOMAIN, DB3.name, *words)

    def is_given_back(self) -> None:
        """Closed first, then forgotten."""
        self._aclflow("host", "remove", DOMAIN, NAME)
        assert self._machine.run("ovs-vsctl", "list-br").split() == []
        hosts = json.loads(self._aclflow("domain", "show", DOMAIN, "--json"))["hosts"]
        assert NAME not in {host["name"] for host in hosts}

    def _add(self, address: str = "") -> tuple[str, ...]:
        where = ("--address", f"root@{address or self._machine.address}", "--uplink", "uplink", "--datapath", "netdev")
        return ("host", "add", DOMAIN, NAME, *where, "--tls", "--controller", f"ssl:{self._service}:6653", "--json")

    def _refusal(self, address: str = "") -> str:
        with pytest.raises(AssertionError) as refused:
            self._aclflow(*self._add(address))
        return str(refused.value)

    def _steps(self) -> list[str]:
        """What events say of the way there."""
        events = json.loads(self._aclflow("events", "--since", "0", "--kind", "onboarding.step", "--json"))
        return [event["detail"]["step"] for event in events if event["detail"]["name"] == NAME]

    def _in_use(self) -> None:
        """A bridge of that name carries somebody's packets."""
        bridge = ("br-aclflow", "--", "set", "bridge", "br-aclflow", "datapath_type=netdev")
        self._machine.run("ovs-vsctl", "--if-exists", "del-br", "br-aclflow", "--", "add-br", *bridge)
        self._machine.run("ovs-ofctl", "add-flow", "br-aclflow", "priority=7,actions=drop")
