"""Namespaces that are plugged into a host of the cloud as os-vif plugs an instance."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from twohosts.beside import compute_of
from twohosts.cloud import Cloud

from orchestrator.bench.cloud import plugs
from orchestrator.bench.cloud.plugs import Plugged


def plug_namespace(
    cloud: Cloud, host: str, bridge: str, port: Any, gateway: str = ""
) -> AbstractContextManager[Plugged]:
    """Plug a namespace into a bridge of a host by a port that Neutron bound; it goes when the block ends."""
    return plugs.plug_namespace(compute_of(cloud, host), bridge, port, gateway, prefix=cloud.prefix)
