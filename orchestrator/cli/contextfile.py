"""Services by name, with token and authority, in a file that only its owner reads.

The file is ``~/.config/aclflow/contexts.json`` (``$XDG_CONFIG_HOME``). The context in ACLFLOW_CONTEXT goes first, then
ACLFLOW_TOKEN in the environment, then the context in use, then the cloud that OS_CLOUD names, where clouds.yaml says
which aclflow belongs to it:

    clouds: {prod: {auth: {...}, aclflow: {url: https://aclflow.example:8420, token: aclflow_..., authority: ca.pem}}}

A context's token is sent to that context's URL only.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestrator.errors import BadInput, Missing, NotFound
from orchestrator.settings import Settings

CHOSEN = "ACLFLOW_CONTEXT"
_HELD_BACK = 0o077
"""Rights of others that a file with tokens must not give."""


@dataclass(frozen=True, slots=True)
class Context:
    """A service, and how to reach it."""

    url: str
    token: str
    authority: str | None = None
    plain_http: bool = False
    """Whether the URL may be without TLS and lead off this machine."""

    def to_json(self) -> dict[str, object]:
        """Return the context as the file has it; older versions do not know `plain_http`."""
        return {name: value for name, value in asdict(self).items() if name != "plain_http" or value}

    def __repr__(self) -> str:
        return f"Context(url={self.url!r})"


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a user; `current` is the one in use."""

    named: Mapping[str, Context]
    current: str | None

    @classmethod
    def load(cls) -> Contexts:
        """Read the file; there are no contexts where there is no file.

        Raises BadInput and Missing that name it.
        """
        path = contexts_file()
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & _HELD_BACK:
                    raise BadInput(f"others may read it, and it holds tokens: chmod 600 {path}", place=str(path))
                document = json.loads(file.read())
            named = {name: Context(**each) for name, each in document["contexts"].items()}
            return cls(named, document["current"])
        except FileNotFoundError:
            return cls({}, None)
        except OSError as error:
            raise Missing(f"it cannot be read: {error.strerror}", place=str(path)) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput("it is no file of contexts: delete it, and add them again", place=str(path)) from None

    def save(self) -> None:
        """Write the file, whole or not at all, readable by its owner only. Raises Missing."""
        path = contexts_file()
        document = {"current": self.current, "contexts": {name: each.to_json() for name, each in self.named.items()}}
        fresh = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):
                fresh.unlink()
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(document, file, indent=2)
            fresh.replace(path)
        except OSError as error:
            raise Missing(f"it cannot be written: {error.strerror}", place=str(path)) from None

    def get(self, name: str) -> Context:
        """Return a context by its name. Raises NotFound."""
        if name not in self.named:
            raise NotFound(f"there is no context '{name}'")
        return self.named[name]


def contexts_file() -> Path:
    """Where contexts are kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "aclflow" / "contexts.json"


def context_of_cloud() -> tuple[str, Context] | None:
    """Return the service that clouds.yaml names for the cloud in OS_CLOUD, if any.

    Raises BadInput and Missing.
    """
    cloud = os.environ.get("OS_CLOUD")
    path = next((each for each in _cloud_files() if each.is_file()), None)
    if not cloud or path is None:
        return None
    import yaml  # noqa: PLC0415 - few have one

    try:
        with path.open("rb") as file:
            is_open = os.fstat(file.fileno()).st_mode & _HELD_BACK
            found = yaml.safe_load(file)["clouds"].get(cloud, {}).get("aclflow")
        if found is None:
            return None
        plain_http = found.pop("plain_http", False) is True
        context = Context(**{name: str(value) for name, value in found.items()}, plain_http=plain_http)
    except OSError as error:
        raise Missing(f"it cannot be read: {error.strerror}", place=str(path)) from None
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError):
        shape = "aclflow: {url: ..., token: ..., authority: ...}"
        raise BadInput(f"what cloud '{cloud}' says of aclflow cannot be read: {shape}", place=str(path)) from None
    if is_open:
        raise BadInput(f"others may read it, and it holds a token: chmod 600 {path}", place=str(path))
    return cloud, context


def reason_without_cloud() -> str:
    """Why the cloud in OS_CLOUD names no service, for people; empty without OS_CLOUD."""
    cloud = os.environ.get("OS_CLOUD")
    if not cloud:
        return ""
    path = next((each for each in _cloud_files() if each.is_file()), None)
    if path is None:
        return f"OS_CLOUD names cloud '{cloud}', and there is no clouds.yaml"
    return f"{path} says of no aclflow that belongs to cloud '{cloud}', which OS_CLOUD names"


def _cloud_files() -> Iterator[Path]:
    """Where OpenStack's tools look for clouds.yaml, in their order."""
    named = os.environ.get("OS_CLIENT_CONFIG_FILE")
    if named:
        yield Path(named)
    yield Path("clouds.yaml")
    yield contexts_file().parents[1] / "openstack" / "clouds.yaml"
    yield Path("/etc/openstack/clouds.yaml")


def with_context(settings: Settings, url: str | None) -> Settings:
    """Return settings with URL, token and authority of the context that applies.

    Raises BadInput, Missing, NotFound. A URL that is said elsewhere and is not the context's is refused: its token is
    not sent there.
    """
    stated = url or (settings.url if settings.url != Settings.__dataclass_fields__["url"].default else None)
    chosen = os.environ.get(CHOSEN)
    if settings.token and not chosen:
        return replace(settings, url=stated or settings.url)
    contexts = Contexts.load()
    name = chosen or contexts.current
    found = (name, contexts.get(name)) if name is not None else context_of_cloud()
    if found is None:
        return replace(settings, url=stated or settings.url)
    name, context = found
    if stated is not None and stated.rstrip("/") != context.url.rstrip("/"):
        raise BadInput(f"{stated} is not the service of context '{name}', whose token is not sent there", place="--url")
    authority = Path(context.authority) if context.authority else settings.authority
    plain_http = settings.plain_http or context.plain_http
    return replace(settings, url=context.url, token=context.token, authority=authority, plain_http=plain_http)
