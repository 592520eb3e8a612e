"""Open the cloud for firewall VNFs from the file that the setting `cloud` names.

    kind: lab            a running lab on this machine: `orchestrator/lab/cloud.py`
    prefix: aclflow-

    kind: heat           OpenStack, through Heat: `orchestrator/cloud/heat/`
    ...

All other settings there are the cloud's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from orchestrator.cloud.base import Cloud
from orchestrator.errors import AclflowError, BadInput, Missing


def open_cloud(path: Path) -> Cloud:
    """Open the cloud of a file.

    Raises BadInput, with the file and the key as its place, and Missing.
    """
    document = read_cloud_file(path)
    try:
        match document.get("kind"):
            case "lab":
                from orchestrator.lab import cloud as lab  # noqa: PLC0415 -- most services need neither of them

                return lab.open_lab(document)
            case "heat":
                from orchestrator.cloud import heat  # noqa: PLC0415

                return heat.open_cloud(document)
            case other:
                raise BadInput(f"{other!r} is no kind of cloud: say lab or heat", place="kind")
    except AclflowError as error:
        raise error.within(str(path)) from None


def read_cloud_file(path: Path) -> Mapping[str, object]:
    """Read a cloud's file.

    Raises BadInput and Missing, with the file as the place.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Missing(f"the cloud's file cannot be read: {error.strerror}", place=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"not YAML: {' '.join(str(error).split())}", place=str(path)) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise BadInput("holds `name: value` lines", place=str(path))
    return found
