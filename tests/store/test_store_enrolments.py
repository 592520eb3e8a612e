"""Enrolling with keys: tokens used once, answers that were lost, groups, certificates that are renewed and revoked."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from store.conftest import FakeWall
from store.scenes import populate

from orchestrator.errors import AclflowError, BadInput, Conflict, Forbidden, NotFound, Unauthenticated
from orchestrator.identity.authority import MACHINE_LASTS, Authority, fingerprint_of
from orchestrator.identity.files import parsed_certificate
from orchestrator.identity.names import SWITCH, Subject, Usage
from orchestrator.identity.requests import PrivateKey, key_digest, new_key
from orchestrator.store import Store
from orchestrator.store.points.enrolments import Member, Signer
from orchestrator.store.points.pointrecords import CertificateRecord, Enrolled
from orchestrator.store.sql.keys import certificate_digest, digest_of

HOUR = dt.timedelta(hours=1)
AUTHORITY = Authority.create("test", dt.datetime(2030, 1, 1, tzinfo=dt.UTC))


@dataclass
class Machine:
    """Somebody with a key who wants in."""

    store: Store
    wall: FakeWall
    key: PrivateKey = field(default_factory=new_key)

    def signer(self) -> Signer:
        public = self.key.public_key()
        return Signer(
            key_digest(public), lambda subject: AUTHORITY.issue(subject, public, self.wall.now, MACHINE_LASTS)
        )

    def enrol(self, secret: str, name: str = "fw1", kind: str = "nftables") -> Enrolled:
        with self.store.write() as unit:
            return unit.enforcers.enrol(secret, name=name, kind=kind, signer=self.signer())

    def switch(self, secret: str, name: str = "host1") -> CertificateRecord:
        with self.store.write() as unit:
            return unit.enforcers.sign_switch(secret, name, self.signer())

    def join(self, secret: str, instance: str = "i-1", name: str = "vnf-1", address: str = "192.0.2.1") -> Enrolled:
        with self.store.write() as unit:
            group = unit.enforcers.group_of(secret)
            if group is None:
                raise Unauthenticated("no such group")
            return unit.enforcers.admit(group, Member(instance, address, name), self.signer())


@pytest.fixture
def machine(store: Store, wall: FakeWall) -> Machine:
    populate(store)
    return Machine(store, wall)


def another(machine: Machine) -> Machine:
    return Machine(machine.store, machine.wall)


def invite(machine: Machine, name: str | None = None, kind: str | None = None) -> str:
    with machine.store.write() as unit:
        return unit.enforcers.invite("pop", expires=machine.wall.now + HOUR, author="ann", name=name, kind=kind)


def invite_group(machine: Machine, group: str = "fleet") -> str:
    with machine.store.write() as unit:
        return unit.enforcers.invite_group("pop", group, kind="nftables", expires=unit.now + HOUR, author="ann")[0]


def fingerprint(new: Enrolled) -> bytes:
    assert new.certificate is not None
    return fingerprint_of(parsed_certificate(new.certificate.pem.encode(), "x"))


def is_known(machine: Machine, new: Enrolled) -> bool:
    try:
        return machine.store.certificate_bearer(fingerprint(new)).enforcer == new.enforcer.id
    except Unauthenticated:
        return False


# ------------------------------------------------------------------------------------------------------ one machine


def test_who_enrols_with_a_key_is_known_by_its_certificate(machine: Machine) -> None:
    new = machine.enrol(invite(machine))
    assert new.secret == ""
    principal = machine.store.certificate_bearer(fingerprint(new))
    assert (principal.enforcer, principal.domain) == (new.enforcer.id, "pop")
    assert new.certificate is not None
    assert new.certificate.subject == Subject(Usage.ENFORCER, "pop", "fw1")
    for nobody in (b"", bytes(32), fingerprint(new)[::-1]):
        with pytest.raises(Unauthenticated):
            machine.store.certificate_bearer(nobody)


def test_a_fingerprint_is_no_token(machine: Machine) -> None:
    """Whoever knows a certificate, which is not secret, must not be able to say it in the place of a token."""
    assert len(certificate_digest(bytes(32))) != len(digest_of("any secret"))
    print_ = fingerprint(machine.enrol(invite(machine)))
    for said in (print_.hex(), print_.decode("latin-1"), "x509:" + print_.decode("latin-1")):
        with pytest.raises(Unauthenticated):
            machine.store.bearer(said)


def test_a_lost_answer_is_given_again_to_the_same_key_alone(machine: Machine) -> None:
    secret = invite(machine)
    first = machine.enrol(secret)
    assert machine.enrol(secret).certificate == first.certificate
    with pytest.raises(Unauthenticated):
        another(machine).enrol(secret)
    for other in ({"name": "fw2"}, {"kind": "iptables"}):
        with pytest.raises(Unauthenticated):
            machine.enrol(secret, **other)
    with machine.store.read() as unit:
        assert len(unit.enforcers.list("pop")) == len(unit.certificates.list("pop")) == 1
    machine.wall.move(hours=1)
    with pytest.raises(Unauthenticated):
        machine.enrol(secret)


def test_a_used_token_in_the_hands_of_another_machine_of_ours_is_worth_nothing(machine: Machine) -> None:
    secret = invite(machine)
    machine.enrol(secret)
    other = another(machine)
    other.enrol(invite(machine), name="fw2")
    with pytest.raises(Unauthenticated):
        other.enrol(secret)


def test_a_revoked_machine_does_not_come_back_by_repeating_its_enrolment(machine: Machine) -> None:
    secret = invite(machine)
    new = machine.enrol(secret)
    with machine.store.write() as unit:
        unit.enforcers.remove(new.enforcer.id)
    with pytest.raises(Unauthenticated):
        machine.enrol(secret)
    assert not is_known(machine, new)


@pytest.mark.parametrize("wrong", [{"name": "fw2"}, {"kind": "iptables"}])
def test_a_token_for_another_is_refused_and_not_used_up(machine: Machine, wrong: dict[str, str]) -> None:
    secret = invite(machine, name="fw1", kind="nftables")
    with pytest.raises(Forbidden, match="is for the name 'fw1' kind 'nftables'"):
        machine.enrol(secret, **wrong)
    assert machine.enrol(secret).enforcer.name == "fw1"


def test_of_many_who_race_with_one_token_one_wins(machine: Machine) -> None:
    secret = invite(machine)
    racers = [another(machine) for _ in range(6)]
    outcomes = raced([lambda racer=racer: racer.enrol(secret) for racer in racers])
    won = [each for each in outcomes if isinstance(each, Enrolled)]
    assert len(won) == 1
    assert all(isinstance(each, Enrolled | Unauthenticated) for each in outcomes)
    assert is_known(machine, won[0])


def raced(attempts: list[Callable[[], Enrolled]]) -> list[Enrolled | AclflowError]:
    """What each attempt came to, when all begin at once."""
    outcomes: list[Enrolled | AclflowError] = []
    begin = threading.Barrier(len(attempts))

    def run(attempt: Callable[[], Enrolled]) -> None:
        begin.wait()
        try:
            outcomes.append(attempt())
        except AclflowError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_a_key_serves_one_machine(machine: Machine) -> None:
    machine.enrol(invite(machine))
    with pytest.raises(Conflict, match="make a new key"):
        machine.enrol(invite(machine), name="fw2")
    with machine.store.read() as unit:
        assert [each.name for each in unit.enforcers.list("pop")] == ["fw1"]


def test_who_enrols_under_the_name_of_another_takes_its_place(machine: Machine) -> None:
    first = machine.enrol(invite(machine))
    successor = another(machine)
    second = successor.enrol(invite(machine))
    assert not is_known(machine, first)
    assert is_known(machine, second)
    assert second.enforcer.epoch > first.enforcer.epoch


# ------------------------------------------------------------------------------------------------- one host's switch


def test_a_switchs_token_gets_its_switch_a_certificate_once_and_ends_those_before(machine: Machine) -> None:
    first = machine.switch(invite(machine, "host1", SWITCH))
    other = another(machine).switch(invite(machine, "host2", SWITCH), "host2")
    again = another(machine)
    secret = invite(machine, "host1", SWITCH)
    new = again.switch(secret)
    assert again.switch(secret) == new, "a lost answer is given again to the same key"
    with pytest.raises(Unauthenticated):
        another(machine).switch(secret)
    with machine.store.read() as unit:
        valid = {each.serial for each in unit.certificates.list("pop") if each.is_valid}
        assert valid == {new.serial, other.serial}
        assert unit.certificates.revoked_switches("pop") == (first.serial,)
        assert unit.enforcers.list("pop") == (), "a switch is no enforcement point"
    assert new.subject == Subject(Usage.SWITCH, "pop", "host1")


@pytest.mark.parametrize(("name", "kind"), [(None, None), ("host1", None), (None, SWITCH), ("host2", SWITCH)])
def test_a_token_that_is_not_for_this_switch_gets_it_nothing(
    machine: Machine, name: str | None, kind: str | None
) -> None:
    held = machine.switch(invite(machine, "host1", SWITCH))
    secret = invite(machine, name, kind)
    with pytest.raises(Forbidden):
        another(machine).switch(secret)
    with machine.store.read() as unit:
        assert unit.certificates.get(held.serial).is_valid


def test_a_switchs_token_makes_no_enforcement_point(machine: Machine) -> None:
    secret = invite(machine, "host1", SWITCH)
    with pytest.raises(Forbidden):
        machine.enrol(secret, "host1", "openflow")
    with pytest.raises(BadInput, match="no enforcement point"):
        machine.enrol(secret, "host1", SWITCH)
    assert machine.switch(secret).is_valid, "it was not used up"


def test_what_an_author_gave_and_nobody_used_can_be_withdrawn(machine: Machine) -> None:
    kept, taken = invite(machine), invite(machine)
    with machine.store.write() as unit:
        theirs = unit.enforcers.invite("pop", expires=machine.wall.now + HOUR, author="bob")
    machine.enrol(taken)
    with machine.store.write() as unit:
        unit.enforcers.withdraw("pop", "ann")
    with pytest.raises(Unauthenticated):
        another(machine).enrol(kept, "fw2")
    assert machine.enrol(taken).certificate, "who has enrolled is answered again"
    assert another(machine).enrol(theirs, "fw3").certificate


# -------------------------------------------------------------------------------------------- renewing and revoking


def renewed(machine: Machine, enforcer: int, key: PrivateKey) -> Enrolled:
    with machine.store.write() as unit:
        record = unit.enforcers.get(enforcer)
        issued = AUTHORITY.issue(Subject(Usage.ENFORCER, "pop", record.name), key.public_key(), unit.now, MACHINE_LASTS)
        return Enrolled(record, "", unit.certificates.keep(issued, enforcer))


def test_both_certificates_hold_until_the_old_one_is_laid_down(machine: Machine) -> None:
    old = machine.enrol(invite(machine))
    new = renewed(machine, old.enforcer.id, new_key())
    assert is_known(machine, old)
    assert is_known(machine, new)
    assert new.certificate is not None
    with machine.store.write() as unit:
        unit.certificates.revoke_others(old.enforcer.id, [new.certificate.token or 0])
    assert not is_known(machine, old)
    assert is_known(machine, new)
    with machine.store.read() as unit:
        states = {each.serial: each.is_valid for each in unit.certificates.list("pop")}
    assert old.certificate is not None
    assert states == {old.certificate.serial: False, new.certificate.serial: True}


def test_a_certificate_ends_by_itself(machine: Machine) -> None:
    new = machine.enrol(invite(machine))
    assert is_known(machine, new)
    with machine.store.read() as unit:
        assert unit.certificates.invalid([fingerprint(new)]) == frozenset()
    machine.wall.move(hours=24 * 30)
    assert not is_known(machine, new)
    with machine.store.read() as unit:
        assert unit.certificates.invalid([fingerprint(new)]) == {fingerprint(new)}


def test_revoking_is_at_once_and_for_one(machine: Machine) -> None:
    one = machine.enrol(invite(machine))
    other = another(machine)
    two = other.enrol(invite(machine), name="fw2")
    assert one.certificate is not None
    prints = fingerprint(one), fingerprint(two)
    with machine.store.write() as unit:
        assert unit.certificates.invalid(prints) == frozenset()
        record = unit.certificates.revoke(one.certificate.serial)
    assert (record.is_valid, record.revoked is None) == (False, False)
    assert not is_known(machine, one)
    assert is_known(machine, two)
    with machine.store.write() as unit:
        assert unit.certificates.invalid([*prints, bytes(32)]) == {prints[0], bytes(32)}
        assert unit.certificates.revoke(one.certificate.serial) == record
        with pytest.raises(NotFound):
            unit.certificates.revoke("0" * 40)


def test_what_ended_long_ago_is_forgotten(machine: Machine) -> None:
    machine.enrol(invite(machine))
    machine.wall.move(hours=24 * 125)
    another(machine).enrol(invite(machine), name="fw2")
    with machine.store.read() as unit:
        assert [each.subject.name for each in unit.certificates.list()] == ["fw2"]


# ------------------------------------------------------------------------------------------------------------ groups


def test_many_members_join_with_one_token_each_once(machine: Machine) -> None:
    secret = invite_group(machine)
    first = machine.join(secret)
    second = another(machine).join(secret, "i-2", "vnf-2")
    assert (first.enforcer.name, second.enforcer.name) == ("vnf-1", "vnf-2")
    assert machine.join(secret).certificate == first.certificate  # its answer was lost
    with pytest.raises(Conflict, match=r"was admitted on .* from 192\.0\.2\.1, with another key") as refused:
        another(machine).join(secret)
    assert refused.value.place == "instance"


def test_an_instance_is_admitted_once_whatever_token_its_group_has(machine: Machine) -> None:
    machine.join(invite_group(machine))
    with pytest.raises(Conflict, match="was admitted"):
        another(machine).join(invite_group(machine))


def test_who_was_removed_may_join_again(machine: Machine) -> None:
    """For an operator's decision: a VNF that was rebuilt has its instance's id and another key."""
    secret = invite_group(machine)
    first = machine.join(secret)
    with machine.store.write() as unit:
        unit.enforcers.remove(first.enforcer.id)
    assert is_known(machine, another(machine).join(secret))


def test_a_member_takes_nobody_elses_name(machine: Machine) -> None:
    other = another(machine)
    other.enrol(invite(machine), name="vnf-1")
    with pytest.raises(Conflict, match="not this instance"):
        machine.join(invite_group(machine))


def test_of_two_who_race_as_one_instance_one_wins(machine: Machine) -> None:
    secret = invite_group(machine)
    racers = [another(machine) for _ in range(4)]
    outcomes = raced([lambda racer=racer: racer.join(secret) for racer in racers])
    assert len([each for each in outcomes if isinstance(each, Enrolled)]) == 1
    assert all(isinstance(each, Enrolled | Conflict) for each in outcomes)


def test_a_groups_token_ends(machine: Machine) -> None:
    secret, other = invite_group(machine), invite_group(machine, "other")
    with machine.store.write() as unit:
        held = {each.name: each.id for each in unit.enforcers.groups("pop")}
        unit.enforcers.remove_group("pop", held["fleet"])
        with pytest.raises(NotFound):
            unit.enforcers.remove_group("pop", held["fleet"])
    with pytest.raises(Unauthenticated):
        machine.join(secret)
    machine.wall.move(hours=2)
    with pytest.raises(Unauthenticated):
        machine.join(other)


def test_a_groups_token_taken_away_between_the_clouds_word_and_ours_admits_nobody(machine: Machine) -> None:
    secret = invite_group(machine)
    with machine.store.read() as unit:
        group = unit.enforcers.group_of(secret)
    assert group is not None
    with machine.store.write() as unit:
        unit.enforcers.remove_group("pop", group.id)
    with pytest.raises(Unauthenticated), machine.store.write() as unit:
        unit.enforcers.admit(group, Member("i-1", "192.0.2.1", "vnf-1"), machine.signer())


def test_a_one_time_token_is_no_groups_and_a_groups_no_one_time_token(machine: Machine) -> None:
    with pytest.raises(Unauthenticated):
        machine.enrol(invite_group(machine))
    with pytest.raises(Unauthenticated):
        machine.join(invite(machine))
