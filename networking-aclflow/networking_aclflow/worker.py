"""The process beside neutron-server's that tells the service what the journal names.

    each `poll_interval`      the journal's due tasks; then ports that wait: in force on their host? provisioning ends
    each `compare_interval`   all bindings beside all endpoints; what differs goes into the journal

A task first reads the service's version, then Neutron's database, then changes that version alone. So of several
servers that do the same task none can bring back an older state.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from neutron.db import provisioning_blocks
from neutron_lib import context as n_context
from neutron_lib import worker
from neutron_lib.callbacks import resources
from neutron_lib.db import api as db_api
from oslo_log import log
from oslo_service import loopingcall

from networking_aclflow import bindings, journal
from networking_aclflow.service import Changed, Refused, Service, Unreachable

LOG = log.getLogger(__name__)

_AT_ONCE = 200
_LONGEST_PAUSE_S = 10.0
_LONGEST_WAIT_S = 5.0
_READ_BACK = "aclflow read back"
"""Whom Neutron is told to have completed a port: the name of no block, for that could be the next host's."""


class JournalWorker(worker.BaseWorker):
    """Runs the synchronizer in a process of its own."""

    def __init__(self, settings: Any, service: Service) -> None:
        super().__init__(worker_process_count=1, desc="aclflow journal")
        self._settings = settings
        self._synchronizer = Synchronizer(settings, service)
        self._loop: loopingcall.FixedIntervalLoopingCall | None = None

    def start(self) -> None:
        super().start(desc="aclflow journal")
        self._loop = loopingcall.FixedIntervalLoopingCall(self._synchronizer.step)
        self._loop.start(interval=self._settings.poll_interval)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()

    def wait(self) -> None:
        if self._loop is not None:
            self._loop.wait()

    def reset(self) -> None:
        """Nothing is kept over a SIGHUP."""


