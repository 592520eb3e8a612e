"""Databases, their schemas, and what Keystone and Nova must have in them before anything runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from allinone.configs import databases
from allinone.place import PASSWORD, REGION, Place
from allinone.programs import environment, python_main
from allinone.running import NotStartedError

_KEYS = ("--keystone-user", "root", "--keystone-group", "root")


def make_database_files(place: Place) -> None:
    """The database's own files, before its server starts."""
    if not (place.root / "mysql" / "mysql").exists():
        folder = f"--datadir={place.root / 'mysql'}"
        own = ("--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db")
        _run(place, ("mariadb-install-db", own[0], folder, *own[1:]))


def answers(place: Place) -> bool:
    """Whether the database does."""
    return subprocess.run(sql_command(place, "select 1"), capture_output=True, check=False).returncode == 0


def make_schemas(place: Place, keystone_is_there: Callable[[], None]) -> None:
    """Every schema, in two lanes side by side; `keystone_is_there` is called once it can be started."""
    statements = "; ".join(f"create database if not exists {name}" for name in databases())
    _run(place, sql_command(place, statements))
    with ThreadPoolExecutor(2) as lanes:
        first = lanes.submit(_first_lane, place, keystone_is_there)
        second = lanes.submit(_in_turn, place, _second_lane(place))
        first.result()
        second.result()


def _first_lane(place: Place, keystone_is_there: Callable[[], None]) -> None:
    url = place.keystone
    urls = ("--bootstrap-admin-url", url, "--bootstrap-public-url", url, "--bootstrap-internal-url", url)
    identity = [
        _manage(place, "keystone", "db_sync"),
        _manage(place, "keystone", "fernet_setup", *_KEYS),
        _manage(place, "keystone", "credential_setup", *_KEYS),
        _manage(
            place, "keystone", "bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION, *urls
        ),
    ]
    _in_turn(place, identity)
    keystone_is_there()
    others = [_manage(place, "placement", "db", "sync"), _manage(place, "glance", "db_sync")]
    _in_turn(place, [*others, _manage(place, "heat", "db_sync")])


def _second_lane(place: Place) -> list[tuple[str, ...]]:
    return [
        _manage(place, "nova", "api_db", "sync"),
        _manage(place, "nova", "cell_v2", "map_cell0", "--database_connection", place.database("nova_cell0")),
        _manage(place, "nova", "cell_v2", "create_cell", "--name", "one"),
        _manage(place, "nova", "db", "sync"),
        python_main(
            "neutron.db.migration.cli",
            *("neutron-db-manage", "--config-file", str(place.config("neutron")), "upgrade", "heads"),
        ),
    ]


def _manage(place: Place, service: str, *arguments: str) -> tuple[str, ...]:
    config = ("--config-file", str(place.config(service)))
    return python_main(f"{service}.cmd.manage", f"{service}-manage", *config, *arguments)


def sql_command(place: Place, statements: str) -> tuple[str, ...]:
    return ("mariadb", "--no-defaults", "-uroot", "-S", str(place.mysql_socket), "-e", statements)


def _in_turn(place: Place, commands: Iterable[tuple[str, ...]]) -> None:
    for command in commands:
        _run(place, command)


def _run(place: Place, command: tuple[str, ...]) -> None:
    done = subprocess.run(
        command, env=os.environ | environment(place), capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise NotStartedError(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-4000:]}")
