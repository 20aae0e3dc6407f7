"""Real kube-controller-manager and kube-scheduler on an API server while objects come and go: what their logs say.

    export PYTHONPATH=.:tests/side_by_side
    python -m controller_churn --kubernetes FOLDER --server haru --server kube-apiserver --seconds 600

The folder holds Kubernetes' programs; `etcd` and `kubectl` are on PATH. Each server gets the same churn, simulated
nodes of `haru fleet`, and controllers with an account each. Printed is how often each error was logged on each server:
one that only Haru's has is a fault of Haru, or of how its answer is worded. Exit code 1 if there is such an error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.control_planes import haru_program, make_key, serving
from benchmarks.processes import started
from manifests import Obj, obj

from haru.kube import yaml

GPU_CLASS = "gpu.nvidia.com"
SETTLE_SECONDS = 60
NAMESPACES_AT_ONCE = 4
LEASE = ("--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s")
# What differs from run to run in a message: names of namespaces and of pods, suffixes, numbers.
_VARIABLE = (
    (r"churn-\d+", "NAMESPACE"),
    (r"\b(d|g|cj|ds|s|j|rc)-[a-z0-9-]+(\.[0-9a-f]+)?", r"\1-X"),
    (r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID"),
)
_MESSAGE = re.compile(r"^[EF]\d{4} [\d:.]+ +\d+ (\S+?):\d+\] (.*)")


def template(app: str, **spec: Any) -> Obj:
    """A pod template; `run_duration` makes its simulated container end by itself."""
    run_duration = spec.pop("run_duration", None)
    annotations = {"simulated.haru.dev/run-duration": run_duration} if run_duration else {}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}}}
    return {
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def workload(kind: str, name: str, replicas: int | None, pods: Obj, **spec: Any) -> Obj:
    """An object of apps/v1 over these pods."""
    if replicas is not None:
        spec["replicas"] = replicas
    selector = {"matchLabels": {"app": pods["metadata"]["labels"]["app"]}}
    return manifest("apps/v1", kind, name, selector=selector, template=pods, **spec)


def manifest(version: str, kind: str, name: str, **spec: Any) -> Obj:
    """An object with this spec."""
    return obj(version, kind, name, spec=spec)


def population(round_: int) -> list[Obj]:
    """What each namespace of the churn holds: workloads, claims, quota, budget, autoscaler, volumes, services."""
    storage = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}}}
    volumes = [{"metadata": {"name": "v"}, "spec": storage}] if round_ % 3 == 0 else []
    short = template("j", run_duration="5s", restartPolicy="Never")
    claimed = template("g", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "gpu"}])
    claimed["spec"]["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    utilization = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    request = {"name": "g", "exactly": {"deviceClassName": GPU_CLASS}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    return [
        workload("Deployment", "d", 3, template("d")),
        workload("Deployment", "g", 2, claimed),
        workload("StatefulSet", "s", 2, template("s"), serviceName="s", volumeClaimTemplates=volumes),
        workload("DaemonSet", "ds", None, template("ds")),
        manifest("v1", "ReplicationController", "rc", replicas=2, selector={"app": "rc"}, template=template("rc")),
        manifest("v1", "Service", "svc", selector={"app": "d"}, ports=[{"port": 80, "targetPort": 8080}]),
        manifest("batch/v1", "Job", "j", completions=3, parallelism=2, ttlSecondsAfterFinished=5, template=short),
        manifest("batch/v1", "CronJob", "cj", schedule="* * * * *", jobTemplate={"spec": {"template": short}}),
        manifest("policy/v1", "PodDisruptionBudget", "pdb", minAvailable=1, selector={"matchLabels": {"app": "d"}}),
        manifest("v1", "ResourceQuota", "q", hard={"pods": "60", "count/configmaps": "50"}),
        manifest(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "h",
            scaleTargetRef=deployment,
            minReplicas=1,
            maxReplicas=5,
            metrics=[{"type": "Resource", "resource": utilization}],
        ),
        manifest("resource.k8s.io/v1", "ResourceClaimTemplate", "gpu", spec={"devices": {"requests": [request]}}),
        manifest("v1", "PersistentVolumeClaim", "pvc", **storage),
        manifest("networking.k8s.io/v1", "NetworkPolicy", "np", podSelector={}),
    ]


class Churn:
    """Creates namespaces full of objects, changes them at random, and deletes them."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._random = random.Random(1)
        self.refused: list[str] = []

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints; what it refuses is kept."""
        command = ["kubectl", f"--kubeconfig={self._kubeconfig}", *arguments]
        answer = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if answer.returncode:
            self.refused.append(f"{' '.join(arguments)}: {answer.stderr.strip()[:300]}")
        return answer.stdout

    def run(self, seconds: float) -> int:
        """Churn for so long, delete all of it, and return how many namespaces there were."""
        end, living, rounds = time.monotonic() + seconds, list[str](), 0
        while time.monotonic() < end:
            living.append(self._round(rounds))
            rounds += 1
            for _ in range(6):
                self._change(self._random.choice(living))
                time.sleep(1)
            if len(living) > NAMESPACES_AT_ONCE:
                self.kubectl("delete", "namespace", living.pop(0), "--wait=false")
        for name in living:
            self.kubectl("delete", "namespace", name, "--wait=false")
        time.sleep(SETTLE_SECONDS)
        return rounds

    def left(self) -> list[str]:
        """The namespaces and pods of the churn that are still there."""
        names = self.kubectl("get", "namespaces,pods", "-A", "-o", "name").split()
        return [name for name in names if "churn-" in name or name.startswith("pod/")]

    def _round(self, number: int) -> str:
        namespace = f"churn-{number}"
        self.kubectl("create", "namespace", namespace)
        self.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.dump_all(population(number)))
        capacity = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"}}
        volume = manifest("v1", "PersistentVolume", f"pv-{number}", storageClassName="", **capacity)
        self.kubectl("apply", "-f", "-", stdin=yaml.dump(volume))
        return namespace

    def _change(self, namespace: str) -> None:
        few = str(self._random.randrange(5))
        self.kubectl(
            f"--namespace={namespace}",
            *self._random.choice(
                [
                    ("scale", "deployment/d", f"--replicas={few}"),
                    ("scale", "deployment/g", f"--replicas={few}"),
                    ("scale", "statefulset/s", f"--replicas={few}"),
                    ("rollout", "restart", "deployment/d"),
                    ("set", "env", "daemonset/ds", f"ROUND={time.monotonic()}"),
                    ("delete", "pod", "--all", "--wait=false"),
                    ("create", "configmap", f"c{self._random.randrange(10_000)}", "--from-literal=a=b"),
                ]
            ),
        )


def messages(log: Path) -> Counter[str]:
    """How often each error is in a log of Kubernetes, without what differs from run to run."""
    found = Counter[str]()
    for line in log.read_text(errors="replace").splitlines():
        if match := _MESSAGE.match(line):
            text = f"{match[1]} {match[2]}"
            for pattern, replacement in _VARIABLE:
                text = re.sub(pattern, replacement, text)
            found[re.sub(r"\d+", "N", text)[:240]] += 1
    return found


@contextlib.contextmanager
def controllers(kubeconfig: Path, programs: Path, folder: Path) -> Iterator[Sequence[Path]]:
    """Both programs of the control plane, until the block is left; yields their logs."""
    make_key(folder / "account.key")
    with contextlib.ExitStack() as stack:
        logs = []
        for name in ("kube-controller-manager", "kube-scheduler"):
            own = _impersonating(kubeconfig, f"system:{name}", folder / f"{name}.kubeconfig")
            command = [str(programs / name), *LEASE, "--secure-port=0", "--v=1", f"--kubeconfig={own}"]
            if name == "kube-controller-manager":
                # A fork of Kubernetes has a controller of its own, which no other cluster gives rights to.
                command += ["--controllers=*,-service-ca-certificate-publisher-controller"]
                command += ["--use-service-account-credentials"]
                command += [f"--service-account-private-key-file={folder / 'account.key'}"]
            logs.append(folder / f"{name}.log")
            stack.enter_context(started(command, logs[-1]))
        yield logs


def _impersonating(kubeconfig: Path, user: str, path: Path) -> Path:
    document = yaml.load(kubeconfig.read_text())
    document["users"][0]["user"]["as"] = user
    path.write_text(json.dumps(document))
    return path


def churned(server: str, programs: Path, seconds: float) -> Counter[str]:
    """The errors that both programs logged on a new server of this program."""
    found = Counter[str]()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        program = server if server == "haru" else str(programs / server)
        kubeconfig = stack.enter_context(serving(program)).kubeconfig
        fleet = [
            *haru_program("haru"),
            "fleet",
            f"--kubeconfig={kubeconfig}",
            "--profile=dgx-h100:2,cpu:3",
            "--no-taint",
        ]
        stack.enter_context(started(fleet, folder / "fleet.log"))
        logs = stack.enter_context(controllers(kubeconfig, programs, folder))
        churn = Churn(kubeconfig)
        rounds = churn.run(seconds)
        print(f"{server}: {rounds} namespaces; left: {churn.left() or 'nothing'}", flush=True)
        for line in churn.refused:
            print(f"{server}: refused: {line}")
        for log in logs:
            found.update(messages(log))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of the errors, and return 1 if Haru's server has one that no other has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", type=Path, required=True, help="folder with Kubernetes' programs")
    parser.add_argument("--server", action="append", choices=["haru", "kube-apiserver"], required=True)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args(arguments)
    found = {server: churned(server, options.kubernetes, options.seconds) for server in options.server}
    total = sum(found.values(), Counter[str]())
    print(" ".join(f"{server:>14}" for server in found), " error")
    for text, _ in total.most_common():
        print(" ".join(f"{counts[text]:14}" for counts in found.values()), f" {text}")
    elsewhere = set().union(*(counts for server, counts in found.items() if server != "haru"))
    alone = set(found.get("haru", ())) - elsewhere if len(found) > 1 else set()
    print(f"{len(alone)} kinds of errors on Haru's server alone")
    return 1 if alone else 0


if __name__ == "__main__":
    sys.exit(main())
