"""The Open vSwitch of this machine: looking at it, and carrying out one transaction."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pyroute2 import IPRoute

from orchestrator.compile.cookies import MARK
from orchestrator.compile.pipelines.host import SERVICES_PORT
from orchestrator.errors import AclflowError, Missing, NotFound, Refused, Unreachable
from orchestrator.hosts.healthchecks import PortCheck, watched_ports
from orchestrator.hosts.polling import AF_XDP, Device
from orchestrator.hosts.switch import Bridge, Seen, Tls, Wanted, refusal, release, steps

RUN_DIR = Path("/run/openvswitch")
_DEVICES, _ONLINE = Path("/sys/class/net"), Path("/sys/devices/system/cpu/online")
_EVERYWHERE = 0
"""The scope of an address that is no link-local one (`RT_SCOPE_UNIVERSE`)."""
_PATIENCE_S = 15
_INSTALL = "apt-get install openvswitch-switch"
_EVERY_VERSION = "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
_RECEIVED = re.compile(r"port +(\d+): rx pkts=(\d+)")
_EVERYTHING_ELSE = "actions=NORMAL"
"""The only flow of a bridge that learns addresses, as every fresh one does that is not secure."""


@dataclass(frozen=True, slots=True)
class Change:
    """The transaction's commands, done or to be done; none where the switch was as wanted."""

    commands: tuple[tuple[str, ...], ...]

    @property
    def changed(self) -> bool:
        return bool(self.commands)


