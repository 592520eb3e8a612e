"""`aclflow db backup` and `restore`: the machine of the service is lost in between."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from command_line import Ended, aclflow
from served import Served, served

from orchestrator.client import Client, Held, Host, PointReport
from orchestrator.identity.files import AuthorityDir
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Action
from orchestrator.program.program import Program
from orchestrator.settings import Settings
from orchestrator.statedir import alone
from orchestrator.store.backups.restore import AHEAD
from orchestrator.wire.enrolment import Enrolment

LIST = b'{"rules": [{"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 443}]}'
LATER = LIST.replace(b"permit", b"deny")
LOST = bytes(range(16))
"""The digest of a program that nobody knows any more."""


def run(directory: Path, *arguments: object) -> Ended:
    return aclflow(*map(str, arguments), environment={"ACLFLOW_STATE_DIR": str(directory)})


def test_a_lost_machine_is_put_back_and_machines_follow_it(tmp_path: Path) -> None:
    first, second, file = (tmp_path / name for name in ("first", "second", "backup"))
    run(first, "certificates", "init")
    authority = AuthorityDir(first / "authority").load().fingerprint
    with served(first) as here, here.client() as admin:
        admin.domains.create("pop1")
        admin.domains.add_host("pop1", Host("host1", 1, "up0"))
        admin.tenants.create("shop", domain="pop1", prefixes=[Prefix.parse("198.51.100.0/24")])
        kept = admin.acls.put("shop", LIST)
        enrolled = admin.enrolment.enrol(admin.enrolment.invite("pop1"), name="c1", kind="openflow")
        backed_up = run(first, "db", "backup", file, "--with-authority", "--json")
        assert (backed_up.code, backed_up.json()["authority"]) == (0, True), backed_up.err
        admin.tenants.create("gone", domain="pop1", prefixes=[Prefix.parse("203.0.113.0/24")])
        later = admin.acls.put("shop", LATER)
        with here.client(enrolled.token) as enforcer:
            points = [PointReport("host1", later.generation, LOST, "enforced")]
            enforcer.points.report("pop1", enrolled.enforcer, points=points)
        token = here.token
    shutil.rmtree(first)
    put_back = run(second, "db", "restore", file)
    assert put_back.code == 0, put_back.err
    assert AuthorityDir(second / "authority").load().fingerprint == authority
    with served(second) as here:
        with Client(here.url, token) as admin:
            assert [tenant.id for tenant in admin.tenants.read_all()] == ["shop"]
            assert next(admin.acls.read_versions("shop")).version == kept.version
            assert [rule.action for rule in admin.acls.read("shop").acl.rules] == [Action.PERMIT]
        with Client(here.url, token) as admin:
            follow(here, admin, enrolled, later.generation)  # what was read back before the loss


def test_a_database_that_was_put_back_by_other_means_is_restored_from_itself(tmp_path: Path) -> None:
    """A running service follows no host far ahead; each restore goes on above its backup, and so above such hosts."""
    directory, file = tmp_path / "state", tmp_path / "backup"
    with served(directory) as here, here.client() as admin:
        admin.domains.create("pop1")
        admin.domains.add_host("pop1", Host("host1", 1, "up0"))
        enrolled = admin.enrolment.enrol(admin.enrolment.invite("pop1"), name="c1", kind="openflow")
        before, token = admin.domains.read("pop1").generation, here.token
        held = before + AHEAD + 5000
        with here.client(enrolled.token) as enforcer:
            points = [PointReport("host1", held, LOST, "enforced")]
            enforcer.points.report("pop1", enrolled.enforcer, points=points)
        [lag] = admin.domains.read_generation("pop1", before).laggards
        assert (lag.state, "aclflow db restore" in (lag.error or "")) == ("drifted", True)
        assert admin.domains.read("pop1").generation == before
    for is_above in (False, True):
        assert run(directory, "db", "backup", file).code == 0
        assert run(directory, "db", "restore", file).code != 0, "there is something in the database"
        put_back = run(directory, "db", "restore", file, "--yes")
        assert put_back.code == 0, put_back.err
        with served(directory) as here, Client(here.url, token) as admin:
            assert (admin.domains.read("pop1").generation > held) is is_above
            if is_above:
                follow(here, admin, enrolled, held)


def follow(here: Served, admin: Client, enrolled: Enrolment, held: int) -> None:
    """Take programs from a host that holds a lost one, and report them, until the domain is enforced."""
    wanted, seen = admin.domains.read("pop1").generation, Held(LOST, held)
    assert wanted > held
    while seen.generation < wanted:  # the intersection with anything first, where the host may hold anything
        with Client(here.url, enrolled.token) as enforcer:
            answer = enforcer.points.watch_program("pop1", seen, wait_s=30)
            assert answer is not None
            assert answer.generation > seen.generation
            if seen.digest == LOST:
                assert isinstance(answer, Program), "whole, for nobody knows what it would be a change of"
            digest = answer.digest if isinstance(answer, Program) else answer.target
            points = [PointReport("host1", answer.generation, digest, "enforced")]
            enforcer.points.report("pop1", enrolled.enforcer, points=points)
            seen = Held(digest, answer.generation)
    admin.domains.wait_until_enforced("pop1", wanted)


def test_the_key_is_left_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "backup"
    run(first, "db", "token", "--role", "admin")
    run(first, "certificates", "init")
    key = AuthorityDir(first / "authority").key.read_text()
    assert run(first, "db", "backup", file, "--json").json()["authority"] is False
    assert key.split("\n")[1].encode() not in gzip.decompress(file.read_bytes())
    assert run(second, "db", "restore", file).code == 0
    assert not AuthorityDir(second / "authority").exists


def test_an_encrypted_backup_is_opened_by_its_key_alone(tmp_path: Path) -> None:
    first, second, file, key = (tmp_path / name for name in ("first", "second", "backup", "key"))
    recipient = run(tmp_path, "db", "backup-key", key).out.strip()
    other = run(tmp_path, "db", "backup-key", tmp_path / "other")
    assert (key.stat().st_mode & 0o777, other.code) == (0o600, 0)
    assert run(tmp_path, "db", "backup-key", key).code == 1, "a key is not written over"
    run(first, "db", "token", "--role", "admin")
    assert run(first, "db", "backup", file, "--recipient", recipient, "--json").json()["recipients"] == 1
    assert file.read_bytes().startswith(b"age-encryption.org/v1\n-> X25519 ")
    for words, said in (((), "--identity"), (("--identity", tmp_path / "other"), "no key that was given opens it")):
        refused = run(second, "db", "restore", file, *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    damaged = bytearray(file.read_bytes())
    damaged[-5] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    (tmp_path / "short").write_bytes(damaged[:-30])
    for name in ("damaged", "short"):
        assert run(second, "db", "restore", tmp_path / name, "--identity", key).code == 2
    assert run(second, "db", "restore", file, "--identity", key).code == 0
    assert run(first, "db", "backup", file, "--recipient", recipient[:-1]).code == 2


def test_a_restore_says_who_made_the_backup_or_that_nothing_shows_it(tmp_path: Path) -> None:
    first, second, third, file, plain = (tmp_path / name for name in ("first", "second", "third", "backup", "plain"))
    run(first, "db", "token", "--role", "admin")
    assert run(first, "db", "backup", plain, "--json").json()["signed"] is False
    assert "not signed" in run(first, "db", "backup", plain).err
    for directory in (first, second):
        run(directory, "certificates", "init")
    assert "not signed" not in run(first, "db", "backup", file).err
    assert run(first, "db", "backup", file, "--json").json()["signed"] is True
    own, others = (str(AuthorityDir(each / "authority").certificate) for each in (first, second))
    for given, words, said in (
        (plain, (), "it is not signed"),
        (file, (), "which this machine does not know"),
        (file, ("--signed-by", own), None),
    ):
        put_back = run(third, "db", "restore", given, "--yes", *words, "--json")
        assert put_back.code == 0, put_back.err
        unverified = put_back.json()["unverified"]
        assert [said in each for each in unverified] == ([True] if said else [])
    for given, words, said in (
        (plain, ("--signed-by", own), "is not signed"),
        (file, ("--signed-by", others), "signed by another authority"),
    ):
        refused = run(third, "db", "restore", given, "--yes", *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_a_backup_that_was_changed_after_it_was_signed_is_refused(tmp_path: Path) -> None:
    """Somebody with the file changes a row, and makes the checksum fit again."""
    first, file = tmp_path / "first", tmp_path / "backup"
    run(first, "db", "token", "--role", "admin", "--description", "the operator")
    run(first, "certificates", "init")
    run(first, "db", "backup", file)
    *lines, last = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    forged = [line.replace(b"the operator", b"the attacker") for line in lines]
    assert forged != lines
    said = json.loads(last) | {"sha256": hashlib.sha256(b"".join(forged)).hexdigest()}
    file.write_bytes(gzip.compress(b"".join([*forged, json.dumps(said).encode(), b"\n"])))
    refused = run(first, "db", "restore", file, "--yes")
    assert (refused.code, "changed after it was signed" in refused.err) == (2, True), refused.err
    del said["signature"], said["signer"]
    file.write_bytes(gzip.compress(b"".join([*forged, json.dumps(said).encode(), b"\n"])))
    stripped = run(first, "db", "restore", file, "--yes")
    assert (stripped.code, "--unsigned" in stripped.err) == (2, True), stripped.err
    (listed,) = run(first, "db", "backup", tmp_path / "after", "--json").json()["file"].splitlines()
    assert b"the attacker" not in gzip.decompress(Path(listed).read_bytes()), "nothing was put back"


def test_a_backup_without_a_known_signature_is_put_back_when_told(tmp_path: Path) -> None:
    """Such as those of before there was an authority, or of a former one."""
    first, file, later = tmp_path / "first", tmp_path / "backup", tmp_path / "later"
    run(first, "db", "token", "--role", "admin")
    run(first, "db", "backup", file)
    run(first, "certificates", "init")
    refused = run(first, "db", "restore", file, "--yes")
    assert (refused.code, "not signed, and this machine knows an authority" in refused.err) == (2, True), refused.err
    told = run(first, "db", "restore", file, "--yes", "--unsigned", "--json")
    assert told.json()["unverified"] == ["it is not signed: nothing shows who made it"]
    authority, other = AuthorityDir(first / "authority"), AuthorityDir(tmp_path / "second" / "authority")
    run(first, "db", "backup", later)
    run(tmp_path / "second", "certificates", "init")
    both = run(first, "db", "restore", file, "--yes", "--unsigned", "--signed-by", authority.certificate)
    assert (both.code, "is not signed" in both.err) == (2, True), "what is named must have signed it"
    for step in range(2):
        run(first, "certificates", "rotate")
        kept = run(first, "db", "restore", later, "--yes", "--json")
        assert kept.json()["unverified"] == [], (step, kept.err)
    former = tmp_path / "former.pem"
    shutil.copy(authority.former_certificate, former)
    run(first, "certificates", "rotate", "--finish")
    refused = run(first, "db", "restore", later, "--yes")
    assert (refused.code, "--signed-by" in refused.err) == (2, True), refused.err
    assert run(first, "db", "restore", later, "--yes", "--signed-by", former, "--json").json()["unverified"] == []
    assert run(first, "db", "restore", later, "--yes", "--signed-by", other.certificate).code == 2
    assert run(first, "db", "restore", later, "--yes", "--unsigned").code == 0


def test_what_is_there_is_lost_only_when_told(tmp_path: Path) -> None:
    """The store of a service that runs never; another authority, or a store with something in it, with --yes."""
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "backup"
    for directory in (first, second):
        run(directory, "certificates", "init")
    run(first, "db", "token", "--role", "admin")
    assert run(first, "db", "backup", file, "--with-authority").code == 0
    refused = run(second, "db", "restore", file, "--yes")
    assert (refused.code, "signed by another authority" in refused.err) == (2, True), refused.err
    refused = run(second, "db", "restore", file, "--unsigned")
    assert (refused.code, "there is another authority already" in refused.err) == (1, True), refused.err
    with alone(Settings(state_dir=second)):
        running = run(second, "db", "restore", file, "--yes")
    assert (running.code, "stop it first" in running.err) == (1, True)
    assert run(second, "db", "restore", file, "--yes", "--unsigned").code == 0
    certificates = [AuthorityDir(each / "authority").certificate.read_bytes() for each in (first, second)]
    assert certificates[0] == certificates[1]
    full = run(second, "db", "restore", file)
    assert (full.code, "not empty" in full.err) == (1, True)
    damaged = file.with_name("damaged")
    damaged.write_bytes(file.read_bytes()[:-20])
    assert run(tmp_path / "third", "db", "restore", damaged).code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user, which only root does")
def test_root_is_not_the_service(tmp_path: Path) -> None:
    """With root's settings a command would make a store beside the one that the service has, of root's files."""
    os.chown(tmp_path, 65534, 65534)
    for words in (("db", "token", "--role", "admin"), ("db", "upgrade"), ("db", "restore", tmp_path / "file")):
        ended = run(tmp_path, *words)
        assert (ended.code, list(tmp_path.iterdir())) == (3, []), words
        assert f"{tmp_path}: it belongs to the service's user, and this is root" in ended.err
