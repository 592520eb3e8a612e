"""`aclflow devices`: what packets can be classified on here."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.classify.devices.choice import Listed, list_devices
from orchestrator.cli.options import taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark

_MIB = 1 << 20


@taking
def devices(shown: Shown) -> None:
    """List the devices that packets can be classified on.

    The first column is what `--device` takes; c, the classifier that runs on the processor, is there always.
    """
    found = list_devices()
    document = {
        "devices": [*_write_devices(found)],
        "missing": {each.library: each.missing for each in found if each.missing},
    }
    rows = [(each["device"], each["name"], each["units"], each["memory_mib"]) for each in _write_devices(found)]
    columns = ("device", "name", "units", "memory MiB")
    shown.say(document, columns, [("c", "this machine's processor", "", ""), *rows])
    for each in found:
        if each.missing and not shown.is_document:
            remark(f"{each.library}: {each.missing}")


def _write_devices(found: tuple[Listed, ...]) -> Iterator[dict[str, object]]:
    for library in found:
        for number, device in enumerate(library.devices):
            yield {
                "device": f"{library.library}:{number}",
                "name": device.name,
                "accelerator": device.is_accelerator,
                "units": device.limits.units,
                "memory_mib": device.limits.memory_bytes // _MIB,
            }
