"""Neutron's ports without agents: bound on any host, and active at once."""

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class InstantBind(api.MechanismDriver):
    """Binds to the first segment there is, but for the network that is another driver's."""

    def initialize(self):
        """Nothing to prepare."""

    def bind_port(self, context):
        """As Open vSwitch would be, ports filtered by nobody."""
        segment = context.segments_to_bind[0]
        if segment[api.PHYSICAL_NETWORK] == "aclflow":
            return
        context.set_binding(
            segment[api.ID],
            portbindings.VIF_TYPE_OVS,
            {portbindings.CAP_PORT_FILTER: False},
            status=constants.PORT_STATUS_ACTIVE,
        )
