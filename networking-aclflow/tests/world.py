"""A Neutron database in a file, and a service in memory that heeds versions as the real one does."""

from __future__ import annotations

import atexit
import datetime as dt
import itertools
import shutil
import tempfile
import types
from dataclasses import dataclass, field

from neutron.common import config as _config  # noqa: F401  # options of Neutron
from neutron.db import models_v2
from neutron.db.migration.models import head  # noqa: F401  # every table there is
from neutron.db.models import allowed_address_pair, provisioning_block, segment
from neutron.db.rbac_db_models import NetworkRBAC
from neutron.plugins.ml2 import models as ml2_models
from neutron_lib import context as n_context
from neutron_lib.db import api as db_api
from neutron_lib.db import model_base
from oslo_config import cfg
from oslo_db import options as db_options

from networking_aclflow import journal
from networking_aclflow.service import Changed, Endpoint, Refused, Unreachable

PHYSICAL = "aclflow"
FOLDER = tempfile.mkdtemp(prefix="networking-aclflow-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
db_options.set_defaults(cfg.CONF)
cfg.CONF.set_override("connection", f"sqlite:///{FOLDER}/neutron.db", "database")
_numbers = itertools.count(1)


def fresh_database() -> None:
    """Empty every table, after making them where that was not done."""
    model_base.BASEV2.metadata.create_all(db_api.CONTEXT_WRITER.get_engine())
    with writing() as session:
        for table in reversed(model_base.BASEV2.metadata.sorted_tables):
            session.execute(table.delete())


def writing():
    """Begin a transaction on the database."""
    return db_api.CONTEXT_WRITER.using(n_context.get_admin_context())


def new_id() -> str:
    return f"00000000-0000-4000-8000-{next(_numbers):012x}"


def add_network(project: str, cidr: str, *, physical: str = PHYSICAL, shared: bool = False) -> tuple[str, str]:
    """Make a network with a subnet; the ids of both."""
    network, subnet = new_id(), new_id()
    with writing() as session:
        session.add(models_v2.Network(id=network, project_id=project, admin_state_up=True, status="ACTIVE"))
        session.add(
            segment.NetworkSegment(id=new_id(), network_id=network, network_type="vlan", physical_network=physical)
        )
        made = models_v2.Subnet(id=subnet, network_id=network, project_id=project, cidr=cidr, ip_version=4)
        session.add(made)
        if shared:
            session.flush()
            row = {"object_id": network, "project_id": project, "target_project": "*", "action": "access_as_shared"}
            session.execute(NetworkRBAC.__table__.insert().values(id=new_id(), **row))  # its class asks the plugin
    return network, subnet


def add_port(
    project: str,
    network: str,
    subnet: str,
    address: str,
    *,
    host: str = "h1",
    pairs: tuple[str, ...] = (),
    driver: str = "aclflow",
) -> str:
    """Make a port, bound where there is a host, and note it."""
    port, number = new_id(), next(_numbers)
    mac = f"fa:16:3e:00:{number >> 8:02x}:{number & 255:02x}"
    with writing() as session:
        made = models_v2.Port(
            id=port,
            project_id=project,
            network_id=network,
            mac_address=mac,
            admin_state_up=True,
            status="DOWN",
            device_id="",
            device_owner="",
        )
        session.add(made)
        session.flush()
        made.standard_attr.created_at = dt.datetime(2026, 1, 1) + dt.timedelta(seconds=number)
        session.add(models_v2.IPAllocation(port_id=port, ip_address=address, subnet_id=subnet, network_id=network))
        for pair in pairs:
            session.add(allowed_address_pair.AllowedAddressPair(port_id=port, mac_address=mac, ip_address=pair))
        if host:
            session.add(ml2_models.PortBinding(port_id=port, host=host, vif_type="ovs", status="ACTIVE"))
            session.add(ml2_models.PortBindingLevel(port_id=port, host=host, level=0, driver=driver))
            session.add(provisioning_block.ProvisioningBlock(standard_attr_id=made.standard_attr_id, entity="aclflow"))
        journal.note(session, journal.PORT, port)
    return port


def add_block(port: str, entity: str) -> None:
    """Have somebody else hold a port back, too."""
    with writing() as session:
        made = session.query(models_v2.Port).filter_by(id=port).one()
        session.add(provisioning_block.ProvisioningBlock(standard_attr_id=made.standard_attr_id, entity=entity))


def remove_blocks(port: str) -> None:
    """Have nobody hold a port back."""
    with writing() as session:
        made = session.query(models_v2.Port).filter_by(id=port).one()
        blocks = session.query(provisioning_block.ProvisioningBlock)
        blocks.filter_by(standard_attr_id=made.standard_attr_id).delete()


def move_port(port: str, host: str) -> None:
    """Activate a port's binding on another host, as the end of a live migration does."""
    with writing() as session:
        session.query(ml2_models.PortBinding).filter_by(port_id=port).update({"status": "INACTIVE"})
        session.add(ml2_models.PortBinding(port_id=port, host=host, vif_type="ovs", status="ACTIVE"))
        session.add(ml2_models.PortBindingLevel(port_id=port, host=host, level=0, driver="aclflow"))


def status_of(port: str) -> str:
    """Whether a port is active."""
    with writing() as session:
        return session.query(models_v2.Port).filter_by(id=port).one().status


def remove_port(port: str) -> None:
    """Take a port away, with all that hangs on it, and note it."""
    with writing() as session:
        for model in (
            ml2_models.PortBindingLevel,
            ml2_models.PortBinding,
            models_v2.IPAllocation,
            allowed_address_pair.AllowedAddressPair,
        ):
            session.execute(model.__table__.delete().where(model.port_id == port))
        session.execute(models_v2.Port.__table__.delete().where(models_v2.Port.id == port))
        journal.note(session, journal.PORT, port)


def journal_rows() -> list[tuple[str, str, str | None]]:
    """What the journal holds."""
    with writing() as session:
        return [(row.kind, row.resource, row.error) for row in session.query(journal.JournalRow).order_by("id")]


def blocked() -> int:
    """How many times ports are held back."""
    with writing() as session:
        return session.query(provisioning_block.ProvisioningBlock).count()


@dataclass
class FakeService:
    """Tenants and endpoints with versions. `before_write` is called once before the next change of an endpoint."""

    held: dict[str, tuple[Endpoint, int]] = field(default_factory=dict)
    owned: dict[str, tuple[frozenset[str], int]] = field(default_factory=dict)
    there: dict[str, set[str]] = field(default_factory=dict)
    away: bool = False
    refuses: set[str] = field(default_factory=set)
    needed: dict[str, set[str]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    before_write: list = field(default_factory=list)

    def _asked(self) -> None:
        if self.away:
            raise Unreachable("away")

    def endpoint(self, _domain, name):
        self._asked()
        found = self.held.get(name)
        return (None, "") if found is None else (found[0], str(found[1]))

    def endpoints(self, _domain):
        self._asked()
        return {name: each for name, (each, _) in self.held.items()}

    def put_endpoint(self, domain, wanted, version):
        self._change(wanted.name, version)
        if wanted.name in self.refuses:
            raise Refused("no")
        owned = self.owned[wanted.tenant][0]
        assert owned, "an endpoint's tenant owns its prefixes"
        self.held[wanted.name] = wanted, self.held.get(wanted.name, (None, 0))[1] + 1
        self.writes.append(f"put {wanted.name}")

    def remove_endpoint(self, _domain, name, version):
        self._change(name, version)
        self.held.pop(name, None)
        self.writes.append(f"remove {name}")

    def _change(self, name, version):
        self._asked()
        if self.before_write:
            self.before_write.pop()()
        if str(self.held.get(name, (None, ""))[1]) != version:
            raise Changed(name)

    def in_force(self, _domain, host):
        self._asked()
        return frozenset(self.there.get(host, ()))

    def hosts(self, _domain):
        self._asked()
        return frozenset(self.there)

    def tenants(self, _domain):
        self._asked()
        return {name: prefixes for name, (prefixes, _) in self.owned.items()}

    def prefixes(self, tenant):
        self._asked()
        found = self.owned.get(tenant)
        return None if found is None else (found[0], str(found[1]))

    def create_tenant(self, _domain, tenant, prefixes):
        self._asked()
        self.owned[tenant] = prefixes, 1

    def set_prefixes(self, tenant, prefixes, version):
        self._asked()
        assert version == str(self.owned[tenant][1])
        if not self.needed.get(tenant, set()) <= prefixes:
            raise Refused("a rule needs it")
        self.owned[tenant] = prefixes, self.owned[tenant][1] + 1


def settings() -> types.SimpleNamespace:
    return types.SimpleNamespace(
        domain="cloud", physical_networks=[PHYSICAL], compare_interval=1e9, poll_interval=0.1, address_scope=None
    )
