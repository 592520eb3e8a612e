"""The operator's settings for OpenStack, as one frozen value."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

from orchestrator.cloud.base import Pace
from orchestrator.errors import BadInput, Missing

FLEET, ALARMS = "fleet", "alarms"
"""Kinds of stacks: groups that aclflow moves, and groups that alarms of the cloud move."""
_INSTALLATION = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,31}\Z")
_CHECKOUT = Path(__file__).resolve().parents[3] / "heat-templates"
_INSTALLED = Path(sys.prefix) / "share" / "aclflow" / "heat"
_HEAT_ENDS_S = 75.0
"""After this time Heat has answered, if only that its engine did not in a minute (its `rpc_response_timeout`)."""
_NUMBERS = ("request_s", "stack_minutes", "look_s", "look_most_s")
_PATHS = ("clouds_file", "templates", "environment", "group_tokens")


@dataclass(frozen=True, slots=True)
class HeatSettings:
    """Raises BadInput with the key as its place.

    `environment` is a Heat environment file with what belongs to this cloud: image, flavor, networks. `group_tokens` is
    a folder with a file for each group (``pop1.token``) that holds what `aclflow domain group invite` printed.
    """

    environment: Path
    group_tokens: Path
    cloud: str | None = None
    """The entry of clouds.yaml; none: what the environment's OS_CLOUD or OS_* say."""
    clouds_file: Path | None = None
    """clouds.yaml, where it is not in one of the usual places."""
    templates: Path = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
    installation: str = "aclflow"
    """Begins the names of the stacks: another one for another service of aclflow in the same project."""
    request_s: float = 10.0
    """How long one request may take."""
    stack_minutes: int = 30
    """After how long Heat gives up creating or changing a stack."""
    look_s: float = 2.0
    """How soon it is looked at again while VNFs come or go; less and less often while nothing moves."""
    look_most_s: float = 5.0
    """How far apart looks are at most, and how often while all serve."""
    left_port: str = ""
    """The spreading switch's interface towards the network of the VNFs' left sides; none: their own devices are its."""
    right_port: str = ""
    """The same of their right sides."""

    def __post_init__(self) -> None:
        if not _INSTALLATION.match(self.installation):
            raise BadInput("1 to 32 letters, digits and hyphens, beginning with a letter", place="installation")
        if not 0.1 <= self.request_s <= 600:
            raise BadInput(f"{self.request_s} s is not in 0.1..600", place="request_s")
        if not 1 <= self.stack_minutes <= 1440:
            raise BadInput(f"{self.stack_minutes} minutes are not in 1..1440", place="stack_minutes")
        for key, most_s in (("look_most_s", 300.0), ("look_s", self.look_most_s)):
            if not 0.1 <= (value := getattr(self, key)) <= most_s:
                raise BadInput(f"{value:g} s is not in 0.1..{most_s:g}", place=key)
        if bool(self.left_port) != bool(self.right_port):
            raise BadInput("a port towards either side, or none", place="right_port" if self.left_port else "left_port")

    @property
    def links(self) -> Mapping[str, str]:
        """The spreading switch's interface towards each side of VNFs.

        A side is left out where the VNFs' own devices are its interfaces.
        """
        named = {"left": self.left_port, "right": self.right_port}
        return {side: port for side, port in named.items() if port}

    def patient(self) -> HeatSettings:
        """Return settings for a person who waits once.

        Where the service would look again, no answer of Heat's is given up early.

        Before Heat takes a stack it reads all its templates, and asks the other services for what they name.
        """
        return replace(self, request_s=max(self.request_s, _HEAT_ENDS_S))

    @property
    def pace(self) -> Pace:
        """How often the cloud is looked at."""
        return Pace(self.look_s, self.look_most_s)

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> HeatSettings:
        """Read settings from a file's mapping; `kind` is not ours. Raises BadInput."""
        known = {each.name for each in fields(cls)}
        values: dict[str, object] = {}
        for key, value in settings.items():
            if key == "kind":
                continue
            if key not in known:
                raise BadInput(f"is no setting; they are {', '.join(sorted(known))}", place=str(key))
            values[key] = _check_value(key, value)
        for key in ("environment", "group_tokens"):
            if key not in values:
                raise BadInput("must be set", place=key)
        return cls(**values)  # type: ignore[arg-type]  # _check_value gives each field its own type

    def template(self, name: str) -> Path:
        """Where a template is. Raises Missing."""
        path = self.templates / name
        if not path.is_file():
            raise Missing("there is no such template", place=str(path))
        return path

    def flavor(self) -> str:
        """The flavor of a VNF in the environment file; empty where it has none.

        Raises BadInput.
        """
        try:
            document = yaml.safe_load(self.environment.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            words = " ".join(str(error).split())
            raise BadInput(f"the environment file cannot be read: {words}", place=str(self.environment)) from None
        parameters = document.get("parameters") if isinstance(document, dict) else None
        return str(parameters.get("flavor", "")) if isinstance(parameters, dict) else ""

    def token_of(self, domain: str, group: str) -> str:
        """The token of a group, for a domain. Raises Missing, with what makes one."""
        path = self.group_tokens / f"{group}.token"
        try:
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            made = f"aclflow domain group invite {domain} {group}"
            raise Missing(f"the group's token cannot be read ({error}); `{made}` makes one", place=str(path)) from None
        if len(token.split()) != 1:
            raise Missing("the file holds no token", place=str(path))
        return token

    def stack_name(self, fleet: str, kind: str = FLEET) -> str:
        """Return the name of a fleet's stack of a kind.

        Raises BadInput for a name that no stack can have.
        """
        if ":" in fleet:
            raise BadInput("Heat takes no stack with a colon in its name: choose another domain", place="fleet")
        return f"{self.installation}-{kind}-{fleet}"

    def fleet_of(self, stack_name: str, kind: str = FLEET) -> str | None:
        """Return the fleet of a stack of a kind; None for stacks of others."""
        head = f"{self.installation}-{kind}-"
        return stack_name[len(head) :] if stack_name.startswith(head) and len(stack_name) > len(head) else None

    @property
    def tag(self) -> str:
        """The tag of this installation's fleets."""
        return self.tag_of(FLEET)

    def tag_of(self, kind: str) -> str:
        """Return the tag of this installation's stacks of a kind."""
        return f"aclflow-{kind}-{self.installation}"


def _check_value(key: str, value: object) -> object:
    if key in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadInput(f"{value!r} is no number", place=key)
        if key == "stack_minutes" and not float(value).is_integer():
            raise BadInput(f"{value} is no whole number of minutes", place=key)
        return int(value) if key == "stack_minutes" else float(value)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{value!r} is no text", place=key)
    return Path(value).expanduser() if key in _PATHS else value
