"""A kubelet and a simulated node of `haru fleet` run the same pods of one kube-apiserver: what both say of them.

    export PYTHONPATH=.:tests:tests/side_by_side
    python -m simulated_compared --kubernetes FOLDER [--case NAME]

It needs what kubelets_compared.py needs, whose cases it plays, but for those that touch the node or ask a container.
Each difference is printed once, and is to be judged: a simulated container does what its script says as far as that is
understood, ends at once when it is told to (143), and has no resources. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import kubelets_compared as kubelets
from benchmarks.control_planes import haru_program, serving
from kubectl_answers import QUESTIONS
from kubelet_cases import CASES, Step
from kubelets_compared import Side
from manifests import Obj

from containerd_process import Containerd, busybox_image

_PREFIX: Final = "simulated."
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_OF_MACHINES: Final = ("allocatedResources", "resources", "stopSignal", "user", "volumeMounts")
"""What a status tells of control groups, users and mounts."""


class _Node(Side):
    """A node of which only its pods count."""

    def listed(self, namespace: str, kind: str) -> list[Obj]:
        """The objects of a namespace, without what only machines have."""
        found = super().listed(namespace, kind)
        for status in (one["status"] for one in found if kind == "pods"):
            for each in (status, *(each for member in _STATUSES for each in status.get(member) or ())):
                for name in _OF_MACHINES:
                    each.pop(name, None)
        return found

    def images(self) -> list[str]:
        """None counts."""
        return []

    def node_events(self) -> list[str]:
        """None counts."""
        return []


class _Simulated(_Node):
    """The node of the fleet."""

    @property
    def node(self) -> str:
        """Its name: the first of its profile."""
        return f"{_PREFIX}cpu-0"


def is_played(steps: Sequence[Step]) -> bool:
    """Whether a case does nothing but create objects and change them."""
    words = [change[0] for step in steps for change in step if not isinstance(change, dict)]
    return set(words) <= {"annotate", "debug", "delete", "label", "patch", *QUESTIONS}


@contextlib.contextmanager
def nodes(programs: Path, home: Path) -> Iterator[tuple[Side, Side]]:
    """A kube-apiserver with a kubelet and a fleet of one node, until the block is left."""
    with contextlib.ExitStack() as stack:
        on_loopback = [f"{kubelets._NODE_ADDRESS}/32", "dev", "lo"]
        subprocess.run(["ip", "address", "replace", *on_loopback], check=True)
        stack.callback(subprocess.run, ["ip", "address", "del", *on_loopback], check=False)
        server = stack.enter_context(serving(str(programs / "kube-apiserver"), ["--allow-privileged"]))
        pid = server.processes["apiserver"]
        real = _Node("kubelet", server.kubeconfig, home / "kubelet", pid)
        simulated = _Simulated("haru", server.kubeconfig, home / "haru", pid)
        for side in (real, simulated):
            (side.home / "host").mkdir(parents=True)
            stack.callback(side.stop)
        (real.home / "n").mkdir()
        runtime = Containerd(real.runtime)
        stack.callback(kubelets._leave, real)
        stack.callback(runtime.stop)
        runtime.start()
        runtime.add_image(busybox_image("haru.test/unused:1"))
        kubelets._make_groups(real.name)
        real.start(kubelets._kubelet(real, runtime, programs))
        fleet = ["fleet", f"--kubeconfig={server.kubeconfig}", "--profile=cpu:1", f"--name-prefix={_PREFIX}"]
        simulated.start([*haru_program("haru"), *fleet, "--no-taint"])
        for side in (real, simulated):
            named = f"--field-selector=metadata.name={side.node}"
            while not side.kubectl("get", "nodes", "-o", "name", named):
                time.sleep(1)
            side.kubectl("wait", "node", side.node, "--for=condition=Ready", "--timeout=60s")
            side.kubectl("taint", "node", side.node, "node.kubernetes.io/not-ready-")
            side.refused()
        yield real, simulated


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; 1 if there are any."""
    played = [name for name, steps in CASES.items() if is_played(steps)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", type=Path, required=True, help="folder with Kubernetes' programs")
    parser.add_argument("--case", action="append", choices=played, help="this case alone; may be repeated")
    options = parser.parse_args(arguments)
    names = options.case or played
    for name in names:
        CASES[name] = [
            [one for one in step if isinstance(one, dict) or one[0] not in QUESTIONS] for step in CASES[name]
        ]
    with tempfile.TemporaryDirectory(prefix="sc-") as home, nodes(options.kubernetes, Path(home)) as sides:
        size = kubelets.BATCH
        batches = [names[first : first + size] for first in range(0, len(names), size)]
        found = sum(kubelets.compared(sides, batch, number) for number, batch in enumerate(batches))
    print(f"{found} pods with differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
