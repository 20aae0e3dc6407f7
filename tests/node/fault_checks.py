"""What must hold of a node after its parts have died: the API, the runtime and the files of the machine agree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cards import GPU
from fault_world import STEADY, World, was_broken_off
from machine import Machine

from haru.node.cri.client import RuntimeClient
from haru.node.podworker.observed import EXITED, POD_UID, RUNNING, SeenContainer, SeenPod, SeenSandbox
from haru.node.status.pod_status import TERMINAL

Obj = dict[str, Any]


def what_runs(machine: Machine) -> dict[str, SeenPod]:
    """By the pod's UID, what containerd itself has, asked past everybody else."""

    async def ask() -> dict[str, SeenPod]:
        async with RuntimeClient(machine.runtime.endpoint, seconds=60) as runtime:
            sandboxes: dict[str, list[SeenSandbox]] = {}
            containers: dict[str, list[SeenContainer]] = {}
            for sandbox in await runtime.sandboxes():
                seen = SeenSandbox.of(await runtime.sandbox_status(sandbox.id))
                sandboxes.setdefault(sandbox.labels.get(POD_UID, ""), []).append(seen)
            for one in await runtime.containers():
                status = SeenContainer.of(await runtime.container_status(one.id), one.pod_sandbox_id)
                containers.setdefault(one.labels.get(POD_UID, ""), []).append(status)
            uids = {*sandboxes, *containers}
            return {uid: SeenPod.of(sandboxes.get(uid, ()), containers.get(uid, ())) for uid in uids}

    return asyncio.run(ask())


def disagreements(machine: Machine) -> list[str]:
    """Where the API's pods and the runtime's are not the same."""
    pods = {pod["metadata"]["uid"]: pod for pod in machine.api.list("pods", "default")}
    seen = what_runs(machine)
    found = [f"the runtime has a pod {uid} that the API has not: {seen[uid]}" for uid in seen.keys() - pods.keys()]
    for uid, pod in pods.items():
        name = pod["metadata"]["name"]
        found += [f"{name}: {text}" for text in _of_pod(pod, seen.get(uid, SeenPod()))]
    return found


def _of_pod(pod: Obj, seen: SeenPod) -> Iterator[str]:
    ready = [one for one in seen.sandboxes if one.ready]
    over = pod["status"].get("phase") in TERMINAL
    if len(ready) != (0 if over else 1):
        yield f"{len(ready)} sandboxes are ready, the phase is {pod['status'].get('phase')}"
    told = [*(pod["status"].get("initContainerStatuses") or ()), *(pod["status"].get("containerStatuses") or ())]
    ids = {status.get("containerID", "").removeprefix("containerd://"): status for status in told}
    for each in seen.containers:
        if each.state == RUNNING and "running" not in ids.get(each.id, {}).get("state", {}):
            yield f"{each.name} {each.id} runs, and the status does not say so"
    known = {each.id: each for each in seen.containers}
    for id_, status in ids.items():
        state = status.get("state") or {}
        one: SeenContainer | None = known.get(id_)
        if "running" in state and (one is None or one.state != RUNNING):
            yield f"{status['name']} {id_} is said to run, the runtime has {one}"
        if one is None:
            continue
        if status["restartCount"] != one.attempt:
            yield f"{status['name']}: {status['restartCount']} restarts are told, the runtime was told {one.attempt}"
        ended = state.get("terminated")
        if ended and (one.state, one.exit_code) != (EXITED, ended["exitCode"]):
            yield f"{status['name']} is said to have ended with {ended['exitCode']}, the runtime has {one}"


def restarts(world: World) -> list[str]:
    """Containers that were started without need, twice at once, or more often than is told."""
    twice = world.guard / "twice"
    found = [f"ran twice at once: {line}" for line in (twice.read_text().splitlines() if twice.exists() else ())]
    tasks = world.machine.runtime.tasks()
    pods = {pod["metadata"]["name"]: pod for pod in world.machine.api.list("pods", "default")}
    for living in world.living.values():
        for status in pods[living.name]["status"]["containerStatuses"]:
            count, counted = world.starts(living.uid), status["restartCount"] + 1
            if not (0 if was_broken_off(status) else 1) <= count <= counted:
                found.append(f"{living.name}: started {count} times, {counted} are told")
            if living.kind not in STEADY or living.noted is None:
                continue
            id_ = status["containerID"].removeprefix("containerd://")
            now = id_, tasks.get(id_, 0), status["restartCount"]
            if now != living.noted:
                found.append(f"{living.name}: (container, process, restarts) was {living.noted} and is {now}")
    return found


def leftovers(machine: Machine) -> list[str]:
    """What is left of pods on a machine that should have none."""
    found = [f"the runtime has {uid}: {pod}" for uid, pod in what_runs(machine).items()]
    found += [f"a process: {task}" for task in machine.runtime.tasks()]
    found += _claims(machine)
    root = machine.home / "n"
    for directory in (root / "pods", machine.home / "logs", machine.home / "cdi"):
        found += [f"a file: {path}" for path in sorted(directory.glob("*"))]
    data = root / "plugins" / GPU
    found += [f"a file: {path}" for name in ("dra-device-metadata", "devices") for path in (data / name).glob("*")]
    for group in Path("/sys/fs/cgroup").glob(f"*/{machine.groups}"):
        found += [f"a control group: {path}" for path in group.rglob("pod*") if path.is_dir()]
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    found += [f"a mount: {mount}" for mount in mounts if mount.startswith(f"{root}/")]
    return found


def _claims(machine: Machine) -> Iterator[str]:
    root = machine.home / "n"
    for file in (root / "dra_manager_state", root / "plugins" / GPU / "claims.json"):
        if '"uid"' in file.read_text():
            yield f"a claim in {file}: {file.read_text()}"
    for claim in machine.api.list("resourceclaims", "default"):
        status = claim.get("status") or {}
        if status.get("allocation") or status.get("reservedFor") or claim["metadata"].get("ownerReferences"):
            yield f"a claim in the API: {json.dumps(claim)}"


def left_by_runtime(machine: Machine) -> list[str]:
    """What a killed containerd forgets by itself: mounts of its own, names of network namespaces."""
    state = f"{machine.runtime.root}/state/"
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [mount for mount in mounts if mount.startswith(state)]
    spaces = [line.split()[1] for line in (machine.runtime.root / "addresses").read_text().splitlines()]
    return found + [space for space in spaces if Path(space).exists()]
