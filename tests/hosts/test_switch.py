"""What a host's switch must be: one transaction leads there from anything, and a second one has nothing to do."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.hostsetup import SwitchOptions
from orchestrator.errors import BadInput
from orchestrator.hosts.ovs import read_cores, read_device
from orchestrator.hosts.polling import AF_XDP, POLLERS, Device
from orchestrator.hosts.request import Machine, Onboarding, merge_rules
from orchestrator.hosts.switch import (
    MADE,
    OFFLOADS,
    OWNER,
    Bridge,
    Datapath,
    Seen,
    Tls,
    Wanted,
    datapath_of,
    refusal,
    release,
    steps,
)

TLS = Tls("/k", "/c", "/a")
DEVICE = Device(receive_queues=2, mtu=1500)
TARGETS = ("tcp:192.0.2.1:6653", "ssl:[2001:db8::1]:6653", "tcp:192.0.2.2:6653")

anything = st.builds(
    Wanted,
    domain=st.sampled_from(["pop1", "pop2"]),
    host=st.sampled_from(["host1", "host2"]),
    uplink=st.sampled_from(["eth1", "eth2"]),
    controllers=st.lists(st.sampled_from(TARGETS), min_size=1, max_size=3, unique=True).map(tuple),
    bridge=st.just("br"),
    datapath=st.sampled_from(Datapath),
    max_idle_ms=st.sampled_from([1, 60_000]),
    offloads=st.sampled_from([None, True, False]),
    tls=st.just(TLS),
    adopt=st.booleans(),
    is_routed=st.booleans(),
)
polled = st.builds(
    lambda each, cores: replace(each, datapath=Datapath.NETDEV, is_routed=False, polling_cores=tuple(cores)),
    anything,
    st.lists(st.integers(0, 3), min_size=1, unique=True),
)
wanted = anything | polled


class Database:
    """Open vSwitch's database as the commands of `steps` and `release` change it."""

    def __init__(self, seen: Seen) -> None:
        bridge = seen.bridge
        self.version, self.config, self.tls = seen.version, dict(seen.other_config), seen.tls
        self.interfaces: dict[str, dict[str, str]] = {}
        self.options: dict[str, dict[str, str]] = {}
        self.bridge: dict[str, object] | None = None
        self.secure_always = bridge is None or bridge.columns.get("fail_mode") == "secure"
        if bridge is not None:
            self.bridge = {
                "columns": dict(bridge.columns),
                "other_config": dict(bridge.other_config),
                "external_ids": dict(bridge.external_ids),
                "ports": set(bridge.ports),
                "controllers": {key: dict(value) for key, value in bridge.controllers.items()},
                "flow_tables": {str(key): value for key, value in bridge.tracked.items()},
            }

    def run(self, commands: tuple[tuple[str, ...], ...]) -> None:
        rows: dict[str, dict[str, str]] = {}
        for words in commands:
            match words:
                case ("add-br", _):
                    self.bridge = {
                        "columns": {}, "other_config": {}, "external_ids": {}, "ports": set(), "controllers": {},
                        "flow_tables": {},
                    }  # fmt: skip
                case ("set", "bridge", _, *changes):
                    for change in changes:
                        self._set(change, rows)
                case ("set", "Open_vSwitch", ".", change):
                    key, value = change.removeprefix("other_config:").split("=")
                    self.config[key] = value
                case ("set-ssl", key, certificate, authority):
                    self.tls = Tls(key, certificate, authority)
                case ("add-port", _, port) | ("set", "interface", port, *_):
                    self._plug(port, words[3:])
                case (name, "create", "controller" | "Flow_Table", *columns):
                    rows[name.removeprefix("--id=")] = dict(each.split("=", 1) for each in columns)
                case ("del-br", _):
                    self.bridge = None
                case ("del-controller", _):
                    self.bridge["controllers"] = {}
                case ("remove", "bridge", _, column, key):
                    del self.bridge[column][key]
                case _:
                    raise AssertionError(words)

    def _plug(self, port: str, changes: tuple[str, ...]) -> None:
        self.bridge["ports"].add(port)
        known = self.interfaces.setdefault(port, {"type": "", "mac": ""})
        options = self.options.setdefault(port, {})
        for change in changes:
            name, value = change.replace('"', "").split("=", 1)
            if name.startswith("options:"):
                options[name.removeprefix("options:")] = value
            else:
                known[name] = value

    def _set(self, change: str, rows: dict[str, dict[str, str]]) -> None:
        name, value = change.split("=", 1)
        if name == "controller":
            chosen = [rows[each] for each in value.strip("[]").split(",")]
            self.bridge["controllers"] = {row["target"].strip('"'): row for row in chosen}
        elif name.startswith("flow_tables:"):
            fields = rows[value]["prefixes"].split(",")
            self.bridge["flow_tables"][name.removeprefix("flow_tables:")] = frozenset(fields)
        elif ":" in name:
            column, key = name.split(":")
            self.bridge[column][key] = value
        else:
            self.bridge["columns"][name] = value

    def seen(self, uplink: str = "") -> Seen:
        bridge = None
        if self.bridge is not None:
            bridge = Bridge(
                self.bridge["columns"], self.bridge["other_config"], self.bridge["external_ids"],
                frozenset(self.bridge["ports"]), self.bridge["controllers"], 0,
                {int(key): value for key, value in self.bridge["flow_tables"].items()},
            )  # fmt: skip
        return Seen(
            self.version, self.config, self.tls, bridge, None, self.interfaces.get(uplink, {}),
            uplink_options=self.options.get(uplink, {}), device=DEVICE,
        )  # fmt: skip