@dataclass(frozen=True, slots=True)
class LocalSwitch:
    """One Open vSwitch, known by the directory of its sockets."""

    run_dir: Path = RUN_DIR

    def look(self, bridge: str, uplink: str = "") -> Seen:
        """The switch as it is. Raises Missing (not installed), Unreachable (not running), Refused."""
        [system] = self._read_rows("Open_vSwitch", "ovs_version,other_config,ssl,iface_types")
        version = self._appctl_version() or str(system["ovs_version"])
        tls = None
        for row in self._read_rows("SSL", "private_key,certificate,ca_cert"):
            tls = Tls(row["private_key"], row["certificate"], row["ca_cert"])
        place = (
            self._run_program(["ovs-vsctl", *self._find_database(), "iface-to-br", uplink], may_fail=True).strip()
            or None
        )
        found = self._read_bridge(bridge) if bridge in self._run_vsctl("list-br").split() else None
        configured = self._read_configured(uplink) if place else {}
        serves = found is not None and SERVICES_PORT in found.ports
        services = self._read_configured(SERVICES_PORT) if serves else {}
        return Seen(
            version,
            system["other_config"],
            tls,
            found,
            place if uplink else None,
            configured,
            services,
            self._read_options(uplink) if place else {},
            read_device(uplink) if uplink else None,
            frozenset(_list_value(system["iface_types"])),
            read_cores(_ONLINE.read_text(encoding="ascii")),
        )

    def configure(self, wanted: Wanted, *, check: bool = False) -> Change:
        """Configure the switch in one transaction; with `check` only report the changes.

        Raises Refused with what to change, Missing, Unreachable.
        """
        seen = self.look(wanted.bridge, wanted.uplink)
        reason = refusal(seen, wanted)
        if reason is not None:
            raise Refused(reason)
        done = self._run_commands(steps(seen, wanted), check=check)
        if not check:
            self._check_bridge(wanted)
            self._check_uplink(wanted.uplink)
        return done

    def release(self, bridge: str, domain: str, *, check: bool = False) -> Change:
        """Give the switch back, closed. Raises Missing, Unreachable, BadInput."""
        return self._run_commands(release(self.look(bridge), bridge, domain), check=check)

    def look_at_checks(self, bridge: str, ports: Sequence[str] = ()) -> list[PortCheck]:
        """Return the health checks of ports; without any, of all that buckets watch.

        Raises NotFound for a port that the switch has not, and what `flows` raises.
        """
        if not self._management(bridge).exists():
            raise Unreachable(f"no switch forwards packets by the bridge '{bridge}' (looked in {self.run_dir})")
        plugged = set(self._run_vsctl("list-ports", bridge).split())
        rows = {row["name"]: row for row in self._read_rows("interface", "name,ofport,bfd,bfd_status")}
        found = {name: rows[name] for name in sorted(plugged & rows.keys())}
        if not ports:
            watched = watched_ports(self._ask_management(bridge, "OpenFlow15", "dump-groups"))
            ports = [name for name, row in found.items() if isinstance(row["ofport"], int) and row["ofport"] in watched]
        for port in ports:
            if port not in found:
                raise NotFound(f"the bridge '{bridge}' has no port '{port}'")
        return [PortCheck(port, found[port]["bfd"], found[port]["bfd_status"]) for port in ports]

    def check_firewalls(self, checks: Sequence[PortCheck], *, check: bool = False) -> Change:
        """Have firewalls behind these ports asked; with `check` only report the changes.

        Raises Missing, Unreachable, Refused.
        """
        return self._run_commands(tuple(words for each in checks for words in each.commands()), check=check)

    def flows(self, bridge: str, table: int) -> list[str]:
        """Read a table's flows, a line each, as `ovs-ofctl` prints them.

        Raises Unreachable while the switch does not answer, Missing where it is not installed.
        """
        if not self._management(bridge).exists():
            raise Unreachable(f"no switch forwards packets by the bridge '{bridge}' (looked in {self.run_dir})")
        return [line for line in self._dump_flows(bridge, "OpenFlow15", f"table={table}") if "cookie=" in line]

    def count_received(self, bridge: str) -> dict[int, int]:
        """Count the frames that came in by each port.

        Ports that the switch does not count are left out. Raises what `flows` raises.
        """
        lines = self._ask_management(bridge, "OpenFlow15", "dump-ports")
        found = (_RECEIVED.search(line) for line in lines)
        return {int(each[1]): int(each[2]) for each in found if each is not None}

    def monitor_command(self, bridge: str, table: int) -> list[str]:
        """The command that prints something whenever a table's flows change, and ends with the switch."""
        return ["ovs-ofctl", "-OOpenFlow15", "monitor", f"unix:{self._management(bridge)}", f"watch:table={table}"]

    # ------------------------------------------------------------------------------------------------ steps

    def _run_commands(self, commands: tuple[tuple[str, ...], ...], *, check: bool) -> Change:
        if commands and not check:
            self._run_vsctl(*join_commands(commands))
        return Change(commands)

    def _check_bridge(self, wanted: Wanted) -> None:
        """Check that the daemon made a bridge.

        `ovs-vsctl` succeeds when the daemon has seen the bridge, even if it could not make it.
        """
        if not self._management(wanted.bridge).exists():
            raise Refused(
                f"ovs-vswitchd cannot make the bridge '{wanted.bridge}' with the datapath '{wanted.datapath.value}': "
                "modprobe openvswitch, or take the datapath 'netdev'; more is in `journalctl -u ovs-vswitchd`"
            )

    def _check_uplink(self, uplink: str) -> None:
        """Raises Refused where the daemon cannot open the uplink."""
        rows = self._read_rows("interface", "name,type,error")
        row = next((row for row in rows if row["name"] == uplink), None)
        said = " ".join(map(str, _list_value(row["error"]))) if row is not None else ""
        if row is None or not said:
            return
        if row["type"] != AF_XDP:
            raise Refused(
                f"the switch is closed, but cannot use the uplink: {said}. Name an interface that the machine has"
            )
        raise Refused(
            f"the switch is closed, but cannot poll the uplink by AF_XDP: {said}. Where the machine has the interface, "
            f"`ovs-vsctl set interface {uplink} options:xdp-mode=generic` needs nothing of its driver; `journalctl -u "
            f"ovs-vswitchd` says more. `ovs-vsctl set interface {uplink} type=system` takes polling back: repeat then "
            "without polling_cores"
        )

    def _read_bridge(self, name: str) -> Bridge:
        columns = "datapath_type,fail_mode,protocols,other_config,external_ids,controller,flow_tables"
        [row] = self._read_rows("bridge", columns, name)
        wanted = set(_list_value(row["controller"]))
        columns = "_uuid,target,connection_mode,max_backoff,inactivity_probe"
        controllers = {
            each["target"]: {key: str(value) for key, value in each.items()}
            for each in self._read_rows("controller", columns)
            if each["_uuid"] in wanted
        }
        texts = {
            name: ",".join(map(str, _list_value(row[name]))) for name in ("datapath_type", "fail_mode", "protocols")
        }
        return Bridge(
            texts,
            row["other_config"],
            row["external_ids"],
            frozenset(self._run_vsctl("list-ports", name).split()),
            controllers,
            self._strange_flows(name),
            self._read_tracked(row["flow_tables"]),
        )

    def _read_configured(self, interface: str) -> dict[str, str]:
        """The type and MAC address that an interface is configured with."""
        [row] = self._read_rows("interface", "type,mac", interface)
        return {key: "".join(map(str, _list_value(value))) for key, value in row.items()}

    def _read_options(self, interface: str) -> dict[str, str]:
        [row] = self._read_rows("interface", "options", interface)
        options: dict[str, str] = row["options"]
        return options

    def _read_tracked(self, tables: dict[int, str]) -> dict[int, frozenset[str]]:
        """The fields whose prefixes are tracked, by table."""
        fields = {
            row["_uuid"]: frozenset(_list_value(row["prefixes"]))
            for row in self._read_rows("Flow_Table", "_uuid,prefixes")
        }
        return {table: fields[uuid] for table, uuid in tables.items()}

    def _strange_flows(self, bridge: str) -> int:
        """Count a bridge's flows that others wrote, without a learning bridge's own.

        None for a bridge that the daemon could not make.
        """
        if not self._management(bridge).exists():
            return 0
        lines = [line.strip() for line in self._dump_flows(bridge, _EVERY_VERSION) if "cookie=" in line]
        return sum(not _is_known(line) for line in lines)

    def _dump_flows(self, bridge: str, versions: str, *words: str) -> list[str]:
        return self._ask_management(bridge, versions, "dump-flows", *words)

    def _ask_management(self, bridge: str, versions: str, question: str, *words: str) -> list[str]:
        command = ["ovs-ofctl", f"--timeout={_PATIENCE_S}", f"-O{versions}", "--no-names", question]
        return self._run_program([*command, f"unix:{self._management(bridge)}", *words]).splitlines()

    def _appctl_version(self) -> str:
        """Return the running daemon's version.

        The database may still hold the version before an upgrade.
        """
        socket = self._daemon()
        if socket is None:
            raise self._make_not_running()
        words = self._run_program(["ovs-appctl", f"--timeout={_PATIENCE_S}", f"--target={socket}", "version"]).split()
        return next((word for word in words if word[:1].isdigit()), "")

    def _management(self, bridge: str) -> Path:
        """Return the daemon's socket for a bridge's flows.

        It exists as long as the daemon forwards packets by the bridge.
        """
        return self.run_dir / f"{bridge}.mgmt"

    def _daemon(self) -> Path | None:
        """Return the newest control socket of `ovs-vswitchd`.

        A daemon that was killed leaves its own behind.
        """
        sockets = self.run_dir.glob("ovs-vswitchd*.ctl")
        return max(sockets, key=lambda path: path.stat().st_mtime_ns, default=None)

    def _make_not_running(self) -> Unreachable:
        return Unreachable(f"ovs-vswitchd does not run: systemctl start openvswitch-switch (looked in {self.run_dir})")

    def _read_rows(self, table: str, columns: str, record: str | None = None) -> list[dict[str, Any]]:
        words = ["--format=json", f"--columns={columns}", "list", table, *([record] if record else [])]
        document = orjson.loads(self._run_vsctl(*words))
        return [dict(zip(document["headings"], map(_plain, row), strict=True)) for row in document["data"]]

    def _run_vsctl(self, *words: str) -> str:
        return self._run_program(["ovs-vsctl", *self._find_database(), *words])

    def _find_database(self) -> tuple[str, str]:
        return f"--timeout={_PATIENCE_S}", f"--db=unix:{self.run_dir / 'db.sock'}"

    def _run_program(self, command: list[str], *, may_fail: bool = False) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=4 * _PATIENCE_S)
        except FileNotFoundError:
            raise Missing(f"the program '{command[0]}' is not installed: {_INSTALL}") from None
        except OSError as error:
            raise Missing(f"the program '{command[0]}' cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{command[0]} does not answer") from None
        if done.returncode and not may_fail:
            said = done.stderr.strip() or f"exit status {done.returncode}"
            raise self._make_error(command[0], said)
        return "" if done.returncode else done.stdout

    def _make_error(self, program: str, said: str) -> AclflowError:
        if "(Permission denied)" in said:
            return Missing(f"Open vSwitch in {self.run_dir} is not ours to change: do it as root. {said}")
        if "database connection failed" in said:
            return Unreachable(f"Open vSwitch's database does not answer in {self.run_dir}: is it running? {said}")
        if "cannot connect to" in said or "failed to connect to socket" in said:
            return self._make_not_running()
        if "Alarm clock" in said:
            return Unreachable(
                f"{program} got no answer from ovs-vswitchd in {_PATIENCE_S} s: its journal says why (journalctl -u "
                "ovs-vswitchd); repeat when it answers"
            )
        return Refused(f"{program}: {said}")


