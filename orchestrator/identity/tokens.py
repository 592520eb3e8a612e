"""Enrolment tokens that say whom to believe: ``SECRET.FINGERPRINT``.

The fingerprint (SHA-256 of the authority's certificate, base64url without padding, 43 letters) is what lets a machine
that has nothing but the token and an address tell the service from somebody who answers in its place. It is not sent
anywhere: only the secret is, and only to who has proven to be the service.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from orchestrator.errors import BadInput

_PINNED = re.compile(r"(?P<secret>[^.\s]+)\.(?P<pin>[A-Za-z0-9_-]{43})\Z")


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """A parsed token.

    `pin` is the SHA-256 of the authority's certificate, None where none is said.
    """

    secret: str = field(repr=False)
    pin: bytes | None = None

    @property
    def text(self) -> str:
        """The token as text, for a machine."""
        return self.secret if self.pin is None else f"{self.secret}.{_encode_pin(self.pin)}"

    @classmethod
    def parse(cls, text: str) -> EnrolmentToken:
        """Read an enrolment token.

        Raises BadInput for a text with a dot behind which there is no fingerprint.
        """
        if "." not in text:
            return cls(text)
        found = _PINNED.match(text)
        if found is None or _encode_pin(pin := base64.urlsafe_b64decode(found["pin"] + "=")) != found["pin"]:
            raise BadInput("the token is damaged: it ends in something that is no fingerprint", place="token")
        return cls(found["secret"], pin)


def _encode_pin(pin: bytes) -> str:
    return base64.urlsafe_b64encode(pin).rstrip(b"=").decode()
