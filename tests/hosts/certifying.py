"""A service that gives switches their certificates, in memory."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass, field

from orchestrator.errors import Unauthenticated, Unreachable
from orchestrator.identity.authority import SWITCH_LASTS, Authority
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import EnrolmentToken, read_request
from orchestrator.wire.enrolment import Certificate

NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


@dataclass
class Service:
    """Gives out certificates as the service does: one for each token, again for the key that has it."""

    authority_: Authority = field(default_factory=lambda: Authority.create("test", NOW))
    name: str = "acl-0"
    now: dt.datetime = NOW
    is_away: bool = False
    loses_answers: int = 0
    given: dict[str, tuple[bytes, Certificate]] = field(default_factory=dict)
    believed: list[ssl.SSLContext] = field(default_factory=list)

    def connect(self, _url: str, trust: ssl.SSLContext | None) -> Service:
        if self.is_away:
            raise Unreachable("nobody is there")
        assert trust is not None
        self.believed.append(trust)
        return self

    def close(self) -> None: ...

    def read_authority(self) -> str:
        return self.authority_.pem

    def enrol_switch(self, token: str, *, name: str, csr: str) -> Certificate:
        assert "." not in token, "the fingerprint is nobody's business"
        asked = read_request(csr, name)
        if token in self.given and self.given[token][0] != asked.digest:
            raise Unauthenticated("the token was used")
        if token not in self.given:
            assert all(asked.digest != digest for digest, _ in self.given.values()), "a key has one certificate"
            subject = Subject(Usage.SWITCH, "pop1", self.name)
            made = self.authority_.issue(subject, asked.key, self.now, SWITCH_LASTS)
            certificate = Certificate(
                serial=made.serial,
                usage="switch",
                domain="pop1",
                name=name,
                issued=made.begins,
                ends=made.ends,
                revoked=None,
                valid=True,
                certificate=made.pem,
                authority=self.authority_.pem,
            )
            self.given[token] = (asked.digest, certificate)
        if self.loses_answers:
            self.loses_answers -= 1
            raise Unreachable("the answer was lost")
        return self.given[token][1]

    def token(self, secret: str) -> str:
        return EnrolmentToken(secret, self.authority_.fingerprint).text