class Synchronizer:
    """Brings the service to what Neutron's database says."""

    def __init__(self, settings: Any, service: Service) -> None:
        self._domain = settings.domain
        self._networks = frozenset(settings.physical_networks)
        self._compare_every_s = settings.compare_interval
        self._service = service
        self._compared_at = float("-inf")
        self._failures = 0
        self._again_at = 0.0
        self._waits: dict[str, tuple[frozenset[str] | None, float, float]] = {}

    def step(self) -> None:
        """Do what is due now. Failures are logged, and wait for their next turn."""
        if time.monotonic() < self._again_at:
            return
        try:
            if time.monotonic() - self._compared_at > self._compare_every_s:
                self.compare()
                self._compared_at = time.monotonic()
            self.work_off()
            self.release()
            self._failures = 0
        except Unreachable as error:
            self._failures += 1
            self._again_at = time.monotonic() + min(_LONGEST_PAUSE_S, 0.5 * 2 ** min(self._failures, 6))
            LOG.warning("aclflow does not answer, the journal waits: %s", error)
        except Exception:
            LOG.exception("a fault while telling aclflow; it is tried again")

    # ------------------------------------------------------------------------------------------------------ the journal

    def work_off(self) -> None:
        """Do the tasks that are due, the oldest first. Raises Unreachable."""
        with _reading() as session:
            tasks = journal.due_tasks(session, _AT_ONCE)
        for task in tasks:
            try:
                self._do(task)
            except (Refused, Changed) as error:
                level = LOG.warning if isinstance(error, Refused) else LOG.debug
                level("aclflow did not take %s %s: %s", task.kind, task.resource, error)
                with _writing() as session:
                    journal.postpone(session, task, str(error))
            else:
                with _writing() as session:
                    journal.finish(session, task)

    def _do(self, task: journal.Task) -> None:
        if task.kind == journal.PROJECT:
            self._bring_project(task.resource)
        else:
            self._bring_port(task.resource)

    def _bring_port(self, port_id: str) -> None:
        seen, version = self._service.endpoint(self._domain, port_id)
        with _reading() as session:
            wanted = bindings.endpoint_of(session, port_id)
        if wanted == seen:
            return
        if wanted is not None:
            self._bring_project(wanted.tenant)
            self._service.put_endpoint(self._domain, wanted, version)
        elif seen is not None:
            self._service.remove_endpoint(self._domain, port_id, version)
            self._bring_project(seen.tenant)

    def _bring_project(self, project: str) -> None:
        """Make a project's tenant own what the project owns; more, while rules or endpoints need that."""
        seen = self._service.prefixes(project)
        with _reading() as session:
            wanted = bindings.prefixes_of(session, project, self._networks)
        if seen is None:
            if wanted:
                self._service.create_tenant(self._domain, project, wanted)
            return
        owned, version = seen
        if owned == wanted:
            return
        try:
            self._service.set_prefixes(project, wanted, version)
        except Refused as error:
            LOG.warning("project %s keeps prefixes that it has no subnet for: %s", project, error)
            both = frozenset(map(str, bindings.outermost(owned | wanted)))
            if both != owned:
                self._service.set_prefixes(project, both, version)

    # ----------------------------------------------------------------------------------------------------- provisioning

    def release(self) -> None:
        """Let ports become active whose rows were read back on their host. Raises Unreachable."""
        with _reading() as session:
            waiting = bindings.waiting_ports(session)
            pending = journal.pending_ports(session) if waiting else set()
        hosts: dict[str, set[str]] = {}
        for port, host in waiting:
            if port not in pending:
                hosts.setdefault(host, set()).add(port)
        for host, ports in sorted(hosts.items()):
            if not self._is_time(host, frozenset(ports)):
                continue
            ready = ports & self._service.in_force(self._domain, host)
            for port in sorted(ready):
                if _complete(port, host):
                    LOG.info("port %s is in force on %s", port, host)

    def _is_time(self, host: str, ports: frozenset[str]) -> bool:
        """Tell whether to ask about a host again: ever less often while the same ports wait there."""
        now = time.monotonic()
        before, since, again_at = self._waits.get(host, (None, now, now))
        if before != ports:
            since = again_at = now
        if now < again_at:
            return False
        self._waits[host] = ports, since, now + min(_LONGEST_WAIT_S, 0.1 * (now - since))
        return True

    # ------------------------------------------------------------------------------------------------------- comparing

    def compare(self) -> None:
        """Put into the journal what the service has otherwise than Neutron. Raises Unreachable."""
        known, owned = self._service.endpoints(self._domain), self._service.tenants(self._domain)
        with _writing() as session:
            wanted, wanted_prefixes = (
                bindings.endpoints_of(session),
                bindings.prefixes_by_project(session, self._networks),
            )
            for name in sorted(wanted.keys() | set(filter(_is_id, known))):
                if wanted.get(name) != known.get(name):
                    LOG.info("aclflow and Neutron differ about port %s", name)
                    journal.note(session, journal.PORT, name)
            for project, prefixes in sorted(wanted_prefixes.items()):
                if owned.get(project) != prefixes:
                    journal.note(session, journal.PROJECT, project)


def _complete(port: str, host: str) -> bool:
    """End what holds back a port that was read back: our block, and ML2/OVS' where its agent runs on the host, too.

    That driver adds a block to each port of such a host, whoever binds it, and its agent never sees ours. False: the
    port is bound elsewhere by now. Its binding is locked, so the block of its next host is not taken for this one's.
    """
    context = n_context.get_admin_context()
    with db_api.CONTEXT_WRITER.using(context):
        if not bindings.lock_binding(context.session, port, host):
            return False
        for entity in (provisioning_blocks.L2_AGENT_ENTITY, bindings.DRIVER):
            provisioning_blocks.remove_provisioning_component(context, port, resources.PORT, entity)
    provisioning_blocks.provisioning_complete(context, port, resources.PORT, _READ_BACK)
    return True


def _is_id(name: str) -> bool:
    """Tell whether an endpoint has a port's id for its name: others were made by somebody else, and stay."""
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _reading() -> Any:
    context = n_context.get_admin_context()
    return db_api.CONTEXT_READER.using(context)


def _writing() -> Any:
    context = n_context.get_admin_context()
    return db_api.CONTEXT_WRITER.using(context)