@given(st.lists(wanted, min_size=1, max_size=3))
def test_from_anything_one_transaction_leads_there_and_the_next_does_nothing(story: list[Wanted]) -> None:
    database = Database(Seen("3.1.0"))
    for each in story:
        database.run(steps(database.seen(each.uplink), each))
        after = database.seen(each.uplink)
        assert steps(after, each) == ()
        if each.is_routed:
            assert after.uplink == {"type": "internal", "mac": "0a:ac:1f:00:00:01"}
        assert after.bridge is not None
        assert after.bridge.owner == each.domain
        assert after.bridge.columns["fail_mode"] == "secure"
        assert after.bridge.columns["protocols"] == "OpenFlow15"
        assert set(after.bridge.controllers) == set(each.controllers)
        assert int(after.bridge.other_config["datapath-id"], 16) == datapath_of(each.domain, each.host)
        assert each.uplink in after.bridge.ports
        assert after.other_config["max-idle"] == str(each.max_idle_ms)
        if each.polling_cores:
            assert after.uplink["type"] == AF_XDP
            assert after.uplink_options == {"n_rxq": "2"}, "a queue that nobody reads loses its packets"
            assert int(after.other_config[POLLERS], 16) == sum(1 << core for core in each.polling_cores)
        if each.offloads is not None:
            assert (after.other_config.get(OFFLOADS) == "true") is each.offloads


@given(wanted, st.booleans())
def test_given_back_nothing_is_left_that_could_forward(each: Wanted, was_there: bool) -> None:
    before = Bridge({"fail_mode": "standalone"}, {}, {}, frozenset({"vm1"}), {}, 3) if was_there else None
    database = Database(Seen("3.1.0", bridge=before))
    database.run(steps(database.seen(), each))
    database.run(release(database.seen(), "br", each.domain))
    after = database.seen().bridge
    if not was_there:
        assert after is None
    else:
        assert after is not None
        assert after.columns["fail_mode"] == "secure"
        assert not after.controllers
        assert OWNER not in after.external_ids
        assert MADE not in after.external_ids
        assert "vm1" in after.ports
    assert release(database.seen(), "br", each.domain) == ()


def test_offloads_that_nobody_asked_about_stay_as_they_are() -> None:
    offloading = Seen("3.1.0", other_config={OFFLOADS: "true"})
    for seen, offloads, said in (
        (offloading, None, []), (offloading, True, []), (offloading, False, ["false"]),
        (Seen("3.1.0"), None, []), (Seen("3.1.0"), True, ["true"]), (Seen("3.1.0"), False, []),
    ):  # fmt: skip
        found = [word.partition(f"{OFFLOADS}=")[2] for words in steps(seen, replace(ONE, offloads=offloads))
                 for word in words if OFFLOADS in word]  # fmt: skip
        assert found == said


ONE = Wanted("pop1", "host1", "eth1", TARGETS[:1], bridge="br")
POLLED = replace(ONE, datapath=Datapath.NETDEV, polling_cores=(1, 2))
POLLABLE = Seen("3.1.0", device=DEVICE, interface_types=frozenset({AF_XDP, "system"}), cores=frozenset(range(4)))


