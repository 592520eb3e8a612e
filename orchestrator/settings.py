"""The operator's settings, as one frozen value that is read once.

A setting comes from the environment (``ACLFLOW_LISTEN_PORT``), else from the YAML file that ``ACLFLOW_CONFIG`` names
(``listen_port: 8420``), else from the default below. The fields of `Settings` are the list of what there is; a key that
is not one of them is refused in the file, so that a misspelt setting does not silently keep its default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType

import yaml

from orchestrator.errors import AclflowError, BadInput, Missing
from orchestrator.identity.trust import is_loopback

PREFIX = "ACLFLOW_"
CONFIG = "ACLFLOW_CONFIG"

_DATABASE_FILE = "aclflow.db"
_ABOVE_ZERO = (
    "body_limit_bytes",
    "watch_limit_s",
    "review_limit_s",
    "expiry_lead_s",
    "enforcer_silence_s",
    "heartbeat_s",
    "history_moments_s",
    "history_minutes_s",
    "history_hours_s",
    "history_limit_mb",
    "packet_log_kept",
    "busy_timeout_s",
    "token_days",
    "tenant_changes_a_minute",
    "tenant_changes_a_day",
    "stranger_refusals_a_minute",
    "audit_days",
    "tenant_flows_limit",
    "domain_flows_limit",
    "list_limit_s",
    "cached_rules",
    "event_streams",
    "certificate_look_s",
    "certificate_overlap_s",
)
_AT_LEAST = MappingProxyType({"request_threads": 12, "database_connections": 12})
_WORDS = MappingProxyType({"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False})
_LOG_FORMATS = ("console", "json")
_LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, valid from the start.

    Raises BadInput with the name of the field as its place.
    """

    state_dir: Path = Path("/var/lib/aclflow")
    """Where what must survive a restart is kept, unless a database elsewhere is named."""
    database_url: str = field(default="", repr=False)
    """``sqlite:///path`` or ``postgresql+psycopg://user@host/name``; empty: a SQLite file in `state_dir`."""
    listen_host: str = "127.0.0.1"
    listen_port: int = 8420
    """0 lets the kernel choose; the chosen port is in the event ``listening``."""
    tls: bool = False
    """Speak TLS and know machines by certificates: `aclflow certificates init` makes the authority that signs them."""
    tls_names: str = ""
    """Names and addresses that clients reach the service by, with commas between: what its own certificate bears."""
    tls_certificate: Path | None = None
    """A certificate of somebody else's authority, for the service to show instead of one of its own; with its key."""
    tls_key: Path | None = None
    plain_http: bool = False
    """Speak HTTP without TLS although the address is not of the loopback: tokens can then be read on the way. It holds
    for where the service listens, and for `url`, where clients and enforcement points find it."""
    token_days: float = 365.0
    """How many days a token is good for at most, and where nothing is said; enforcement points replace theirs in time.
    Certificates have a time of their own."""
    backup_recipients: str = ""
    """Who can open backups besides those named on the command line, as ``age1...`` with commas between."""
    body_limit_bytes: int = 64 << 20
    """The largest request body that is read."""
    watch_limit_s: float = 60.0
    """The longest that a watch or a wait may ask to be held; longer ones are answered after this time."""
    review_limit_s: float = 20.0
    """How long a dry run may look for findings, and for differences, before it is given up."""
    expiry_lead_s: float = 86400.0
    """How long before its end a rule is announced to expire."""
    enforcer_silence_s: float = 8.0
    """After how long without a report an enforcement point counts as down; they report every 2.5 s at least. It is told
    a quarter later at most. With many thousands of them, longer costs less."""
    heartbeat_s: float = 15.0
    """How often a stream of events without events says that it is alive."""
    history_moments_s: float = 900.0
    """How long every report of what rules decided is kept."""
    history_minutes_s: float = 2 * 86400.0
    """How long its sums a minute are kept."""
    history_hours_s: float = 400 * 86400.0
    """How long its sums an hour are kept."""
    history_limit_mb: float = 256.0
    """What a domain's history may take up in all; the oldest of the finest goes first."""
    audit_days: float = 400.0
    """How many days the audit trail is kept, and events at the longest."""
    audit_file: Path | None = None
    """A file to which the heads of the audit trail are written once a minute, signed: best on another disk."""
    audit_syslog: str = ""
    """udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH: a collector (RFC 5424) that is sent the same; none: nowhere.
    Empty: where there is no `audit_file` either, the machine's own log (/dev/log), if it has one."""
    tenant_changes_a_minute: float = 1200.0
    """How many changes all members of a tenant together may ask for in a minute; more are answered 429."""
    tenant_changes_a_day: float = 100_000.0
    """The same for a day: so a tenant adds little to the audit trail, however long it goes on."""
    stranger_refusals_a_minute: float = 600.0
    """How many requests without a good token may be refused for one address (of IPv6: a /64) in a minute; more are
    answered 429 unlooked at, but for callers whose token was good at this service before."""
    packet_log_kept: int = 10_000
    """How many packets that rules with `log` decided are kept of each tenant: the newest."""
    packet_log_key: Path | None = None
    """A file with 64 hexadecimal digits (`openssl rand -hex 32`), the key that encrypts the headers of recorded packets
    in the database; none: they are not encrypted."""
    packet_log_file: Path | None = None
    """A file to which such packets are written too, a line of JSON each; none: nowhere."""
    ipfix_collector: str = ""
    """HOST:PORT (UDP) to which they are sent as IPFIX; empty: nowhere."""
    busy_timeout_s: float = 5.0
    """How long a writer waits for another one before the answer is 503. Longer is more requests that wait at once."""
    request_threads: int = 48
    """How many threads do what requests ask for but reads, for which there are a sixth as many; at least 12. A tenant
    or enforcement point has a sixth of the first and two of the second; what else it asks for waits without a thread.
    More let more tenants wait for their turns at once; nothing is computed faster. A thread takes some 20 kB."""
    database_connections: int = 40
    """How many connections to the database the service opens at most; at least 12. PostgreSQL admits 100 in all where
    nothing else is set (`max_connections`), and has a process for each; one to SQLite takes up to 4 MiB. A thread that
    finds none left waits for one, up to `busy_timeout_s`."""
    tenant_flows_limit: int = 400_000
    """How many flow entries the list of any tenant may need at most, estimated before it is compiled."""
    domain_flows_limit: int = 4_000_000
    """The same for all lists of a domain together."""
    list_limit_s: float = 30.0
    """How long a process may compile and prove a change that may bring 50,000 flow entries or more, before it is killed
    and the change refused."""
    cached_rules: int = 2_000_000
    """How many rules of lists are kept in memory, and how many of their names: some 500 bytes a rule, beside the lists
    of domains that the service keeps compiled, which are in memory anyway. Others are read at each use."""
    event_streams: int = 1000
    """How many streams of events may be open at this service; one more is answered 503. A stream takes some 40 kB and
    a file descriptor."""
    url: str = "http://127.0.0.1:8420"
    """Where clients (command line, console, enforcers) find the service."""
    authority: Path | None = None
    """The certificate (PEM) of the authority that the service's must be signed by; none: those the machine believes."""
    cloud: Path | None = None
    """A YAML file about the cloud in which fleets of firewall VNFs are made; none: this service makes no VNFs."""
    local_switch: Path | None = None
    """The run directory of this machine's Open vSwitch, where the service may configure it (`aclflow host add`)."""
    ansible: str = ""
    """The program `ansible-playbook`, with the collection aclflow.cloud where it looks for one: with it the service
    makes hosts of other machines. Empty: it logs in nowhere."""
    ssh_key: Path | None = None
    """With which it logs in to machines; none: what the service's user has."""
    machine_variables: Path | None = None
    """A YAML file with the roles' variables for every machine (`aclflow_wheel`, `aclflow_wheel_sha256` are needed)."""
    certificate_look_s: float = 60.0
    """How often an enforcement point looks whether its certificate or its token is due, and asks which authorities the
    service believes: a roll-over of the authority wants this long between its steps."""
    certificate_overlap_s: float = 120.0
    """How long after a renewal an enforcement point's old certificate or token stays valid: longer than
    `watch_limit_s`."""
    token: str = field(default="", repr=False)
    """What clients show as X-Auth-Token."""
    log_format: str = "console"
    log_level: str = "info"

    def __post_init__(self) -> None:
        if not self.database_url:
            object.__setattr__(self, "database_url", f"sqlite:///{self.state_dir / _DATABASE_FILE}")
        if not 0 <= self.listen_port <= 65535:
            raise BadInput(f"port {self.listen_port} is not in 0..65535", place="listen_port")
        for name in _ABOVE_ZERO:
            if not 0 < getattr(self, name) < float("inf"):
                raise BadInput(f"{getattr(self, name)} is not a number above zero", place=name)
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise BadInput(f"{getattr(self, name)} is less than {least}", place=name)
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise BadInput("a certificate and its key go together: set both or none", place="tls_certificate")
        for name, words in (("log_format", _LOG_FORMATS), ("log_level", _LOG_LEVELS)):
            if getattr(self, name) not in words:
                raise BadInput(f"'{getattr(self, name)}' is none of {', '.join(words)}", place=name)

    @property
    def authority_dir(self) -> Path:
        """Where the service's certificate authority is kept."""
        return self.state_dir / "authority"

    @property
    def audit_dir(self) -> Path:
        """Where the key is kept that signs the audit trail's heads."""
        return self.state_dir / "audit"

    @property
    def programs_dir(self) -> Path:
        """Where domains' programs are kept for the next start."""
        return self.state_dir / "programs"

    @property
    def speaks_tls(self) -> bool:
        return self.tls or self.tls_certificate is not None

    @property
    def tells_secrets(self) -> bool:
        """Return whether the service would speak clear HTTP over a network, without being told to."""
        return not (self.speaks_tls or self.plain_http or is_loopback(self.listen_host))


