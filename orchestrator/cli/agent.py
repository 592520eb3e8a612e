"""`aclflow agent`: the agent of a firewall VNF, as a process inside it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from orchestrator.cli.controller import membership
from orchestrator.cli.options import Url, taking
from orchestrator.compile.filterrows import Plane
from orchestrator.enforce.agent import AgentSettings, run_agent
from orchestrator.enforce.drivers.bpf.front import BpfFront
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.filters.front import Fronted
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.enforce.standing import Device, Timing
from orchestrator.errors import BadInput, Missing
from orchestrator.logs import configure_logging
from orchestrator.settings import load


class FilterName(enum.Enum):
    """What can be driven. A machine may have two kinds of iptables."""

    NFTABLES = "nftables"
    IPTABLES = "iptables"
    IPTABLES_LEGACY = "iptables-legacy"
    IPTABLES_NFT = "iptables-nft"


DRIVERS: Mapping[FilterName, tuple[Plane, Callable[[], Device]]] = {
    FilterName.NFTABLES: (Plane.NFTABLES, nftables_driver),
    FilterName.IPTABLES: (Plane.IPTABLES, iptables_driver),
    FilterName.IPTABLES_LEGACY: (Plane.IPTABLES, partial(iptables_driver, "legacy")),
    FilterName.IPTABLES_NFT: (Plane.IPTABLES, partial(iptables_driver, "nft")),
}


@taking
def agent(
    driver: Annotated[FilterName, typer.Option("--driver", help="What filters here.")] = FilterName.NFTABLES,
    name: Annotated[str | None, typer.Option("--name", help="The firewall's; by default this machine's.")] = None,
    interface: Annotated[
        list[str] | None, typer.Option("--interface", help="Packets are forwarded between these; default: all.")
    ] = None,
    flow_cache: Annotated[
        bool, typer.Option("--flow-cache", help="Decide popular packets before the kernel's IP stack (tc-BPF).")
    ] = False,
    observe_every: Annotated[
        float, typer.Option("--observe-every", min=0.1, help="Look for foreign changes so often, in seconds.")
    ] = Timing().observe_every_s,
    count_every: Annotated[
        float, typer.Option("--count-every", min=0.1, help="Read the counters so often, in seconds.")
    ] = Timing().count_every_s,
    load_every: Annotated[
        float, typer.Option("--load-every", min=0.1, help="Tell the load so often, in seconds.")
    ] = 10.0,
    url: Url = None,
) -> None:
    """Run the agent of a firewall VNF, inside its network namespace. Needs root.

    The first start enrols with the one-time token in ACLFLOW_TOKEN (`aclflow domain invite` makes one) under the name
    with which the firewall was brought into its domain (`aclflow firewall add`). What it needs later is kept in
    ACLFLOW_STATE_DIR: it enforces the last program when it starts while the service is away, and forwards nothing
    while it has none.
    """
    settings = load()
    configure_logging(settings)
    plane, make = DRIVERS[driver]
    if flow_cache and not interface:
        raise BadInput(
            "a flow cache is at interfaces: name those that packets are forwarded between", place="--interface"
        )
    run_agent(
        AgentSettings(
            membership(settings, name, url),
            plane.value,
            partial(_fronted, make, plane, interface or ()) if flow_cache else partial(_alone, make),
            tuple(interface or ()),
            Timing(observe_every_s=observe_every, count_every_s=count_every),
            load_every,
        )
    )


def _fronted(make: Callable[[], Device], plane: Plane, interfaces: Sequence[str]) -> Device:
    return Fronted(make(), BpfFront(interfaces, plane))


def _alone(make: Callable[[], Device]) -> Device:
    """Without the flow cache that an agent before this one may have left, which would stay at its policy."""
    with suppress(Missing):  # a machine that cannot run one has none
        KernelCache(()).detach()
    return make()