def _polling(seen: Seen, each: Wanted) -> set[str]:
    """The changes of what polls the uplink, and how."""
    words = {word for command in steps(seen, each) for word in command}
    return {word for word in words if POLLERS in word or word.startswith(("type=", "options:"))}


def test_cores_poll_the_uplink_where_that_is_asked_for() -> None:
    mask = f"other_config:{POLLERS}=0x6"
    assert _polling(POLLABLE, POLLED) == {mask, "type=afxdp", "options:n_rxq=2"}
    assert _polling(replace(POLLABLE, device=None), POLLED) == {mask, "type=afxdp", "options:n_rxq=1"}
    for seen in ("6", "0x6", "0X06"):
        done = replace(
            POLLABLE, other_config={POLLERS: seen}, uplink={"type": AF_XDP, "mac": ""}, uplink_options={"n_rxq": "2"}
        )
        assert _polling(done, POLLED) == set(), "a mask is a number, however it is written"
    assert _polling(replace(done, other_config={POLLERS: "no mask"}), POLLED) == {mask}
    assert _polling(replace(done, uplink_options={"n_rxq": "1"}), POLLED) == {"options:n_rxq=2"}


def test_what_an_operator_set_by_hand_stays() -> None:
    tuned = {"n_rxq": "2", "xdp-mode": "generic"}
    for kind, each in product(("dpdk", AF_XDP), (ONE, replace(ONE, datapath=Datapath.NETDEV))):
        seen = Seen("3.1.0", other_config={POLLERS: "0x3"}, uplink={"type": kind, "mac": ""}, uplink_options=tuned)
        assert _polling(seen, each) == set(), "nobody asked for anything"
    assert _polling(replace(seen, device=DEVICE), POLLED) == {f"other_config:{POLLERS}=0x6"}


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (replace(POLLABLE, interface_types=frozenset({"system"})), "built without AF_XDP"),
        (replace(POLLABLE, cores=frozenset({0, 2})), "no core 1 that is online; it has 0, 2"),
        (replace(POLLABLE, uplink={"type": "dpdk", "mac": ""}), "has the type 'dpdk'"),
        (replace(POLLABLE, device=Device(1, 9000)), "an MTU of 9000"),
        (replace(POLLABLE, device=Device(17, 1500)), "17 receive queues"),
        (replace(POLLABLE, device=Device(1, 1500, ("192.0.2.11",))), "has the machine's address 192.0.2.11"),
    ],
)
def test_an_uplink_that_no_core_can_poll_is_refused_with_what_to_change(seen: Seen, says: str) -> None:
    said = refusal(seen, POLLED) or ""
    assert says in said
    assert said.startswith("polling_cores: ")
    assert refusal(seen, replace(POLLED, polling_cores=())) is None
    for device in (None, Device(16, 3500)):
        assert refusal(replace(POLLABLE, device=device), POLLED) is None


def a_bridge(owner: str | None = None, flows: int = 0, ports: frozenset[str] = frozenset()) -> Bridge:
    return Bridge({}, {}, {OWNER: owner} if owner else {}, ports, {}, flows)


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (Seen("2.13.3"), "too old"),
        (Seen("unknown"), "too old"),
        (Seen("3.1.0", place_of_uplink="br-ex"), "del-port eth1"),
        (Seen("3.1.0", bridge=a_bridge(flows=2)), "2 flows of somebody"),
        (Seen("3.1.0", bridge=a_bridge(ports=frozenset({"vm1"}))), "1 ports"),
        (Seen("3.1.0", bridge=a_bridge(owner="pop2")), "remove the host there first"),
    ],
)
def test_what_must_not_be_touched_is_refused_with_what_to_change(seen: Seen, says: str) -> None:
    assert says in (refusal(seen, ONE) or "")


def test_an_interface_of_the_machine_is_not_made_the_routed_uplink() -> None:
    routed = Wanted("pop1", "host1", "eth1", TARGETS[:1], bridge="br", is_routed=True)
    held = Seen("3.1.0", bridge=a_bridge(owner="pop1"), place_of_uplink="br", uplink={"type": "", "mac": ""})
    assert "--uplink up0" in (refusal(held, routed) or "")
    assert refusal(replace(held, uplink={"type": "internal", "mac": ""}), routed) is None
    assert refusal(held, ONE) is None


