"""Kubernetes' controllers and Haru's do the same work on a kube-apiserver each: what they make of the objects.

    export PYTHONPATH=.:tests/side_by_side
    python -m controllers_compared --kubernetes FOLDER [--case NAME]

The folder holds kube-apiserver and kube-controller-manager; `etcd` and `kubectl` are on PATH. Both servers have
simulated nodes of `haru fleet` and Haru's scheduler, so that the controllers alone differ. After each step of a case
both namespaces come to rest, and each difference between their objects and events is printed once. Names that are made
up, times, uids and addresses do not count. Exit code 1 if anything differs; to read, not to pass: controllers that are
quicker or slower leave other traces on the way.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import controller_cases
import controller_object_cases
from benchmarks.control_planes import GANG_GATES, haru_program, make_key, serving
from benchmarks.processes import started
from controller_case_parts import FIRST, Step
from manifests import Obj

ALONE = controller_object_cases.ALONE
CASES = controller_cases.CASES | controller_object_cases.CASES | ALONE
KINDS = (
    "pods,services,endpointslices,persistentvolumeclaims,replicationcontrollers,resourcequotas,deployments,replicasets,"
    "statefulsets,daemonsets,controllerrevisions,jobs,cronjobs,poddisruptionbudgets,resourceclaims,workloads,podgroups,"
    "endpoints,configmaps,secrets,serviceaccounts,horizontalpodautoscalers,devicetaintrules"
)
_GATES = f"{GANG_GATES},WorkloadWithJob=true,DRADeviceTaintRules=true"
QUIET_SECONDS, MOST_SECONDS = 4.0, 90.0
_VARIES = re.compile(
    r"uid|resourceVersion|managedFields|[a-z]+Timestamp|[a-z]+(Transition|Update|Probe|ion)?Time|(started|finished)At"
    r"|(pod|host)IPs?|clusterIPs?|nodeName|(container|image)ID|containerStatuses|addresses|targetRef"
    r"|token|ca\.crt|nodePort"
)
_OF_THE_NODE = frozenset({"PodScheduled", "Initialized", "ContainersReady", "PodReadyToStartContainers"})
_TEXTS = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9])"), "-*"),
    (re.compile(r"\b(cpu|dgx-h100)-\d+\b"), "NODE"),
)


@dataclass
class Plane:
    """An API server with controllers, and the hashes that its controllers gave to templates, in order of appearance."""

    name: str
    kubeconfig: Path
    hashes: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl prints; what it is refused is printed here."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *words]
        answer = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if answer.returncode:
            print(f"{self.name}: {' '.join(words)}: {answer.stderr.strip()[:200]}")
        return answer.stdout

    def listed(self, *where: str, kinds: str = KINDS) -> list[Obj]:
        """Objects of a namespace or of all."""
        found: list[Obj] = json.loads(self.kubectl("get", kinds, "-o", "json", *where) or '{"items": []}')["items"]
        return found

    def carry_out(self, namespace: str, step: Step) -> None:
        """Do one step of a case."""
        for change in step:
            if isinstance(change, dict):
                self.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(change))
                continue
            words = list(change)
            if any(FIRST in word for word in words):
                pods = sorted(str(pod["metadata"]["name"]) for pod in self.listed("-n", namespace, kinds="pods"))
                words = [word.replace(FIRST, pods[0] if pods else "none") for word in words]
            self.kubectl("-n", namespace, *words)

    def known(self, namespace: str, objects: Sequence[Obj]) -> dict[str, str]:
        """What stands for each hash of a template in names: its number among those of its owner."""
        for obj in sorted(objects, key=lambda each: str(each["metadata"]["creationTimestamp"])):
            labels, owners = obj["metadata"].get("labels") or {}, obj["metadata"].get("ownerReferences")
            keys = {"ReplicaSet": "pod-template-hash", "ControllerRevision": "controller-revision-hash"}
            made = labels.get(keys.get(obj["kind"], "")) or labels.get("controller.kubernetes.io/hash")
            if obj["kind"] in ("Workload", "PodGroup"):
                made = obj["metadata"]["name"]
            elif obj["kind"] not in keys:
                continue
            if made and owners:
                seen = self.hashes.setdefault((namespace, f"{obj['kind']}/{owners[0]['name']}"), [])
                if made not in seen:
                    seen.append(made)
        own = [seen for (place, _), seen in self.hashes.items() if place == namespace]
        return {made.rpartition("-")[2]: f"H{number}" for seen in own for number, made in enumerate(seen, 1)}


def plain(value: Any, hashes: Mapping[str, str]) -> Any:
    """A value without what differs from run to run."""
    if isinstance(value, dict):
        return {plain(key, hashes): plain(each, hashes) for key, each in value.items() if not _VARIES.fullmatch(key)}
    if isinstance(value, list):
        return [plain(each, hashes) for each in value]
    if not isinstance(value, str):
        return value
    for made, stands in hashes.items():
        value = value.replace(made, stands)
    for pattern, stands in _TEXTS:
        value = pattern.sub(stands, value)
    return value


def outcome(plane: Plane, namespace: str) -> Counter[str]:
    """The objects of a namespace and its controllers' events, each as text, with how often it is there."""
    objects = plane.listed("-n", namespace)
    hashes = plane.known(namespace, objects)
    # Haru's controllers publish an authority where one is known to them, kube-controller-manager an empty one, too.
    objects = [obj for obj in objects if obj["metadata"]["name"] != "kube-root-ca.crt"]
    for obj in objects:
        status = obj.get("status") or {}
        if obj["kind"] == "Pod":
            status["conditions"] = [one for one in status.get("conditions", ()) if one["type"] not in _OF_THE_NODE]
        if obj["kind"] == "EndpointSlice":
            obj["metadata"].pop("generation", None)
    found = Counter(f"{obj['kind']} {json.dumps(plain(obj, hashes), sort_keys=True)}" for obj in objects)
    for event in plane.listed("-n", namespace, kinds="events"):
        component = (event.get("source") or {}).get("component") or event.get("reportingComponent")
        if component not in ("kubelet", "default-scheduler"):
            about = f"{event['involvedObject']['kind']}/{event['involvedObject']['name']}"
            text = plain(f"{component}: {about}: {event['type']} {event['reason']}: {event['message']}", hashes)
            found[f"Event {text}"] = 1
    return found


