"""`aclflow agent`: the agent of a firewall VNF, as a process inside it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.classify.devices.choice import AUTO, choose_device
from orchestrator.classify.devices.guarded import OnDevice, Patience
from orchestrator.classify.search import Search
from orchestrator.cli.membership import EnrolFile, membership
from orchestrator.cli.options import Url, taking
from orchestrator.compile.filters.cacherows import CLASSIFIER
from orchestrator.compile.filters.legs import Legs
from orchestrator.compile.nftables.served import REHOME
from orchestrator.enforce.agent import AgentSettings, list_beside, run_agent
from orchestrator.enforce.drivers.bpf.cachefront import BpfFront
from orchestrator.enforce.drivers.bpf.classifier import KernelClassifier
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.filters.front import Fronted
from orchestrator.enforce.drivers.filters.listsfile import WithListsFile
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables.served import served_driver
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.enforce.drivers.queue.engine import Setup
from orchestrator.enforce.drivers.queue.machine import Batching
from orchestrator.enforce.drivers.queue.tool import Hook, Led, queue_driver
from orchestrator.enforce.guardtable import leg_guard
from orchestrator.enforce.standing import Device, Timing
from orchestrator.errors import BadInput, Missing
from orchestrator.logs import configure_logging
from orchestrator.settings import load
from orchestrator.wire.firewalls import Plane

_INSTANCE_FILE = Path("/var/lib/cloud/data/instance-id")


class FilterName(enum.Enum):
    """The devices that can be driven.

    A machine may have two kinds of iptables. `queue` classifies in this process. A firewall server of a PoP has a share
    of the tenants, all others the whole policy.
    """

    NFTABLES = "nftables"
    IPTABLES = "iptables"
    IPTABLES_LEGACY = "iptables-legacy"
    IPTABLES_NFT = "iptables-nft"
    QUEUE = "queue"
    FIREWALL_SERVER = "firewall-server"


DRIVERS: Mapping[FilterName, tuple[Plane, Callable[..., Device]]] = {
    FilterName.NFTABLES: (Plane.NFTABLES, nftables_driver),
    FilterName.IPTABLES: (Plane.IPTABLES, iptables_driver),
    FilterName.IPTABLES_LEGACY: (Plane.IPTABLES, partial(iptables_driver, "legacy")),
    FilterName.IPTABLES_NFT: (Plane.IPTABLES, partial(iptables_driver, "nft")),
    FilterName.QUEUE: (Plane.QUEUE, partial(queue_driver, Setup(), Led())),
    FilterName.FIREWALL_SERVER: (Plane.NFTABLES, served_driver),
}


@dataclass(frozen=True, slots=True)
class Queueing:
    """How `--driver queue` gets packets from the kernel, and where it classifies them."""

    queue_device: Annotated[
        str, typer.Option("--queue-device", help="auto, c, or a device that `aclflow devices` lists.")
    ] = AUTO
    queue_first: Annotated[int, typer.Option("--queue-first", min=0, max=65535, help="The first queue's number.")] = 0
    queue_count: Annotated[
        int, typer.Option("--queue-count", min=1, max=64, help="Queues, each with a thread; a flow keeps its queue.")
    ] = 2
    queue_batch: Annotated[int, typer.Option("--queue-batch", min=1, max=4096, help="Packets of a batch.")] = (
        Batching().most
    )
    queue_latency_us: Annotated[
        int,
        typer.Option("--queue-latency-us", min=0, max=100_000, help="A packet waits so long for others of its batch."),
    ] = 0
    queue_waiting: Annotated[
        int, typer.Option("--queue-waiting", min=1, help="Packets that may wait in the kernel; more are dropped.")
    ] = Batching().waiting
    queue_hook: Annotated[
        list[Hook] | None,
        typer.Option("--queue-hook", help="Packets to or from this machine, too, at the interfaces that are named."),
    ] = None
    queue_next: Annotated[
        int | None, typer.Option("--queue-next", min=0, max=65535, help="The queue that permitted packets go on to.")
    ] = None

    def maker(self, interfaces: Sequence[str]) -> Callable[..., Device]:
        """The maker of the driver. Raises BadInput and Missing."""
        queues = range(self.queue_first, self.queue_first + self.queue_count)
        if queues[-1] > _LAST_QUEUE or self.queue_next in queues:
            raise BadInput("queues are numbered up to 65535, and the next one is none of them", place="--queue-first")
        device = choose_device(self.queue_device, place="--queue-device")
        setup = Setup(
            queues,
            Batching(self.queue_batch, self.queue_latency_us, self.queue_waiting),
            Search if device is None else OnDevice(device, Patience()).search,
            self.queue_next,
        )
        hooks = tuple(self.queue_hook or ())
        return partial(queue_driver, setup, Led(hooks, tuple(interfaces) if hooks else ()))


_LAST_QUEUE = 65_535


@dataclass(frozen=True, slots=True)
class Enrolling:
    """The facts about this machine for its first start."""

    enrol_file: EnrolFile = None
    instance: Annotated[
        str | None, typer.Option("--instance", help="This machine's id in its cloud; what cloud-init noted by default.")
    ] = None

    def instance_id(self) -> str | None:
        """Return this machine's name in the cloud that it runs in, if known."""
        if self.instance is not None:
            return self.instance
        try:
            return _INSTANCE_FILE.read_text().strip() or None
        except (OSError, UnicodeDecodeError):
            return None


