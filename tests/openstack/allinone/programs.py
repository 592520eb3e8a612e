"""What runs in a set-up: how each program is started, and by which port it is known to be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allinone.place import Place

PYTHON = "/usr/bin/python3"
_PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_TUNED = (  # a database whose contents nobody will miss
    "--skip-networking",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-buffer-pool-size=256M",
    "--innodb-log-file-size=64M",
    "--character-set-server=utf8mb3",
    "--collation-server=utf8mb3_general_ci",
    "--max-connections=400",
    "--performance-schema=OFF",
)
SHARED = ("mysql", "memcached", "rabbit-names", "rabbit")
SERVICES = (
    "keystone",
    "placement",
    "glance",
    "nova-api",
    "nova-conductor",
    "nova-scheduler",
    "nova-compute",
    "neutron",
    "heat-engine",
    "heat-api",
    "heat-cfn",
)


@dataclass(frozen=True, slots=True)
class Program:
    """A command, what it must find in its environment, and the port (by name) it listens on, if any."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: str | None = None


def python_main(module: str, name: str, *arguments: str) -> tuple[str, ...]:
    """A Debian package's `main`, started as its console script would."""
    text = f"import sys; sys.argv[0] = {name!r}; from {module} import main; sys.exit(main())"
    return (PYTHON, "-c", text, *arguments)


def environment(place: Place) -> dict[str, str]:
    """What every Python service finds: the plug-ins of this set-up, and nothing of a virtual environment."""
    return _PATH | {"PYTHONPATH": str(place.root / "plugins"), "VIRTUAL_ENV": "", "no_proxy": place.address}


def program(place: Place, name: str) -> Program:
    """How one is started."""
    if name in SHARED:
        return _shared(place, name)
    if name == "keystone":
        return _web(place, name, "keystone.server.wsgi:initialize_public_application()", 2)
    if name == "placement":
        return _web(place, name, "placement.wsgi:init_application()", 1)
    module, config, port = {
        "glance": ("glance.cmd.api", "glance", "glance"),
        "nova-api": ("nova.cmd.api", "nova", "nova"),
        "nova-conductor": ("nova.cmd.conductor", "nova", None),
        "nova-scheduler": ("nova.cmd.scheduler", "nova", None),
        "nova-compute": ("nova.cmd.compute", "nova", None),
        "neutron": ("neutron.cmd.eventlet.server", "neutron", "neutron"),
        "heat-engine": ("heat.cmd.engine", "heat", None),
        "heat-api": ("heat.cmd.api", "heat", "heat"),
        "heat-cfn": ("heat.cmd.api_cfn", "heat", "heat-cfn"),
    }[name]
    log = () if config in ("glance", "neutron") else ("--log-file", str(place.root / "log" / f"{name}.log"))
    command = python_main(module, name, "--config-file", str(place.config(config)), *log)
    return Program(command, environment(place), port)


def second_compute(place: Place, host: str) -> Program:
    """Another host for virtual machines, on this same machine."""
    config = place.config(f"nova-{host}")
    config.write_text(place.config("nova").read_text().replace("host = one", f"host = {host}"))
    log = str(place.root / "log" / f"nova-compute-{host}.log")
    command = python_main("nova.cmd.compute", "nova-compute", "--config-file", str(config), "--log-file", log)
    return Program(command, environment(place))


def _web(place: Place, name: str, application: str, processes: int) -> Program:
    command = (
        *(
            "uwsgi",
            "--plugin",
            "python3",
            "--http-socket",
            f"{place.address}:{place.ports[name]}",
            "--module",
            application,
        ),
        *("--master", "--die-on-term", "--processes", str(processes), "--threads", "4", "--lazy-apps"),
        *("--buffer-size", "65535", "--disable-logging", "--add-header", "Connection: close"),
    )
    found = {
        "OS_KEYSTONE_CONFIG_FILES": str(place.config("keystone")),
        "OS_PLACEMENT_CONFIG_DIR": str(place.root / "etc"),
    }
    return Program(command, environment(place) | found, name)


def _shared(place: Place, name: str) -> Program:
    run, ports = place.root / "run", place.ports
    if name == "memcached":
        return Program(
            ("memcached", "-u", "root", "-l", place.address, "-p", str(ports[name]), "-m", "64"), _PATH, name
        )
    if name == "rabbit-names":  # started by us, or the message broker would start one that outlives it
        return Program(("epmd", "-address", place.address, "-port", str(ports[name])), _PATH, name)
    if name == "mysql":
        files = (
            f"--datadir={place.root / 'mysql'}",
            f"--socket={place.mysql_socket}",
            f"--pid-file={run / 'mysqld.pid'}",
        )
        return Program(("mariadbd", "--no-defaults", "--user=root", *files, *_TUNED), _PATH)
    found = _PATH | {
        "HOME": str(run),
        "RABBITMQ_NODENAME": f"aclflow{ports['rabbit']}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": place.address,
        "RABBITMQ_NODE_PORT": str(ports["rabbit"]),
        "RABBITMQ_DIST_PORT": str(ports["rabbit-nodes"]),
        "RABBITMQ_CONFIG_FILE": str(place.root / "etc" / "rabbit"),
        "RABBITMQ_MNESIA_BASE": str(place.root / "rabbit"),
        "RABBITMQ_LOG_BASE": str(place.root / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place.root / "etc" / "rabbit_plugins"),
        "RABBITMQ_PID_FILE": str(run / "rabbitmq.pid"),
        "ERL_EPMD_ADDRESS": place.address,
        "ERL_EPMD_PORT": str(ports["rabbit-names"]),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none",
    }
    server = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")) / "sbin" / "rabbitmq-server"
    return Program((str(server),), found, name)
