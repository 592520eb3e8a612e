"""A cloud in which instances run, on this machine.

python -m twohosts stay             until Ctrl-C, with an instance of each of two projects; then it is removed
python -m twohosts begin DIRECTORY  one that stays, to try things by hand or to run tests against
python -m twohosts end DIRECTORY    its end
python -m twohosts bench OPTION...  `aclflow bench cloud` with these options in one that is removed afterwards
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from allinone.place import PASSWORD

from orchestrator.bench.cloud.suite import SITE
from orchestrator.lab.interrupts import Interrupts
from twohosts import example, network
from twohosts.addresses import OUTSIDE, PREFIX, PROJECTS
from twohosts.beside import ovs_network, write_site
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.hosts import ACLFLOW
from twohosts.projects import Project


def main() -> int:
    """Do as told."""
    match sys.argv[1:]:
        case ["stay"]:
            stay()
        case ["begin", directory]:
            show(begin(Path(directory).absolute()), {})
        case ["end", directory]:
            Cloud.in_directory(Path(directory).absolute()).end()
        case ["bench", *options]:
            return bench(options)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def begin(directory: Path) -> Cloud:
    """Begin a cloud in a directory. Raises Conflict where one is up."""
    network.create(PREFIX)
    cloud = Cloud.in_directory(directory)
    cloud.begin()
    return cloud


def stay() -> None:
    """Begin a cloud, boot two instances, show what to try, and remove all of it at Ctrl-C. Raises Conflict."""
    with temporary() as cloud:
        print("booting an instance of each of two projects", flush=True)
        show(cloud, example.begin(cloud))
        print("It stays up until Ctrl-C, which removes everything.", flush=True)
        signal.pause()


def bench(options: Sequence[str]) -> int:
    """Measure both firewalls in a cloud; return what the command ended with. Raises Conflict."""
    ended = 1
    with temporary() as cloud:
        project = Project(cloud.place, next(iter(PROJECTS)))
        example.wait_for_tenant(cloud, project)
        with ovs_network(cloud, project) as made:
            settings = {**os.environ, SITE: str(write_site(cloud, project, made))}
            ended = subprocess.run((*ACLFLOW, "bench", "cloud", *options), env=settings, check=False).returncode
    return ended


@contextmanager
def temporary() -> Iterator[Cloud]:
    """Begin a cloud; all of it is removed when the block ends, or at Ctrl-C. Raises Conflict."""
    network.create(PREFIX)
    directory = Path(tempfile.mkdtemp(prefix="aclflow-cloud-", dir="/var/tmp"))
    cloud = Cloud.in_directory(directory)
    with Interrupts() as interrupts:
        try:
            print(
                "beginning Keystone, Glance, Placement, Neutron, Nova, Heat and two compute hosts: minutes", flush=True
            )
            cloud.begin()
            yield cloud
        except KeyboardInterrupt:
            print("removing everything", flush=True)
        finally:
            interrupts.ignore()
            cloud.end()
            shutil.rmtree(directory)


def show(cloud: Cloud, instances: Mapping[str, Instance]) -> None:
    """Print where everything is, and what to try."""
    for each in instances.values():
        print(f"{each.name:8} {each.address:15} of {each.project.name}, on host {each.host}")
    print(f"Keystone {cloud.place.keystone}  user admin, password {PASSWORD}, project admin, blue or red")
    print(f"API      {cloud.control.url}/v1")
    print(f"token    {cloud.control.token}")
    print(f"console  {cloud.control.console()}")
    if "shop" in instances:
        print(f"try      ip netns exec {cloud.prefix}{OUTSIDE} ping {instances['shop'].address}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
