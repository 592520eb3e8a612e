"""Firewall VNFs in OpenStack through Heat: one stack a fleet, with a ResourceGroup.

aclflow chooses the members that leave.

settings.py      what an operator sets, read from a mapping
api.py           what is asked of OpenStack, as a protocol and the values it answers with
openstack.py     the real one: openstacksdk signs in, python-heatclient speaks to Heat; its errors as errors of ours
fakeopenstack.py one in memory, with the real one's rules for names, failures and lost answers
words.py         what OpenStack says went wrong, for people. Pure
stackstate.py    what Heat, Nova and Neutron say of a stack, as VNFs, and which of its members each is. Pure
fleets.py        `HeatCloud`: the cloud as the rest of aclflow sees it; VNFs of groups that alarms scale
alarms.py        groups that grow and shrink by alarms of the cloud, not by decisions of ours

The client libraries are an extra (`openstack` in `setup.cfg`); only openstack.py imports them.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.cloud.base import Cloud
from orchestrator.cloud.heat.api import OpenStack
from orchestrator.cloud.heat.fleets import HeatCloud
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.extras import needs_extra


def open_cloud(settings: Mapping[str, object]) -> Cloud:
    """Open the cloud that a mapping describes.

    Raises BadInput with the key as its place, Missing without the libraries.
    """
    chosen = HeatSettings.read(settings)
    return HeatCloud(chosen, connect_openstack(chosen))


def connect_openstack(settings: HeatSettings) -> OpenStack:
    """Prepare a connection to the OpenStack that the settings name; nothing is requested yet.

    Raises Missing without the libraries.
    """
    with needs_extra("openstack", "a cloud of OpenStack"):
        from orchestrator.cloud.heat.openstack import OpenStackClient  # noqa: PLC0415
    return OpenStackClient(settings)