@contextlib.contextmanager
def plane(name: str, programs: Path) -> Iterator[Plane]:
    """A kube-apiserver with nodes, a scheduler, and these controllers, until the block is left."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = ["--runtime-config=resource.k8s.io/v1beta2=true", f"--feature-gates={_GATES}"]
        kubeconfig = stack.enter_context(serving(str(programs / "kube-apiserver"), served)).kubeconfig
        common = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", f"--feature-gates={_GATES}"]
        nodes = [f"--kubeconfig={kubeconfig}", "--profile=dgx-h100:1,cpu:3", "--no-taint"]
        haru = haru_program("haru")
        if name == "haru":
            controllers = [*haru, "controllers", *common, "--health-port=0", "--controllers=*"]
        else:
            make_key(folder / "account.key")
            controllers = [str(programs / "kube-controller-manager"), *common, "--secure-port=0"]
        stack.enter_context(started([*haru, "fleet", *nodes], folder / "fleet.log"))
        scheduler = [*haru, "scheduler", *common, "--health-port=0", "--scheduler-name=default-scheduler"]
        stack.enter_context(started(scheduler, folder / "scheduler.log"))
        stack.enter_context(started(controllers, folder / "controllers.log"))
        yield Plane(name, kubeconfig)


def settle(planes: Sequence[Plane]) -> None:
    """Wait until nothing has changed for some seconds, at most a minute and a half."""
    end, since, before = time.monotonic() + MOST_SECONDS, time.monotonic(), ""
    while time.monotonic() < min(end, since + QUIET_SECONDS):
        now = json.dumps([[obj["metadata"]["resourceVersion"] for obj in each.listed("-A")] for each in planes])
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(1)


def ready(planes: Sequence[Plane], names: Sequence[str]) -> None:
    """Make the namespaces of the cases and wait for what every pod needs: nodes, and an account in each."""
    for each in planes:
        for name in names:
            each.kubectl("create", "namespace", name)
    wanted = len(names)
    for each in planes:
        for _ in range(60):
            accounts = [one["metadata"] for one in each.listed("-A", kinds="serviceaccounts")]
            if wanted == sum(one["name"] == "default" and one["namespace"] in names for one in accounts):
                break
            time.sleep(1)
        each.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=60s")


def compared(planes: tuple[Plane, Plane], names: Sequence[str]) -> int:
    """Play the cases side by side, print the differences, and return how many there are."""
    ready(planes, names)
    told: set[str] = set()
    for number in range(max((len(CASES[name]) for name in names), default=0)):
        live = [name for name in names if number < len(CASES[name])]
        for each in planes:
            for name in live:
                each.carry_out(name, CASES[name][number])
        settle(planes)
        for name in live:
            first, second = (outcome(each, name) for each in planes)
            for own, of in ((first - second, planes[0]), (second - first, planes[1])):
                for text in sorted(set(own) - told):
                    told.add(text)
                    print(f"{name}, step {number + 1}, only {of.name}: {text}", flush=True)
    return len(told)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", type=Path, required=True, help="folder with Kubernetes' programs")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="this case alone")
    options = parser.parse_args(arguments)
    with plane("kube", options.kubernetes) as kube, plane("haru", options.kubernetes) as haru:
        names = options.case or sorted(CASES)
        differences = compared((kube, haru), [name for name in names if name not in ALONE])
        differences += sum(compared((kube, haru), [name]) for name in names if name in ALONE)
    print(f"{differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
