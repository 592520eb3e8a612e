"""The services' configuration: the files in etc/, filled in for one place."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Template

from allinone.place import PASSWORD, REGION, Place

_HERE = Path(__file__).parent
_DRIVER = _HERE.parents[2] / "networking-aclflow"
_DATABASES = ("keystone", "placement", "glance", "nova_api", "nova", "nova_cell0", "neutron", "heat")
_PARTS = ("authentication", "service_user", "incoming", "common")
_PASTE = Path("/etc/heat/api-paste.ini")
_FILTER = "heat.api.aws.ec2token:EC2Token_filter_factory"


def write_configs(place: Place) -> None:
    """Write every file that a service reads, and the plug-ins that this set-up brings."""
    words = words_of(place)
    for source in sorted((_HERE / "etc").glob("*.conf")):
        place.config(source.stem).write_text(Template(source.read_text()).substitute(words))
    shutil.copytree(_HERE / "plugins", place.root / "plugins", dirs_exist_ok=True)
    _install(place, "instant_bind", {"neutron.ml2.mechanism_drivers": {"instant": "instant_bind:InstantBind"}})
    shutil.copytree(_DRIVER / "networking_aclflow", place.root / "plugins" / "networking_aclflow", dirs_exist_ok=True)
    project = tomllib.loads((_DRIVER / "pyproject.toml").read_text())["project"]
    _install(place, "networking_aclflow", project["entry-points"])
    pipeline = _PASTE.read_text().replace(_FILTER, "webhook_token:factory")
    (place.root / "etc" / "heat-api-paste.ini").write_text(pipeline)


def _install(place: Place, name: str, points: Mapping[str, Mapping[str, str]]) -> None:
    """Make what is among the plug-ins known by its entry points, as pip would."""
    known = place.root / "plugins" / f"{name}-1.0.dist-info"
    known.mkdir(exist_ok=True)
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in points.items())
    (known / "entry_points.txt").write_text("\n".join(groups))


def databases() -> tuple[str, ...]:
    """Those that must be there."""
    return _DATABASES


def rabbit_url(place: Place) -> str:
    """Where the services leave messages for each other."""
    return f"rabbit://guest:guest@{place.address}:{place.ports['rabbit']}/"


def words_of(place: Place) -> dict[str, str]:
    """What is filled into the files of a place."""
    words = {
        "root": str(place.root),
        "address": place.address,
        "region": REGION,
        "password": PASSWORD,
        "keystone": place.keystone,
        "aclflow": place.aclflow,
        "authority": place.authority,
        "glance": place.url("glance"),
        "heat_cfn": place.url("heat-cfn"),
        "memcached": f"{place.address}:{place.ports['memcached']}",
        "rabbit": rabbit_url(place),
    }
    words |= {f"port_{name.replace('-', '_')}": str(port) for name, port in place.ports.items()}
    words |= {f"database_{name}": place.database(name) for name in _DATABASES}
    for part in _PARTS:  # a part may hold those before it
        words[part] = Template((_HERE / "etc" / f"{part}.part").read_text()).substitute(words)
    return words
