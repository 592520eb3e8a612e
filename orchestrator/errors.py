"""Every error aclflow raises, sorted by what the caller can do about it.

AclflowError
├── ChangeTheRequest          the input is wrong; nothing was changed        HTTP 400-422, exit 2 or 1
│   ├── BadInput              a value that cannot be read, with its place
│   ├── BadPolicy             well formed, but it says what a policy may not say
│   ├── NotExpressible        a match or action this plane or format cannot carry
│   ├── TooLarge              over a size, quota, level or priority limit
│   ├── Conflict              somebody else holds the name, the prefix or the key
│   │   └── ApprovalNeeded    another person must approve it first
│   └── Stale                 If-Match did not hold: read again, then write
├── NotAllowed                who is asking may not do this
│   ├── Unauthenticated       no token, or one that is wrong, expired or used up
│   └── Forbidden             a good token without the role
├── NotFound                  no such thing, or not yours: the two look the same on purpose
├── TryAgain                  the same request may work later
│   ├── Busy                  the store is locked, the service is starting
│   ├── TooOften              it was tried too often from there: wait
│   ├── Full                  the disk is full: nothing was changed
│   └── Unreachable           a switch, a service or a database does not answer
├── DeviceError               an enforcement point did not do what was asked
│   ├── Refused               the device said no: place the rule elsewhere or change it
│   └── Drifted               what was read back is not what was sent: resynchronise
├── NotEquivalent             what was compiled is not what the list says: our fault, found before it was published
└── Missing                   a program, right or file this machine lacks    exit 3
"""

from __future__ import annotations


class AclflowError(Exception):
    """Root of the tree. `place` names where in the input the fault lies, e.g. ``rules[3].destination``."""

    def __init__(self, reason: str, *, place: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason

    def within(self, outer: str) -> AclflowError:
        """The same error seen from one level further out: ``destination`` within ``rules[3]``."""
        inner = self.place or ""
        self.place = f"{outer}.{inner}" if inner and not inner.startswith("[") else outer + inner
        return self


class ChangeTheRequest(AclflowError):
    """The input is wrong; nothing was changed and nothing was lost."""


class BadInput(ChangeTheRequest):
    """A value that cannot be read."""


class BadPolicy(ChangeTheRequest):
    """A well-formed request that says what a policy may not say."""


class NotExpressible(ChangeTheRequest):
    """A match or action that the target plane or format cannot carry."""


class TooLarge(ChangeTheRequest):
    """Over a limit of size, quota, levels or priorities."""


class Conflict(ChangeTheRequest):
    """Somebody else holds the name, the prefix or the key."""


class ApprovalNeeded(Conflict):
    """Another person must approve this change first."""


class Stale(ChangeTheRequest):
    """The precondition (If-Match, base digest) does not hold any more."""


class NotAllowed(AclflowError):
    """The caller may not do this."""


class Unauthenticated(NotAllowed):
    """No token, or one that is wrong, expired or used up."""


class Forbidden(NotAllowed):
    """A good token without the role that this needs."""


class NotFound(AclflowError):
    """No such thing, or it is not yours: the two look the same on purpose."""


class TryAgain(AclflowError):
    """The same request may work later: after `after_s` seconds if that is known."""

    def __init__(self, reason: str, *, place: str | None = None, after_s: float | None = None) -> None:
        super().__init__(reason, place=place)
        self.after_s = after_s


class Busy(TryAgain):
    """The store is locked or the service is still starting."""


class TooOften(TryAgain):
    """It was tried too often."""


class Full(TryAgain):
    """The disk of the store is full: nothing can be changed until somebody makes room."""


class Unreachable(TryAgain):
    """A switch, a service or a database does not answer."""


class DeviceError(AclflowError):
    """An enforcement point did not do what was asked."""


class Refused(DeviceError):
    """The device said no."""


class Drifted(DeviceError):
    """The device holds something else than was sent."""


class NotEquivalent(AclflowError):
    """The compiled program differs from the list: a fault of ours, found before publishing."""


class Missing(AclflowError):
    """A program, a right or a file that this machine lacks."""
