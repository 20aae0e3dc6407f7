"""Plays side-by-side cases on a cluster and records what its scheduler did, in a form that can be compared."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from string import digits
from typing import Any

from manifests import GROUP, NAMESPACE, SCHEDULER, SET, Case, Delete, Obj

from haru.client.api import ApiClient
from haru.gangs import foreign_kind
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from waiting import until

Outcome = dict[str, list[str]]
"""Counted lines by subject: pods, claims, groups, volumes."""


def kind_of(obj: Obj) -> Kind:
    """The kind of an object of a case: one of Kubernetes, or of another project."""
    foreign = foreign_kind(obj)
    return (
        foreign.as_kind(obj["apiVersion"].rpartition("/")[2]) if foreign else known_kind(obj["apiVersion"], obj["kind"])
    )


PODS, NODES, NAMESPACES = known_kind("v1", "Pod"), known_kind("v1", "Node"), known_kind("v1", "Namespace")
CLAIMS = known_kind("resource.k8s.io/v1", "ResourceClaim")
GROUPS = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")
VOLUMES, VOLUME_CLAIMS = known_kind("v1", "PersistentVolume"), known_kind("v1", "PersistentVolumeClaim")


class Player:
    """One cluster. `quiet`: seconds without a change that end a step; `tick`: between looks."""

    def __init__(
        self, api: ApiClient, scheduler_name: str, clock: Callable[[], float], quiet: float, tick: float = 0.1
    ) -> None:
        self._api = api
        self._scheduler_name = scheduler_name
        self._clock = clock
        self._quiet = quiet
        self._longest = 20 * quiet
        self._tick = tick

    async def play(self, case: Case) -> list[Outcome]:
        """The outcome after each step; the cluster is as empty afterwards as before."""
        outcomes = []
        async with self._kubelet():
            await self._namespace()
            created: list[Obj] = []
            try:
                for step in case.steps:
                    for one in step:
                        if isinstance(one, Delete):
                            await self._api.delete(PODS, one.name, NAMESPACE)
                        else:
                            created.append(one)
                            await self._create(one)
                    outcomes.append(await self._settled())
            finally:
                await self._clean(created)
        return outcomes

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _namespace(self) -> None:
        with suppress(StatusError):
            await self._api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        account = known_kind("v1", "ServiceAccount")
        await self._until(lambda: self._exists(account, "default"), "a service account")

    async def _create(self, given: Obj) -> None:
        obj = json.loads(json.dumps(given).replace(SCHEDULER, self._scheduler_name))
        of = kind_of(obj)
        namespace = NAMESPACE if of.namespaced else ""
        if of is NAMESPACES or (of.kind == "ResourceClaim" and '"adminAccess": true' in json.dumps(obj)):
            label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
            await self._api.patch(NAMESPACES, NAMESPACE, label)
        status, taints = obj.pop("status", None), (obj.get("spec") or {}).get("taints")
        await self._again(lambda: self._api.create(of, obj, namespace))
        if of is VOLUMES:
            # Schedulers choose among volumes that a controller has called available: it may not have come to all yet.
            await self._until(lambda: self._has_phase(obj["metadata"]["name"]), "a volume that a controller has seen")
        if of is NODES:
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
            body = {"status": {**status, "conditions": [ready]}}
            await self._api.patch(NODES, obj["metadata"]["name"], body, "", "merge", "status")
            await self._api.patch(NODES, obj["metadata"]["name"], {"spec": {"taints": taints}})

    async def _again(self, work: Callable[[], Any], times: int = 20) -> None:
        """What a controller of the last case still holds back is tried again."""
        for _ in range(times):
            try:
                await work()
                return
            except StatusError as error:
                if error.code not in (403, 409):
                    raise
                last = error
                await asyncio.sleep(0.5)
        raise last

    async def _clean(self, created: list[Obj]) -> None:
        for obj in reversed(created):
            if obj["kind"] != "Pod" and obj["kind"] != "Node":
                await self._remove(obj)
        for pod in (await self._api.list(PODS, NAMESPACE))["items"]:
            await self._remove(pod | {"kind": "Pod", "apiVersion": "v1"})
        await self._until(lambda: self._empty(PODS), "no pods")
        if self._api.version.serves(CLAIMS):
            for claim in (await self._api.list(CLAIMS, NAMESPACE))["items"]:
                await self._remove(claim | {"kind": "ResourceClaim", "apiVersion": CLAIMS.api_version})
            await self._until(lambda: self._empty(CLAIMS), "no claims")
        await self._until(lambda: self._empty(VOLUME_CLAIMS), "no volume claims")
        for obj in created:
            if obj["kind"] == "Node":
                await self._remove(obj)
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}}
        await self._api.patch(NAMESPACES, NAMESPACE, label)

    async def _remove(self, obj: Obj) -> None:
        of = kind_of(obj)
        name, namespace = obj["metadata"]["name"], NAMESPACE if of.namespaced else ""
        with suppress(StatusError):
            if of is PODS:
                await self._api.patch(PODS, name, {"metadata": {"finalizers": None}}, NAMESPACE)
                await self._api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
            else:
                await self._api.delete(of, name, namespace)
        if of.kind in ("ResourceClaim", "PersistentVolume", "PersistentVolumeClaim"):
            with suppress(StatusError):
                await self._api.patch(of, name, {"metadata": {"finalizers": None}}, namespace)

    async def _empty(self, of: Kind) -> bool:
        return not (await self._api.list(of, NAMESPACE))["items"]

    async def _exists(self, of: Kind, name: str) -> bool:
        with suppress(StatusError):
            await self._api.get(of, name, NAMESPACE)
            return True
        return False

    async def _has_phase(self, volume: str) -> bool:
        status = (await self._api.get(VOLUMES, volume)).get("status") or {}
        return status.get("phase", "Pending") != "Pending"

    async def _until(self, holds: Callable[[], Any], what: str) -> None:
        await until(holds, what, pause=self._tick)

    # -- a kubelet ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _kubelet(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run_pods())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run_pods(self) -> None:
        while True:
            for pod in (await self._api.list(PODS, NAMESPACE))["items"]:
                with suppress(StatusError):
                    await self._run_pod(pod)
            await asyncio.sleep(self._tick)

    async def _run_pod(self, pod: Obj) -> None:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        if not pod["spec"].get("nodeName"):
            return
        if pod["metadata"].get("deletionTimestamp"):
            await self._api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
        elif status.get("phase") == "Pending":
            ready = {"type": "Ready", "status": "True"}
            kept = [one for one in status.get("conditions") or () if one["type"] != "Ready"]
            body = {"status": {"phase": "Running", "conditions": [*kept, ready]}}
            await self._api.patch(PODS, name, body, NAMESPACE, "merge", "status")

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _settled(self) -> Outcome:
        """The outcome that has not changed for a while. Raises TimeoutError where it goes on changing."""
        began = since = self._clock()
        last: Outcome = {}
        await asyncio.sleep(self._tick)
        while True:
            found, at_rest, all_decided = await self._outcome()
            now = self._clock()
            if _apart_from_messages(found) != _apart_from_messages(last) or not at_rest:
                since = now
            last = found
            if now - since >= self._quiet * (1 if all_decided else 4):
                return last
            if now - began > self._longest:
                return {**last, "problems": [f"not settled within {self._longest:g} s"]}
            await asyncio.sleep(self._tick)

    async def _outcome(self) -> tuple[Outcome, bool, bool]:
        listed = (await self._api.list(PODS, NAMESPACE))["items"]
        groups = {
            node["metadata"]["name"]: (node["metadata"].get("labels") or {}).get(GROUP) or node["metadata"]["name"]
            for node in (await self._api.list(NODES))["items"]
        }
        outcome = {
            "pods": _counted(_pod_line(pod, groups) for pod in listed),
            "messages": _counted(filter(None, map(_message, listed))),
        }
        if self._api.version.serves(CLAIMS):
            claims = (await self._api.list(CLAIMS, NAMESPACE))["items"]
            outcome["claims"] = _counted(map(_claim_line, claims))
        if self._api.version.serves(GROUPS):
            found = (await self._api.list(GROUPS, NAMESPACE))["items"]
            outcome["groups"] = _counted(line for group in found for line in _group_lines(group))
        volumes = (await self._api.list(VOLUME_CLAIMS, NAMESPACE))["items"]
        outcome["volumes"] = _counted(map(_volume_line, volumes))
        at_rest = not any(pod["metadata"].get("deletionTimestamp") for pod in listed)
        all_decided = all(claim["status"].get("phase") == "Bound" for claim in volumes) and all(
            _bound(pod) or (_scheduled(pod) and not pod["status"].get("nominatedNodeName")) for pod in listed
        )
        return {subject: lines for subject, lines in outcome.items() if lines}, at_rest, all_decided


def _apart_from_messages(outcome: Outcome) -> Outcome:
    """Reasons may change places for ever while nothing happens."""
    return {subject: lines for subject, lines in outcome.items() if subject != "messages"}


def _counted(lines: Any) -> list[str]:
    return [f"{count} x {line}" for line, count in sorted(Counter(lines).items())]


def _bound(pod: Obj) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _scheduled(pod: Obj) -> Obj:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def _set(obj: Obj) -> str:
    return str((obj["metadata"].get("labels") or {}).get(SET) or obj["metadata"]["name"])


def _pod_line(pod: Obj, groups: dict[str, str]) -> str:
    where = pod["spec"].get("nodeName")
    state = f"on {groups.get(where, where)}" if where else f"waits: {_scheduled(pod).get('reason', '-')}"
    return f"{_set(pod)} {state}"


def _message(pod: Obj) -> str:
    text = _scheduled(pod).get("message")
    return f"{_set(pod)}: {text}" if text and not _bound(pod) else ""


def _claim_line(claim: Obj) -> str:
    owner = next((one["kind"] for one in claim["metadata"].get("ownerReferences") or ()), "")
    name = f"of a {owner}" if owner else claim["metadata"]["name"]
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        return f"{name} waits"
    results = (allocation.get("devices") or {}).get("results") or ()
    models = Counter(result["device"].rpartition("-")[0] for result in results)
    return f"{name} holds " + ", ".join(f"{count} {model}" for model, count in sorted(models.items()))


def _group_lines(group: Obj) -> list[str]:
    conditions = (group.get("status") or {}).get("conditions") or ()
    return [f"{group['metadata']['name']} {one['type']}={one['status']} {one['reason']}" for one in conditions]


def _volume_line(claim: Obj) -> str:
    selected = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
    phase = (claim.get("status") or {}).get("phase")
    volume, name = claim["spec"].get("volumeName", "-"), claim["metadata"]["name"]
    return f"{name.rstrip(digits)} {phase} {volume.rstrip(digits)}" + (" selected" if selected else "")
