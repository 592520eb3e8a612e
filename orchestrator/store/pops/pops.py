"""Points of presence: edge switches, firewall servers, their tenants, and the lines.

It also tells where packets from outside went, by the cookies that edge switches count.

Everything that an edge's program is made of moves the domain's generation, in the same transaction. Places and lines
follow from the rest; they are kept, for what stands is not to change without need.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
from sqlalchemy import Row, bindparam, delete, insert, select, update

from orchestrator.compile.cookies import HIGHEST_NUMBER, Cookie, Kind
from orchestrator.edge.settings import EdgeSettings
from orchestrator.errors import Conflict, NotFound
from orchestrator.placement.heavy import HeavyChoice, HeavySettings
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import RuleId, TenantId, check_name
from orchestrator.policy.prefilter import Misdirect
from orchestrator.program.counts import Counts
from orchestrator.program.program import Tier
from orchestrator.store.events import Events
from orchestrator.store.hits.history import HitHistory
from orchestrator.store.hostrows import add_switch, switch_rows, take_out_switch
from orchestrator.store.policycache import KnownPop
from orchestrator.store.pops.poprecords import (
    Counted,
    EdgeCounts,
    HeavyRecord,
    LinesRecord,
    NewServer,
    Pop,
    PopServer,
    PopSettings,
    ServerState,
)
from orchestrator.store.records import HostRecord
from orchestrator.store.schema.core import tenants
from orchestrator.store.schema.firewalls import EDGE, pop_heavy, pop_lines, pop_places, pop_servers, pops
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction, expect

_OF_DOMAIN = Prepared(select(pops.c.name).where(pops.c.domain == bindparam("of_domain")))
_KIND_SHIFT = np.uint64(48)


class Pops:
    """The repository of points of presence."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    @property
    def writing(self) -> bool:
        """Whether this transaction may change anything."""
        return self._tx.writing

    # ------------------------------------------------------------------------------------------------------ PoPs

    def add(self, name: str, domain: str, settings: PopSettings) -> int:
        """Give a domain its PoP; the generation at which its edge is to hold something.

        Raises NotFound, BadInput, and Conflict for a name that is taken and a domain that has one.
        """
        check_name(name, "a PoP's name", place="name")
        self._tx.domain(domain)
        taken = select(pops).where((pops.c.name == name) | (pops.c.domain == domain)).limit(1)
        other = self._tx.read(taken).one_or_none()
        if other is not None and other.name == name:
            raise Conflict(f"there is already a PoP '{name}'", place="name")
        if other is not None:
            raise Conflict(f"the domain has a PoP already, '{other.name}'", place="domain")
        body = _write_settings(settings)
        self._tx.write(
            insert(pops).values(name=name, domain=domain, version=1, body=body, next_server=1, chosen=self._tx.micros)
        )
        return self._tx.bump_for_placement(domain)

    def remove(self, name: str, *, expected_version: int | None = None) -> int:
        """Remove a PoP; return the domain's new generation.

        Raises NotFound, Stale, and Conflict while it has switches.
        """
        row = self._read_row(name)
        expect(expected_version, row.version)
        edges = ", ".join(edge.name for edge in self.edges(row.domain))
        if edges:
            raise Conflict(f"the PoP still has edge switches ({edges}): first `aclflow pop edge remove {name} NAME`")
        self._tx.write(delete(pops).where(pops.c.name == name))
        return self._tx.bump_for_placement(row.domain)

    def list(self, *, limit: int = 100, marker: str | None = None) -> tuple[Pop, ...]:
        """PoPs in the order of their names, those after `marker`."""
        statement = select(pops.c.name).order_by(pops.c.name).limit(limit)
        if marker is not None:
            statement = statement.where(pops.c.name > marker)
        return tuple(self.get(name) for name in self._tx.read(statement).scalars().all())

    def get(self, name: str) -> Pop:
        """Return a PoP. Raises NotFound."""
        row = self._read_row(name)
        servers = self._tx.read(select(pop_servers).where(pop_servers.c.pop == name).order_by(pop_servers.c.number))
        places = self._tx.read(select(pop_places).where(pop_places.c.pop == name))
        return Pop(
            name=name,
            domain=row.domain,
            version=row.version,
            settings=_read_settings(row.body),
            edges=self.edges(row.domain),
            servers=tuple(PopServer(s.number, s.name, s.port, s.mac, ServerState(s.state)) for s in servers),
            places=MappingProxyType({place.tenant: place.server for place in places}),
            lines=self._read_line_digests(name),
            heavy=self._read_heavy(name),
            chosen=from_micros(row.chosen),
        )

    def of_domain(self, domain: str) -> Pop | None:
        """A domain's PoP as programs are made of it, if it has one. Raises NotFound.

        From memory where its generation is known, or where this transaction changed nothing but access lists since: so
        its edge switches, and when heavy hitters were chosen last, may be those of an earlier time.
        """
        tx, generation = self._tx, int(self._tx.domain(domain).generation)
        others = tx.reshaped, tx.touched, tx.placed, tx.replaced
        moved, other = domain in tx.generations, any(domain in each for each in others)
        seen = tx.pops.get(domain)
        if seen is not None and seen.generation == generation and not other:
            return seen.pop
        known, before = tx.known_pops.get(domain), generation - tx.stride if moved else generation
        if known is not None and known.generation == before and (moved or not tx.writing) and not other:
            pop = known.pop
        else:
            row = tx.row(_OF_DOMAIN, of_domain=domain)
            pop = None if row is None else self.get(row.name)
        if moved or not tx.writing:  # a writer that has not moved the generation may have changed rows already
            tx.pops[domain] = KnownPop(generation, pop)
        return pop

    def set_settings(self, name: str, settings: PopSettings, *, expected_version: int | None = None) -> int:
        """Lay a PoP out differently; the domain's generation. Raises NotFound, Stale."""
        row = self._read_row(name)
        expect(expected_version, row.version)
        if _read_settings(row.body) == settings:
            return int(self._tx.domain(row.domain).generation)
        changed = {"version": row.version + 1, "body": _write_settings(settings)}
        self._tx.write(update(pops).where(pops.c.name == name).values(changed))
        return self._tx.bump_for_placement(row.domain)

    # ------------------------------------------------------------------------------------------------------ switches

    def edges(self, domain: str) -> tuple[HostRecord, ...]:
        """A domain's edge switches, by name."""
        return switch_rows(self._tx, domain, EDGE)

    def add_edge(self, name: str, edge: HostRecord) -> int:
        """Add an edge switch; return the generation to reach.

        Raises NotFound, Conflict (name, datapath id).
        """
        return add_switch(self._tx, self._read_row(name).domain, edge, EDGE)

    def remove_edge(self, name: str, edge: str) -> None:
        """Take an edge switch out: nobody waits for it any more. Raises NotFound."""
        if not take_out_switch(self._tx, self._read_row(name).domain, edge, EDGE):
            raise NotFound(f"the PoP has no edge switch '{edge}'")

    # ------------------------------------------------------------------------------------------------------ servers

    def add_server(self, name: str, server: NewServer) -> PopServer:
        """Bring in a firewall server, which may get tenants from now on. Raises NotFound, Conflict."""
        row = self._read_row(name)
        for other in self.get(name).servers:
            if other.name == server.name:
                raise Conflict(f"the PoP already has a server '{server.name}'", place="name")
            if other.port == server.port:
                raise Conflict(f"port '{server.port}' leads to '{other.name}'", place="port")
            if other.mac == server.mac:  # a segment between would bring the one what is the other's
                raise Conflict(f"the address is that of '{other.name}'", place="mac")
        if server.port in _read_settings(row.body).outside:
            raise Conflict(f"port '{server.port}' leads outside", place="port")
        number = int(row.next_server)
        values = {"port": server.port, "mac": server.mac, "state": ServerState.SERVING.value}
        self._tx.write(insert(pop_servers).values(pop=name, number=number, name=server.name, **values))
        self._tx.write(update(pops).where(pops.c.name == name).values(next_server=number + 1))
        self._tx.bump_for_placement(row.domain)
        return PopServer(number, server.name, server.port, server.mac)

    def set_server_state(self, name: str, server: str, state: ServerState) -> int:
        """Set a server's state; return the generation with its tenants placed accordingly.

        Raises NotFound.
        """
        row, known = self._read_row(name), self._find_server(name, server)
        if known.state is state:
            return int(self._tx.domain(row.domain).generation)
        mine = (pop_servers.c.pop == name) & (pop_servers.c.number == known.number)
        self._tx.write(update(pop_servers).where(mine).values(state=state.value))
        said = {"name": server, "state": state.value, "was": known.state.value}
        Events(self._tx).append("pop.server", row.domain, {"pop": name, **said})
        return self._tx.bump_for_placement(row.domain)

    def remove_server(self, name: str, server: str) -> int:
        """Take a server out; its tenants go to others in the same generation. Raises NotFound."""
        row, known = self._read_row(name), self._find_server(name, server)
        mine = (pop_servers.c.pop == name) & (pop_servers.c.number == known.number)
        self._tx.write(delete(pop_servers).where(mine))
        self._tx.write(delete(pop_places).where(pop_places.c.pop == name, pop_places.c.server == known.number))
        return self._tx.bump_for_placement(row.domain)

    # ------------------------------------------------------------------------------------------------------ places

    def place(self, name: str, places: Mapping[str, str]) -> int:
        """Have tenants served by servers, by their names; the generation of that. Raises NotFound.

        Tenants that share a chunk have one server: the place of the one with the lowest number counts for all.
        """
        pop = self.get(name)
        numbers = {self._find_tenant(pop.domain, tenant): self._find_server(name, server).number
                   for tenant, server in places.items()}  # fmt: skip
        self.keep_places(name, {**pop.places, **numbers})
        return self._tx.bump_for_placement(pop.domain)

    def keep_places(self, name: str, places: Mapping[int, int]) -> None:
        """Note which server serves each tenant, by their numbers."""
        self._replace(name)
        self._tx.write(delete(pop_places).where(pop_places.c.pop == name))
        rows = [{"pop": name, "tenant": tenant, "server": server} for tenant, server in sorted(places.items())]
        if rows:
            self._tx.write(insert(pop_places), rows)

    # ------------------------------------------------------------------------------------------------------ lines

    def lines(self, name: str, family: Family) -> LinesRecord | None:
        """The lines that stand; None where there are none."""
        mine = (pop_lines.c.pop == name) & (pop_lines.c.family == family.value)
        row = self._tx.read(select(pop_lines).where(mine)).one_or_none()
        return None if row is None else LinesRecord(row.body, row.because, from_micros(row.built))

    def keep_lines(self, name: str, family: Family, body: bytes, because: str) -> None:
        """Store the present lines; `because` says why they were rebuilt, if they were."""
        self._replace(name)
        standing = {"digest": digest_of_lines(body), "body": body}
        fresh = {**standing, "because": because, "built": self._tx.micros}
        row = self._tx.upsert(pop_lines).values(pop=name, family=family.value, **fresh)
        changed = fresh if because else standing
        self._tx.write(row.on_conflict_do_update(index_elements=["pop", "family"], set_=changed))

    def forget_lines(self, name: str) -> int:
        """Have all lines built anew; the generation of that. Raises NotFound."""
        row = self._read_row(name)
        self._tx.write(delete(pop_lines).where(pop_lines.c.pop == name))
        return self._tx.bump_for_placement(row.domain)

    # ------------------------------------------------------------------------------------------------------ heavy

    def intervals(self) -> tuple[tuple[str, float, dt.datetime], ...]:
        """Return every PoP's interval of choosing heavy hitters, and the last time.

        0: on request.
        """
        rows = self._tx.read(select(pops.c.name, pops.c.body, pops.c.chosen).order_by(pops.c.name))
        return tuple((row.name, _read_settings(row.body).heavy.interval_s, from_micros(row.chosen)) for row in rows)

    def edge_counts(self, name: str) -> EdgeCounts:
        """Return the edge's counts.

        Raises NotFound.
        """
        return _sort_counts(HitHistory(self._tx, self._read_row(name).domain).totals())

    def choose(self, name: str, chosen: Sequence[HeavyChoice]) -> int | None:
        """Set the heavy hitters; return the generation, if that changed anything.

        Raises NotFound.

        Packets counted until now do not count for the next choice.
        """
        row = self._read_row(name)
        known = {each.rule: each for each in self._read_heavy(name)}
        self._tx.write(update(pops).where(pops.c.name == name).values(chosen=self._tx.micros))
        if known.keys() == {each.rule for each in chosen}:
            return None
        gone = known.keys() - {each.rule for each in chosen}
        for rule in gone:
            number = self._find_tenant(row.domain, rule.tenant)
            columns = pop_heavy.c
            mine = (columns.pop == name) & (columns.tenant == number) & (columns.rule_id == rule.rule)
            self._tx.write(delete(pop_heavy).where(mine))
        for each in chosen:
            if each.rule not in known:
                number = self._find_tenant(row.domain, each.rule.tenant)
                said = {"since": self._tx.micros, "packets": each.packets, "because": each.because}
                self._tx.write(insert(pop_heavy).values(pop=name, tenant=number, rule_id=each.rule.rule, **said))
        come = sorted(str(each.rule) for each in chosen if each.rule not in known)
        Events(self._tx).append("pop.heavy", row.domain, {"pop": name, "up": come, "down": sorted(map(str, gone))})
        return self._tx.bump_for_placement(row.domain)

    # ------------------------------------------------------------------------------------------------------ steps

    def _read_row(self, name: str) -> Row[Any]:
        row = self._tx.read(select(pops).where(pops.c.name == name)).one_or_none()
        if row is None:
            raise NotFound(f"there is no PoP '{name}'")
        return row

    def _replace(self, name: str) -> None:
        """Forget what is cached of a PoP before its places or lines change."""
        domain = self._read_row(name).domain
        self._tx.replaced.add(domain)
        self._tx.pops.pop(domain, None)

    def _find_server(self, name: str, server: str) -> PopServer:
        found = next((each for each in self.get(name).servers if each.name == server), None)
        if found is None:
            raise NotFound(f"the PoP has no server '{server}'")
        return found

    def _find_tenant(self, domain: str, tenant: str) -> int:
        row = self._tx.tenant(tenant)
        if row.domain != domain:
            raise NotFound(f"the domain has no tenant '{tenant}'")
        return int(row.number)

    def _read_line_digests(self, name: str) -> Mapping[Family, bytes]:
        query = select(pop_lines.c.family, pop_lines.c.digest).where(pop_lines.c.pop == name)
        return MappingProxyType({Family(row.family): row.digest for row in self._tx.read(query)})

    def _read_heavy(self, name: str) -> tuple[HeavyRecord, ...]:
        query = (
            select(pop_heavy, tenants.c.id)
            .join(tenants, tenants.c.number == pop_heavy.c.tenant)
            .where(pop_heavy.c.pop == name)
            .order_by(tenants.c.id, pop_heavy.c.rule_id)
        )
        return tuple(
            HeavyRecord(
                LiftedRule(TenantId(row.id), RuleId(row.rule_id)), from_micros(row.since), row.packets, row.because
            )
            for row in self._tx.read(query)
        )