@dataclass(frozen=True, slots=True)
class Around:
    """The classifier in front of the filter, and the cluster's lists behind it."""

    flow_cache: Annotated[
        bool, typer.Option("--flow-cache", help="Decide popular packets before the kernel's IP stack (tc-BPF).")
    ] = False
    classifier: Annotated[
        bool,
        typer.Option(
            "--classifier", help="Decide whole lists there, on a firewall server; with --flow-cache, by flow."
        ),
    ] = False
    lists: Annotated[
        Path | None,
        typer.Option("--lists", help="Write the tenants' lists there, for `aclflow statesync run --lists` here."),
    ] = None

    def device(
        self, driver: FilterName, make: Callable[[], Device], interfaces: Sequence[str], legs: Legs
    ) -> Callable[[], Device]:
        """Make the driver with what stands before and behind it. Raises BadInput."""
        if self.lists is not None and driver in (FilterName.QUEUE, FilterName.FIREWALL_SERVER):
            raise BadInput("only nftables and iptables have a cluster's programs behind them", place="--lists")
        found = self._front(driver, make, interfaces, legs)
        return found if self.lists is None else partial(_write_lists, found, self.lists)

    def _front(
        self, driver: FilterName, make: Callable[[], Device], interfaces: Sequence[str], legs: Legs
    ) -> Callable[[], Device]:
        """Return what makes the device, with a flow cache or classifier before it if asked."""
        plane = DRIVERS[driver][0]
        if (self.flow_cache or self.classifier) and not interfaces:
            raise BadInput(
                "a flow cache is at interfaces: name those that packets are forwarded between", place="--interface"
            )
        if self.classifier and driver is not FilterName.FIREWALL_SERVER:
            raise BadInput("only a firewall server has one: --driver firewall-server", place="--classifier")
        if self.classifier:
            return partial(_classify_in_kernel, make, interfaces, legs, remembers=self.flow_cache)
        return partial(_put_cache_before, make, plane, interfaces, legs) if self.flow_cache else partial(_alone, make)


@dataclass(frozen=True, slots=True)
class Between:
    """Between which interfaces packets are forwarded."""

    outside: Annotated[
        list[str] | None,
        typer.Option("--outside", help="A leg towards the outside: no tenant's source comes in by it."),
    ] = None
    inside: Annotated[
        list[str] | None,
        typer.Option("--inside", help="A leg towards tenants' hosts: only tenants' sources come in by it."),
    ] = None
    interface: Annotated[
        list[str] | None,
        typer.Option(
            "--interface", help="Packets are forwarded between these, whose sources are believed; default: all."
        ),
    ] = None
    guard_only: Annotated[
        bool,
        typer.Option("--guard-only", help="Only write the table that keeps legs from this machine, as at its boot."),
    ] = False

    @property
    def legs(self) -> Legs:
        """The legs that were declared. Raises BadInput."""
        return Legs(tuple(self.outside or ()), tuple(self.inside or ()))

    @property
    def names(self) -> tuple[str, ...]:
        """All interfaces that were named."""
        return (*self.legs.names, *(self.interface or ()))


