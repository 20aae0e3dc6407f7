"""A kubelet and `haru node` run the same pods, each on a containerd of its own: what both say of them.

    export PYTHONPATH=.:tests:tests/side_by_side
    python -m kubelets_compared --kubernetes FOLDER [--case NAME]

The folder holds kube-apiserver and kubelet; `etcd`, `kubectl`, `containerd`, `runc` and a static busybox are on PATH.
It needs root and `ip`, and listens on the loopback alone. Both nodes are of one kube-apiserver. After each step of a
case its pods come to rest, and each difference is printed once: between their statuses and events, what kubectl is told
of them, the images of the nodes and the events about these. Times, uids, addresses, ids, counts of restarts and what is
known (kubelet_told.py) do not count, nor what both say at moments of their own. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from benchmarks.control_planes import free_port, haru_program, serving
from benchmarks.processes import started
from kubectl_answers import QUESTIONS, answer
from kubelet_cases import (
    BOOT,
    CASES,
    DIRECTORY,
    END_SANDBOX,
    NODE,
    PAUSE_SERVER,
    PORT,
    REMOVE_IMAGE,
    RESTART,
    UID_OF,
    Step,
)
from kubelet_told import differing, plain, told
from machine_boot import boot, unmount_below, with_boot_id
from manifests import Obj

from containerd_process import Containerd, busybox_image

BATCH = 8
QUIET_SECONDS, MOST_SECONDS = 6.0, 45.0
MOMENT_SECONDS = 30.0
"""How long both sides may take to tell the same of a pod once: the moments of a crash loop differ."""
HARD = {"memory.available": "1Mi", "nodefs.available": "64Mi", "imagefs.available": "100Mi"}
SOFT = {"nodefs.available": "200Mi"}
SOFT_SECONDS, MOST_GRACE = 10, 4
"""How long a soft threshold is met before a pod goes, and how long it has then at most."""
_DISKS = {"n": "size=512m,nr_inodes=100k", "m": "size=600m"}
"""Of a node's directory, and of its runtime: small, so that a pod can fill them."""
_IMAGES = {"haru.test/unused:1": 100 << 20, "haru.test/gone:1": 1}
"""Beside that of the tests, with their sizes: one that no pod has, and one that cases remove."""
_HEALTH = ("60", "61")
"""How the ports of a gRPC server end: the one with a health service, the one without."""
_UNMEASURED = "InvalidDiskCapacity"
"""What a kubelet says of its node before it has measured the disk of images for the first time."""
_NODE_ADDRESS = "198.51.100.77"
"""Of both nodes: no address of the loopback as kubelets take it, but on its device alone."""
_PORTS = {"kubelet": "247", "haru": "248"}
"""How the ports begin that servers in pods with the network of this machine have: none that clients are given."""
_NEED_CDI = ("driver-nocdi",)
"""Cases for a runtime with CDI: an older one ignores devices, and `haru node` takes care of them itself."""
_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Side:
    """One of the two nodes."""

    name: str
    kubeconfig: Path
    home: Path
    server: int = 0
    """The process of the API server."""
    agent: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Its process."""
    containerd: list[Containerd] = field(default_factory=list)
    """Its container runtime."""
    refusals: list[str] = field(default_factory=list)
    """What kubectl was refused since they were looked at last."""

    @property
    def node(self) -> str:
        """The name of its Node."""
        return f"{self.name}.node"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl prints; what it is refused is noted."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *words]
        answer = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if answer.returncode:
            self.refusals.append(f"{' '.join(words)}: {answer.stderr.strip()[:300]}")
        return answer.stdout

    def listed(self, namespace: str, kind: str) -> list[Obj]:
        """The objects of a namespace."""
        found: list[Obj] = json.loads(self.kubectl("get", kind, "-o", "json", "-n", namespace) or '{"items": []}')[
            "items"
        ]
        return found

    @property
    def runtime(self) -> Path:
        """The directory of its container runtime."""
        return self.home / "m" / "r"

    def images(self) -> list[str]:
        """The images that its runtime has, and knows as its own."""
        listed = self.containerd[0].ctr("images", "ls", "-q", 'labels."io.cri-containerd.image"==managed').stdout
        return sorted(name for name in listed.split() if name.startswith("haru.test/"))

    def node_events(self) -> list[str]:
        """What its agent has said of the node."""
        listed = self.listed("default", "events")
        found = [one for one in listed if one["involvedObject"]["name"] == self.node and one["reason"] != _UNMEASURED]
        return sorted({f"event: {one['type']} {one['reason']}: {plain(one['message'], self)}" for one in found})

    def carry_out(self, namespace: str, step: Step) -> list[str]:
        """Do one step of a case; what kubectl said of what it was asked."""
        said = []
        for change in step:
            if isinstance(change, dict):
                text = json.dumps(change).replace(NODE, self.node).replace(DIRECTORY, str(self.home / "host"))
                text = PORT.sub(lambda found: _PORTS[self.name] + (found[1] or found[2]), text)
                self.kubectl("create", "-n", namespace, "-f", "-", stdin=text)
            elif change in (RESTART, BOOT):
                self.restart(boots=change == BOOT)
            elif change[0] == REMOVE_IMAGE:
                self.containerd[0].ctr("images", "rm", "--sync", change[1])
            elif change[0] == END_SANDBOX:
                kinds = f'labels."io.kubernetes.pod.name"=={change[1]},labels."io.cri-containerd.kind"==sandbox'
                for sandbox in self.containerd[0].ctr("containers", "ls", "-q", kinds).stdout.split():
                    self.containerd[0].ctr("tasks", "kill", "-s", "SIGKILL", sandbox, check=False)
            elif change[0] == PAUSE_SERVER:
                os.kill(self.server, signal.SIGSTOP)
                time.sleep(float(change[1]))
                os.kill(self.server, signal.SIGCONT)
            elif change[0] in QUESTIONS:
                words = [PORT.sub(lambda found: _PORTS[self.name] + found[2], word) for word in change]
                kubectl = ["kubectl", f"--kubeconfig={self.kubeconfig}", "-n", namespace]
                said += [plain(line, self) for line in answer(kubectl, words)]
            else:
                self.kubectl("-n", namespace, *(self._with_uid(namespace, word) for word in change))
        return [*said, *self.refused()]

    def refused(self) -> list[str]:
        """What kubectl was refused, once."""
        found = [plain(line, self) for line in self.refusals]
        self.refusals.clear()
        return found

    def restart(self, *, boots: bool) -> None:
        """End its agent without a word and run it again, with the same flags; or its whole machine."""
        old = self.agent.pop()
        old.kill()
        old.wait()
        command = [str(word) for word in old.args]  # type: ignore[union-attr]
        if boots:
            boot(self.containerd[0], _groups(self.name), self.home / "n", self.home / "boot")
            command = with_boot_id(self.home / "boot", command)
        self.start(command)

    def start(self, command: Sequence[str]) -> None:
        """Run its agent."""
        with (self.home / "log").open("ab") as log:
            self.agent.append(subprocess.Popen(list(command), stdout=log, stderr=log))

    def stop(self) -> None:
        """End its agent."""
        for process in self.agent:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _with_uid(self, namespace: str, word: str) -> str:
        before, stands, rest = word.partition(UID_OF)
        if not stands:
            return word
        name = rest.partition('"')[0]
        uid = self.kubectl("get", "pod", name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
        return before + uid + rest.removeprefix(name)


def settle(sides: Sequence[Side], namespaces: Sequence[str]) -> None:
    """Wait until no pod has changed for some seconds, at most three quarters of a minute."""
    end, since, before = time.monotonic() + MOST_SECONDS, time.monotonic(), ""
    while time.monotonic() < min(end, since + QUIET_SECONDS):
        pods = [pod for side, name in zip(sides, namespaces, strict=True) for pod in side.listed(name, "pods")]
        now = json.dumps([pod["metadata"]["resourceVersion"] for pod in pods])
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(1)


def _differences(
    sides: tuple[Side, Side], namespaces: Sequence[str], said: dict[str, dict[str, list[str]]]
) -> list[tuple[str, str]]:
    """The pods of which both sides never say the same within some seconds, with what they said last."""
    end = time.monotonic() + MOMENT_SECONDS
    heard: tuple[dict[str, list[list[str]]], ...] = ({}, {})
    agreed: set[str] = set()
    while True:
        for side, namespace, found in zip(sides, namespaces, heard, strict=True):
            others = {**said[side.name], "the node": [*side.images(), *side.node_events()]}
            for pod, versions in {**told(side, namespace), **{one: [lines] for one, lines in others.items()}}.items():
                found.setdefault(pod, []).extend(versions)
        left: list[tuple[str, str]] = []
        for pod in sorted((heard[0].keys() | heard[1].keys()) - agreed):
            pairs = [differing(*pair) for pair in itertools.product(*(one.get(pod, [[]]) for one in heard))]
            if any(first == second for first, second in pairs):
                agreed.add(pod)
                continue
            first, second = pairs[-1]
            diff = difflib.unified_diff(first, second, sides[0].name, sides[1].name, lineterm="", n=2)
            left.append((pod, "\n".join(diff)))
        if not left or time.monotonic() > end:
            return left
        time.sleep(2)


def compared(sides: tuple[Side, Side], names: Sequence[str], number: int) -> int:
    """Play the cases side by side, print the differences, and return how many pods have some."""
    namespaces = [f"{side.name}-{number}" for side in sides]
    for side, namespace in zip(sides, namespaces, strict=True):
        side.kubectl("create", "namespace", namespace)
        side.kubectl("-n", namespace, "create", "serviceaccount", "default")
        side.kubectl("-n", namespace, "create", "configmap", "kube-root-ca.crt", "--from-literal=ca.crt=x")
    _print_refused(sides)
    seen: set[tuple[str, str]] = set()
    for step in range(max(len(CASES[name]) for name in names)):
        said: dict[str, dict[str, list[str]]] = {side.name: {} for side in sides}
        for side, namespace in zip(sides, namespaces, strict=True):
            for name in (name for name in names if step < len(CASES[name])):
                said[side.name][f"kubectl of {name}"] = side.carry_out(namespace, CASES[name][step])
        settle(sides, namespaces)
        for pod, text in _differences(sides, namespaces, said):
            if (pod, text) not in seen:
                seen.add((pod, text))
                print(f"{pod}, step {step + 1}:\n{text}", flush=True)
    for side, namespace in zip(sides, namespaces, strict=True):
        side.kubectl("-n", namespace, "delete", "pods", "--all", "--grace-period=1", "--timeout=60s")
        # What comes next is for a node that has recovered.
        side.kubectl("wait", "node", side.node, "--for=condition=DiskPressure=False", "--timeout=120s")
    _print_refused(sides)
    return len({pod for pod, _ in seen})


def has_cdi(version: str) -> bool:
    """Whether a containerd that tells this version gives CDI devices to containers, as all do from 1.7 on."""
    found = re.search(r"\bv?(\d+)\.(\d+)\.\d", version)
    return found is None or (int(found[1]), int(found[2])) >= (1, 7)


def _print_refused(sides: Sequence[Side]) -> None:
    """Print what was refused beside the steps of cases."""
    for side in sides:
        for line in side.refused():
            print(f"{side.name}: {line}", flush=True)


@contextlib.contextmanager
def nodes(programs: Path, home: Path) -> Iterator[tuple[Side, Side]]:
    """A kube-apiserver with two nodes on this machine, until the block is left."""
    with contextlib.ExitStack() as stack:
        on_loopback = [f"{_NODE_ADDRESS}/32", "dev", "lo"]
        subprocess.run(["ip", "address", "replace", *on_loopback], check=True)
        stack.callback(subprocess.run, ["ip", "address", "del", *on_loopback], check=False)
        server = stack.enter_context(
            serving(
                str(programs / "kube-apiserver"), ["--allow-privileged", "--kubelet-preferred-address-types=InternalIP"]
            )
        )
        pid = server.processes["apiserver"]
        sides = tuple(Side(name, server.kubeconfig, home / name, pid) for name in ("kubelet", "haru"))
        for side in sides:
            (side.home / "host").mkdir(parents=True)
            for name, disk in _DISKS.items():
                (side.home / name).mkdir()
                subprocess.run(["mount", "-t", "tmpfs", "-o", disk, "tmpfs", str(side.home / name)], check=True)
            # An agent whose machine was booted has mounts of its own.
            subprocess.run(["mount", "--make-shared", str(side.home / "n")], check=True)
            runtime = Containerd(side.runtime)
            side.containerd.append(runtime)
            stack.callback(_leave, side)
            stack.callback(runtime.stop)
            runtime.start()
            for image, size in _IMAGES.items():
                runtime.add_image(busybox_image(image, {"file": os.urandom(size)}))
            (side.runtime / "image.tar").unlink()
            while len(side.images()) <= len(_IMAGES):
                time.sleep(0.2)
            _make_groups(side.name)
            command = _kubelet if side.name == "kubelet" else _haru_node
            stack.callback(side.stop)
            side.start(command(side, runtime, programs))
        for side in sides:
            ports = [_PORTS[side.name] + end for end in _HEALTH]
            for program, words in (("failing_driver.py", [str(side.home / "n")]), ("health_server.py", ports)):
                command = [sys.executable, str(Path(__file__).with_name(program)), *words]
                stack.enter_context(started(command, side.home / f"{program}.log"))
            while not side.kubectl("get", "nodes", "-o", "name", f"--field-selector=metadata.name={side.node}"):
                time.sleep(1)
            side.kubectl("wait", "node", side.node, "--for=condition=Ready", "--timeout=60s")
            side.kubectl("taint", "node", side.node, "node.kubernetes.io/not-ready-")
        yield sides[0], sides[1]


def _kubelet(side: Side, runtime: Containerd, programs: Path) -> list[str]:
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": _NODE_ADDRESS,
        "port": free_port(),
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{_group(side.name)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": runtime.endpoint,
        "makeIPTablesUtilChains": False,
        "clusterDNS": ["10.0.0.10"],
        "clusterDomain": "cluster.local",
        "podLogsDir": str(side.home / "logs"),
        "volumePluginDir": str(side.home / "plugins"),
        "evictionHard": HARD,
        "evictionSoft": SOFT,
        "evictionSoftGracePeriod": dict.fromkeys(SOFT, f"{SOFT_SECONDS}s"),
        "evictionMaxPodGracePeriod": MOST_GRACE,
        "evictionPressureTransitionPeriod": "1s",
        "imageMinimumGCAge": "1s",
        # Without it, kernel parameters of this machine would be set.
        "featureGates": {"KubeletInUserNamespace": True},
    }
    file = side.home / "kubelet.yaml"
    file.write_text(yaml.dump(config))
    flags = [f"--config={file}", f"--kubeconfig={side.kubeconfig}", f"--root-dir={side.home / 'n'}"]
    flags += [f"--hostname-override={side.node}", f"--cert-dir={side.home / 'certificates'}"]
    flags += [f"--node-ip={_NODE_ADDRESS}"]
    return [str(programs / "kubelet"), *flags]


def _haru_node(side: Side, runtime: Containerd, programs: Path) -> list[str]:
    flags = [f"--kubeconfig={side.kubeconfig}", f"--hostname-override={side.node}", f"--root-dir={side.home / 'n'}"]
    flags += [f"--container-runtime-endpoint={runtime.endpoint}", f"--pod-logs-dir={side.home / 'logs'}"]
    flags += [f"--cgroup-root=/{_group(side.name)}", "--no-fail-cgroup-v1", "--cluster-dns=10.0.0.10"]
    flags += [f"--cdi-dir={side.home / 'cdi'}", f"--port={free_port()}", "--healthz-port=0"]
    flags += [f"--address={_NODE_ADDRESS}", f"--node-ip={_NODE_ADDRESS}"]
    flags += ["--anonymous-auth", "--authorization-mode=AlwaysAllow"]
    for kind, amounts in (("hard", HARD), ("soft", SOFT)):
        flags += [f"--eviction-{kind}={','.join(f'{signal}<{amount}' for signal, amount in amounts.items())}"]
    flags += [f"--eviction-soft-grace-period={','.join(f'{signal}={SOFT_SECONDS}s' for signal in SOFT)}"]
    flags += [f"--eviction-max-pod-grace-period={MOST_GRACE}", "--eviction-pressure-transition-period=1s"]
    flags += ["--minimum-image-ttl-duration=1s"]
    return [*haru_program("haru"), "node", *flags]


def _group(name: str) -> str:
    return f"kubelets-compared-{os.getpid()}-{name}"


def _groups(name: str) -> list[Path]:
    """Its control group in each hierarchy."""
    return [*_GROUPS.glob(f"*/{_group(name)}"), _GROUPS / _group(name)]


def _make_groups(name: str) -> None:
    """A control group of its own below each controller of version 1, or below the one of version 2."""
    version_1 = [place for place in _GROUPS.iterdir() if place.is_dir() and (place / "cgroup.procs").exists()]
    for place in [_GROUPS] if (_GROUPS / "cgroup.controllers").exists() else version_1:
        (place / _group(name)).mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (place / file).exists():
                (place / _group(name) / file).write_text((place / file).read_text())


def _leave(side: Side) -> None:
    """Unmount what is left, and remove the control groups."""
    unmount_below(side.home)
    for group in _groups(side.name):
        for place, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(place).rmdir()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", type=Path, required=True, help="folder with Kubernetes' programs")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="this case alone; may be repeated")
    options = parser.parse_args(arguments)
    version = subprocess.run(["containerd", "--version"], text=True, capture_output=True, check=True).stdout
    names = [name for name in options.case or CASES if name not in _NEED_CDI or has_cdi(version)]
    for name in set(_NEED_CDI) & set(options.case or CASES) - set(names):
        print(f"{name}: left out, this containerd is older than CDI", flush=True)
    with tempfile.TemporaryDirectory(prefix="kc-") as home, nodes(options.kubernetes, Path(home)) as sides:
        # One that ends pods of its node, or starts its agent again, does so alone: others would see it.
        alone = [name for name in names if name.startswith(("pressure", "again", "preempt", "boot", "away"))]
        others = [name for name in names if name not in alone]
        batches = [others[first : first + BATCH] for first in range(0, len(others), BATCH)]
        batches += [[name] for name in alone]
        found = sum(compared(sides, batch, number) for number, batch in enumerate(batches))
    print(f"{found} pods with differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