def _read_yes_or_no(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise BadInput(f"'{text}' is neither yes nor no")
    return _WORDS[text.lower()]


def _read_optional_path(text: str) -> Path | None:
    return Path(text) if text else None


_READERS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {
        "state_dir": Path,
        "listen_port": int,
        "tls": _read_yes_or_no,
        "plain_http": _read_yes_or_no,
        "tls_certificate": _read_optional_path,
        "tls_key": _read_optional_path,
        "authority": _read_optional_path,
        "cloud": _read_optional_path,
        "local_switch": _read_optional_path,
        "ssh_key": _read_optional_path,
        "machine_variables": _read_optional_path,
        "body_limit_bytes": int,
        "token_days": float,
        "watch_limit_s": float,
        "review_limit_s": float,
        "tenant_flows_limit": int,
        "domain_flows_limit": int,
        "list_limit_s": float,
        "cached_rules": int,
        "event_streams": int,
        "request_threads": int,
        "database_connections": int,
        "expiry_lead_s": float,
        "enforcer_silence_s": float,
        "heartbeat_s": float,
        "history_moments_s": float,
        "history_minutes_s": float,
        "history_hours_s": float,
        "history_limit_mb": float,
        "packet_log_kept": int,
        "audit_days": float,
        "audit_file": _read_optional_path,
        "tenant_changes_a_minute": float,
        "tenant_changes_a_day": float,
        "stranger_refusals_a_minute": float,
        "packet_log_key": _read_optional_path,
        "packet_log_file": _read_optional_path,
        "busy_timeout_s": float,
        "certificate_look_s": float,
        "certificate_overlap_s": float,
    }
)
"""How a field's text is read; a field that is not here is the text itself."""


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings.

    Raises BadInput for a value that cannot be one, Missing for a file that is not there.
    """
    environment = os.environ if environment is None else environment
    texts, places = _from_file(environment.get(CONFIG, ""))
    for name in (each.name for each in fields(Settings)):
        variable = PREFIX + name.upper()
        if variable in environment:
            texts[name] = environment[variable]
            places[name] = variable
    values = {name: _read_value(name, text, places[name]) for name, text in texts.items()}
    try:
        return Settings(**values)  # type: ignore[arg-type]  # _READERS gives each field its own type
    except AclflowError as error:
        error.place = places.get(error.place or "", error.place)
        raise


def _from_file(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the file's settings as text, and each one's place for errors."""
    if not path:
        return {}, {}
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Missing(f"the settings file cannot be read: {error.strerror}", place=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"not YAML: {' '.join(str(error).split())}", place=path) from None
    if document is None:
        return {}, {}
    if not isinstance(document, dict):
        raise BadInput("the settings file must hold `name: value` lines", place=path)
    known = [each.name for each in fields(Settings)]
    unknown = next((key for key in document if key not in known), None)
    if unknown is not None:
        raise BadInput(f"'{unknown}' is no setting; they are {', '.join(known)}", place=path)
    places = {name: f"{path}: {name}" for name in document}
    return {name: _spell_value(name, value, places[name]) for name, value in document.items()}, places


def _spell_value(name: str, value: object, place: str) -> str:
    if isinstance(value, bool) and _READERS.get(name) is _read_yes_or_no:
        return "yes" if value else "no"
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadInput("a setting is one text or number", place=place)
    return str(value)


def _read_value(name: str, text: str, place: str) -> object:
    try:
        return _READERS.get(name, str)(text)
    except BadInput as error:
        raise BadInput(error.reason, place=place) from None
    except ValueError:
        raise BadInput(f"'{text}' is not a number", place=place) from None
