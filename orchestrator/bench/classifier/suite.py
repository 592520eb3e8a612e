"""Suite classifier: the cost of finding a packet's first rule in user space."""

from __future__ import annotations

from orchestrator.bench.classifier import cpu, devices, queue, replay
from orchestrator.bench.progress import Progress
from orchestrator.bench.results import Results
from orchestrator.classify.devices.choice import list_devices


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer sizes and rounds.

    Devices that are there are measured; none is needed.
    """
    results = Results("classifier", {"quick": quick})
    cpu.measure(results, quick=quick, progress=progress)
    replay.measure(results, quick=quick, progress=progress)
    queue.measure(results, quick=quick, progress=progress)
    libraries = list_devices()
    found = [device for library in libraries for device in library.devices]
    missing = next((library.missing for library in libraries if library.library == "cuda"), None)
    devices.measure(results, found, missing or "no CUDA device", quick=quick, progress=progress)
    return results
