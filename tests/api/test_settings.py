"""Settings: environment over file over default, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import BadInput, Missing
from orchestrator.settings import Settings, load


def test_defaults_need_nothing() -> None:
    settings = load({})
    assert settings == Settings()
    assert settings.database_url == "sqlite:////var/lib/aclflow/aclflow.db"
    assert settings.listen_host == "127.0.0.1"


def test_the_environment_goes_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "aclflow.yaml"
    file.write_text("listen_port: 9000\nstate_dir: /srv/acl\nbusy_timeout_s: 2\n")
    settings = load({"ACLFLOW_CONFIG": str(file), "ACLFLOW_LISTEN_PORT": "9001", "HOME": "/root"})
    assert (settings.listen_port, settings.busy_timeout_s) == (9001, 2.0)
    assert settings.database_url == "sqlite:////srv/acl/aclflow.db"


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"ACLFLOW_LISTEN_PORT": "http"}, "ACLFLOW_LISTEN_PORT"),
        ({"ACLFLOW_LISTEN_PORT": "70000"}, "ACLFLOW_LISTEN_PORT"),
        ({"ACLFLOW_BODY_LIMIT_BYTES": "0"}, "ACLFLOW_BODY_LIMIT_BYTES"),
        ({"ACLFLOW_WATCH_LIMIT_S": "nan"}, "ACLFLOW_WATCH_LIMIT_S"),
        ({"ACLFLOW_LOG_FORMAT": "xml"}, "ACLFLOW_LOG_FORMAT"),
        ({"ACLFLOW_REQUEST_THREADS": "11"}, "ACLFLOW_REQUEST_THREADS"),
        ({"ACLFLOW_DATABASE_CONNECTIONS": "0"}, "ACLFLOW_DATABASE_CONNECTIONS"),
        ({"ACLFLOW_TLS_CERTIFICATE": "/x.pem"}, "ACLFLOW_TLS_CERTIFICATE"),
    ],
)
def test_a_bad_value_names_its_variable(environment: dict[str, str], place: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(environment)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listen_prot: 1", "'listen_prot' is no setting; they are state_dir"),
        ("listen_port: [1]", "one text or number"),
        ("listen_port: true", "one text or number"),
        ("- a", "`name: value` lines"),
        ("a: b: c", "not YAML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "aclflow.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=reason.replace("[", r"\[")) as caught:
        load({"ACLFLOW_CONFIG": str(file)})
    assert str(file) in (caught.value.place or "")


def test_a_bad_value_in_the_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "aclflow.yaml"
    file.write_text("listen_port: 99999\n")
    with pytest.raises(BadInput) as caught:
        load({"ACLFLOW_CONFIG": str(file)})
    assert caught.value.place == f"{file}: listen_port"


def test_a_file_that_is_not_there_is_missed(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        load({"ACLFLOW_CONFIG": str(tmp_path / "none.yaml")})


def test_secrets_are_not_shown() -> None:
    shown = repr(load({"ACLFLOW_TOKEN": "tiger", "ACLFLOW_DATABASE_URL": "postgresql+psycopg://u:lion@h/n"}))
    assert "tiger" not in shown
    assert "lion" not in shown