def join_commands(commands: Iterable[Sequence[str]]) -> list[str]:
    """Return the words by which `ovs-vsctl` carries out commands in one transaction."""
    return [word for command in commands for word in ("--", *command)]


def read_device(name: str) -> Device | None:
    """Return what the kernel says of an interface; None where it has none."""
    folder = _DEVICES / name
    try:
        mtu = int((folder / "mtu").read_text(encoding="ascii"))
        queues = sum(each.name.startswith("rx-") for each in (folder / "queues").iterdir())
    except (OSError, ValueError):
        return None
    with IPRoute() as kernel:
        found = [each for index in kernel.link_lookup(ifname=name) for each in kernel.get_addr(index=index)]
    addresses = (each.get_attr("IFA_ADDRESS") for each in found if each["scope"] == _EVERYWHERE)
    return Device(queues, mtu, tuple(addresses))


def read_cores(text: str) -> frozenset[int]:
    """Return the numbers in a list of the kernel's, as in `0-3,5`."""
    spans = (each.partition("-") for each in text.strip().split(",") if each)
    return frozenset(core for first, _, last in spans for core in range(int(first), int(last or first) + 1))


def _is_known(flow: str) -> bool:
    cookie = int(flow.split("cookie=", 1)[1].split(",", 1)[0], 16)
    return cookie >> 56 == MARK or ("priority=0" in flow and flow.endswith(_EVERYTHING_ELSE))


def _plain(value: Any) -> Any:
    """A value of OVSDB's JSON: sets as lists, maps as dicts, UUIDs as texts."""
    match value:
        case ["map", pairs]:
            return {key: _plain(item) for key, item in pairs}
        case ["set", items]:
            return [_plain(item) for item in items]
        case ["uuid", text]:
            return text
        case _:
            return value


def _list_value(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value != "" else []