def test_somebodys_bridge_is_taken_over_only_where_that_is_said_and_another_domains_never() -> None:
    adopting = Wanted("pop1", "host1", "eth1", TARGETS[:1], bridge="br", adopt=True)
    assert refusal(Seen("3.1.0", bridge=a_bridge(flows=2)), adopting) is None
    assert refusal(Seen("3.1.0", bridge=a_bridge(owner="pop2")), adopting) is not None
    assert refusal(Seen("3.1.0", bridge=a_bridge(owner="pop1", flows=2)), ONE) is None
    for version in ("3.1.0", "3.10.1", "10.0.0"):
        assert refusal(Seen(version), ONE) is None
    with pytest.raises(BadInput, match="pop2"):
        release(Seen("3.1.0", bridge=a_bridge(owner="pop2")), "br", "pop1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"uplink": "an interface"},
        {"uplink": "{{7}}"},
        {"uplink": "--if-exists"},
        {"ports": ("eth1", "a=b")},
        {"bridge": ""},
        {"controllers": ()},
        {"controllers": ("tcp:192.0.2.1",)},
        {"controllers": ("tcp:192.0.2.1:66530",)},
        {"controllers": ("tcp:192.0.2.1:0",)},
        {"controllers": ("tcp:192.0.2.1000:6653",)},
        {"controllers": ("tcp:2001:db8::1:6653",)},
        {"controllers": ("tcp:[2001:db8:::1]:6653",)},
        {"controllers": ("tcp:control1.example.org:6653",)},
        {"controllers": ("ssl:192.0.2.1:6653",)},
        {"max_idle_ms": 0},
        {"polling_cores": (1,)},
        {"polling_cores": (1,), "datapath": Datapath.NETDEV, "is_routed": True},
        {"polling_cores": (-1,), "datapath": Datapath.NETDEV},
        {"polling_cores": (1, 1024), "datapath": Datapath.NETDEV},
        {"polling_cores": (1, 2, 1), "datapath": Datapath.NETDEV},
    ],
)
def test_what_cannot_be_wanted_is_refused_with_its_place(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput) as caught:
        Wanted(**{"domain": "pop1", "host": "h", "uplink": "eth1", "controllers": TARGETS[:1], **wrong})
    assert (caught.value.place or "").startswith((*wrong, "tls"))


@pytest.mark.parametrize(("text", "cores"), [("1", (1,)), ("1,2", (1, 2)), ("3, 0", (3, 0)), (None, ())])
def test_cores_are_named_by_their_numbers(text: str | None, cores: tuple[int, ...]) -> None:
    options = SwitchOptions([TARGETS[0]], uplink="eth1", datapath=Datapath.NETDEV, polling_cores=text)
    assert options.to_wanted("pop1", "host1").polling_cores == cores


@pytest.mark.parametrize("text", ["", "1,", "0x6", "1-2", "-1", "one", "²"])
def test_what_is_no_list_of_cores_is_refused(text: str) -> None:
    options = SwitchOptions([TARGETS[0]], uplink="eth1", datapath=Datapath.NETDEV, polling_cores=text)
    with pytest.raises(BadInput, match="as in 1,2") as caught:
        options.to_wanted("pop1", "host1")
    assert caught.value.place == "--polling-cores"


def test_the_kernel_says_which_cores_and_queues_there_are() -> None:
    assert read_cores("0-3,5\n") == {0, 1, 2, 3, 5}
    assert read_cores("0\n") == {0}
    assert read_device("lo") == Device(1, 65536)
    assert read_device("none-such") is None


def test_essential_services_become_rules_once() -> None:
    asked = Onboarding(Machine("192.0.2.11"), ONE, None, {"dns": ("192.0.2.53",), "dhcp": ("192.0.2.67",)})
    rules = tuple(asked.rules())
    assert len(rules) == 2 * (2 + 1)
    assert merge_rules(merge_rules((), rules), rules) == rules
    with pytest.raises(BadInput, match=r"essential_services\.dns\[0\]"):
        Onboarding(Machine("192.0.2.11"), ONE, None, {"dns": ("nonsense",)})
    with pytest.raises(BadInput, match="none of dhcp, dns, ntp"):
        Onboarding(Machine("192.0.2.11"), ONE, None, {"smtp": ("192.0.2.25",)})


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "a b", "{{ 7 }}", ""])
def test_an_address_is_nothing_that_a_program_would_take_for_something_else(address: str) -> None:
    with pytest.raises(BadInput):
        Machine(address)
