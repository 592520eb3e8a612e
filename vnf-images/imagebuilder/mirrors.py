"""Where packages come from: the mirrors that this machine uses itself, unless others are named.

Who has a mirror of its own, or reaches no other, has said so once already: in apt's sources (what `apt-get update` took
of them). A root that is being made has no certificates of authorities yet, so only a mirror over HTTP is taken over;
packages are signed.
"""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.tools import run

_SUITE = "bookworm"
_DEBIAN, _SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Of Debian, and of its security fixes; an image keeps them as its sources."""

    debian: str = _DEBIAN
    security: str = _SECURITY


def mirrors(debian: str | None = None, security: str | None = None) -> Mirrors:
    """Those that are named, else this machine's, else Debian's own. Raises Fault."""
    ours = read(run("apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"))
    return Mirrors(debian or ours.debian, security or ours.security)


def read(targets: str) -> Mirrors:
    """The mirrors of Debian 12 among lines of a release's code name and its mirror's URL; the first of each counts."""
    found: dict[str, str] = {}
    for line in targets.splitlines():
        name, url = line.split()
        if url.startswith("http://"):
            found.setdefault(name, url.rstrip("/"))
    return Mirrors(found.get(_SUITE, _DEBIAN), found.get(f"{_SUITE}-security", _SECURITY))
