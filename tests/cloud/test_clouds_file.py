"""The file that names a cloud: every fault of it is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.clouds import open_cloud
from orchestrator.errors import BadInput, Missing

WRONG = [
    ("kind: azure", "kind: 'azure' is no kind of cloud: say lab or heat"),
    ("prefix: x-", "kind: None is no kind of cloud"),
    ("- a\n- b", "holds `name: value` lines"),
    ("{", "not YAML"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_file_that_names_no_cloud_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        open_cloud(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="cannot be read"):
        open_cloud(tmp_path / "none.yaml")