def digest_of_lines(body: bytes) -> bytes:
    """Return the digest of lines."""
    return blake2b(body, digest_size=16).digest()


def _write_settings(settings: PopSettings) -> str:
    return orjson.dumps(asdict(settings)).decode()


def _read_settings(body: str) -> PopSettings:
    read = orjson.loads(body)
    edge, heavy = EdgeSettings(**read["edge"]), HeavySettings(**read["heavy"])
    later = {name: read[name] for name in ("window_ms", "tenant_updates_s") if name in read}
    return PopSettings(tuple(read["outside"]), edge, heavy, Misdirect(read["misdirect"]), read["classify"], **later)


def _sort_counts(totals: Counts) -> EdgeCounts:
    """Sort the counts of a domain's edge switches by the part of the edge."""
    return EdgeCounts(
        heavy=_select_kind(totals, Kind.RULE),
        exceptions=_select_kind(totals, Kind.EXCEPTION),
        lines=_select_kind(totals, Kind.LINE),
        nobody=_select_kind(totals, Kind.NOBODY).get(0, Counted()),
        spoofed=_select_kind(totals, Kind.SPOOFED).get(0, Counted()),
    )


def _select_kind(totals: Counts, kind: Kind) -> Mapping[int, Counted]:
    wanted = np.uint64(Cookie(Tier.EDGE, kind).pack()) >> _KIND_SHIFT
    mine = totals.take(totals.cookie >> _KIND_SHIFT == wanted)
    numbers = (mine.cookie & np.uint64(HIGHEST_NUMBER)).tolist()
    counted = zip(mine.packets.tolist(), mine.byte_counts.tolist(), strict=True)
    return MappingProxyType({number: Counted(*each) for number, each in zip(numbers, counted, strict=True)})