@dataclass(frozen=True, slots=True)
class Telling:
    """Facts that the service learns of this machine beside what it enforces."""

    load_every: Annotated[float, typer.Option("--load-every", min=0.1, help="Tell the load so often, in seconds.")] = (
        10.0
    )
    count_every: Annotated[
        float, typer.Option("--count-every", min=0.1, help="Read the counters so often, in seconds.")
    ] = Timing().count_every_s
    trial: Annotated[
        bool, typer.Option("--trial", help="One of a fleet: the service has it tried before it gets traffic.")
    ] = False


@taking
def agent(
    enrolling: Enrolling,
    telling: Telling,
    around: Around,
    queueing: Queueing,
    between: Between,
    driver: Annotated[
        FilterName, typer.Option("--driver", help="The packet filter of this machine.")
    ] = FilterName.NFTABLES,
    name: Annotated[str | None, typer.Option("--name", help="The firewall's; by default this machine's.")] = None,
    observe_every: Annotated[
        float, typer.Option("--observe-every", min=0.1, help="Look for foreign changes so often, in seconds.")
    ] = Timing().observe_every_s,
    url: Url = None,
) -> None:
    """Run the agent of a firewall VNF, inside its network namespace. Needs root.

    The first start enrols with the token in ACLFLOW_TOKEN (`aclflow domain invite` makes one for a single machine,
    `aclflow domain group invite` for a group) under the name with which the firewall was brought into its domain
    (`aclflow firewall add`). Its state is kept in ACLFLOW_STATE_DIR: it enforces the last program when it starts while
    the service is away, and forwards nothing while it has none.
    """
    settings = load()
    configure_logging(settings)
    if between.guard_only:
        is_server = driver is FilterName.FIREWALL_SERVER
        leg_guard(between.legs, list_beside(between.names, between.legs, is_server=is_server)).close()
        return
    make = DRIVERS[driver][1]
    if driver is FilterName.QUEUE:
        make = partial(queueing.maker(between.names), legs=between.legs)
    elif queueing != Queueing():
        raise BadInput("only a classifier in user space has queues: --driver queue", place="--driver")
    else:
        make = partial(make, legs=_met_by(driver, between.legs))
    run_agent(
        AgentSettings(
            replace(membership(settings, name, url, enrolling.enrol_file), instance=enrolling.instance_id()),
            DRIVERS[driver][0].value,
            around.device(driver, make, between.names, between.legs),
            between.names,
            Timing(observe_every_s=observe_every, count_every_s=telling.count_every),
            telling.load_every,
            telling.trial,
            between.legs,
            driver is FilterName.FIREWALL_SERVER,
        )
    )


def _met_by(driver: FilterName, legs: Legs) -> Legs:
    """Return the legs as a driver sees them.

    To a firewall server, packets that another one hands over come from outside too.
    """
    if driver is FilterName.FIREWALL_SERVER and legs.names:
        return Legs((*legs.outside, REHOME), legs.inside)
    return legs


def _put_cache_before(make: Callable[[], Device], plane: Plane, interfaces: Sequence[str], legs: Legs) -> Device:
    return Fronted(make(), BpfFront(interfaces, plane, legs=legs))


def _classify_in_kernel(
    make: Callable[[], Device], interfaces: Sequence[str], legs: Legs, *, remembers: bool
) -> Device:
    kernel = KernelClassifier(interfaces, remembers=remembers)
    return Fronted(make(), BpfFront(interfaces, Plane.NFTABLES, kernel, table=CLASSIFIER, legs=legs))


def _write_lists(make: Callable[[], Device], file: Path) -> Device:
    return WithListsFile(make(), file)


def _alone(make: Callable[[], Device]) -> Device:
    """Remove programs of an earlier agent from the interfaces, then make the device.

    They would stay at the earlier agent's policy.
    """
    with suppress(Missing):  # a machine that cannot run one has none
        KernelCache(()).detach()
        KernelClassifier(()).detach()
    return make()
