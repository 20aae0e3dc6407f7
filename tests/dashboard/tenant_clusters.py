"""Random clusters of several tenants: whatever somebody wrote in a namespace carries the mark of that namespace."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from random import Random
from typing import Any

from engine_objects import allocated, allocation, claim, node, pod, pod_group, resource_slice

Obj = dict[str, Any]
_MARK = re.compile(r"qz(\d+)z")
NODES = ("n0", "n1", "n2")
DEVICES = 4


def namespace(number: int) -> str:
    return f"team-qz{number}z"


def marks_in(text: str) -> set[int]:
    """The numbers of the namespaces of which a text has a name."""
    return {int(number) for number in _MARK.findall(text)}


def leaks(text: str, shown: Collection[str]) -> set[int]:
    """The numbers of hidden namespaces of which a text has a name."""
    return {number for number in marks_in(text) if namespace(number) not in shown}


def tenant_cluster(random: Random, namespaces: int = 4) -> list[Obj]:
    """Nodes with devices, and in each namespace pods, claims, gangs, a Job, a quota, a volume claim and events."""
    objects: list[Obj] = [node(name, cpu="16") for name in NODES]
    objects += [resource_slice(name, DEVICES) for name in NODES]
    free = [(name, f"gpu-{number}") for name in NODES for number in range(DEVICES)]
    random.shuffle(free)
    for number in range(namespaces):
        where = namespace(number)
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where, "uid": where}})
        made = [each for part in (_running, _pending, _gang, _others) for each in part(random, number, free)]
        for obj in made:
            obj["metadata"]["namespace"] = where
            obj["metadata"].setdefault("uid", f"{where}/{obj['kind']}/{obj['metadata']['name']}")
            obj["metadata"].setdefault("annotations", {"note": f"for-qz{number}z"})
        objects += made
    return [_with_uids(obj) for obj in objects]


def _with_uids(obj: Obj) -> Obj:
    """UIDs as an API server makes them: they say nothing."""
    text = re.sub(r'"uid": "([^"]+)"', lambda found: f'"uid": "{_uid(found[1])}"', json.dumps(obj))
    made: Obj = json.loads(text)
    return made


def _uid(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _running(random: Random, number: int, free: list[tuple[str, str]]) -> list[Obj]:
    made: list[Obj] = []
    for index in range(random.randrange(3)):
        if not free:
            break
        where, device = free.pop()
        name = f"run-qz{number}z-{index}"
        running = _pod(random, number, name, node=where, claims=[name])
        owned = allocated(claim(name), allocation(where, device), running)
        if random.random() < 0.3:
            del owned["status"]["reservedFor"]
        made += [running, owned]
    return made


def _pending(random: Random, number: int, _: object) -> list[Obj]:
    made: list[Obj] = []
    for index in range(random.randrange(3)):
        name = f"wait-qz{number}z-{index}"
        waiting = _pod(random, number, name, claims=[name], cpu=random.choice(["1", "40"]))
        said = f"preempted by pod wait-qz{number}z"
        waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": said}]
        made += [waiting, claim(name, count=random.choice([1, 20]))]
    return made


def _gang(random: Random, number: int, _: object) -> list[Obj]:
    name = f"gang-qz{number}z"
    count = random.randrange(4)
    return [pod_group(name, count + 1), *(_pod(random, number, f"{name}-{n}", group=name) for n in range(count))]


def _others(random: Random, number: int, _: object) -> list[Obj]:
    def named(api_version: str, kind: str, **more: Any) -> Obj:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": f"thing-qz{number}z"}, **more}

    about = {"kind": "Pod", "name": f"run-qz{number}z-0", "namespace": namespace(number)}
    return [
        named("batch/v1", "Job", spec={"template": {}}),
        named("v1", "ResourceQuota", spec={"hard": {"cpu": "1"}}),
        named("v1", "PersistentVolumeClaim", spec={"volumeName": "v"}),
        named("policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}),
        named("v1", "Event", involvedObject=about, reason="Killing", message=f"kills run-qz{number}z-0"),
    ]


def _pod(random: Random, number: int, name: str, **more: Any) -> Obj:
    made = pod(name, priority=random.randrange(3), **more)
    made["metadata"]["labels"] = {"app": f"app-qz{number}z"}
    made["spec"]["containers"][0] |= {"name": f"main-qz{number}z", "image": f"image-qz{number}z"}
    made["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"thing-qz{number}z"}}]
    if random.random() < 0.5:
        kind = random.choice(["Job", "ReplicaSet", "StatefulSet"])
        owner = {"apiVersion": "v1", "kind": kind, "name": f"own-qz{number}z", "uid": "1", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    return made
