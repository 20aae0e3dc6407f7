"""What a run needs of a cluster, checked before anything is made, and the removal of what runs made."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from haru.cel.device import DeviceSelector, DeviceView, compile_device_selector
from haru.cel.errors import CompileError, EvaluationError
from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server
from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.kube.errors import suppress_status
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, controller_of, key_of, labels_of, name_of, namespace_of, phase_of, uid_of
from haru.kube.names import names_text
from haru.stress.feasibility import Matches
from haru.stress.manifests import (
    CLAIMS,
    CLASSES,
    GROUPS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RUN_LABEL,
    Target,
)
from haru.stress.plan import Limits

_FORCE_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.5


class StressError(ValueError):
    """A cluster on which a run is refused; the text names the cause and the fix."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a run found: the nodes, what is served, and what of the plan cannot be tried."""

    server: str
    nodes: int
    limits: Limits
    target: Target
    groups: bool
    claims: bool
    matches: Matches
    notes: tuple[str, ...] = ()


async def survey(client: ApiClient, target: Target, limits: Limits, *, foreign_work: bool) -> Ground:
    """Look whether a run may take place here; raises StressError."""
    version = await adapt_to_server(client)
    nodes = await _nodes_of(client, target)
    _check_image(nodes, target)
    await _check_free(client, target, foreign_work)
    notes, kinds = [], limits.kinds
    groups, claims = version.serves(GROUPS), version.serves(CLAIMS)
    selectors: list[DeviceSelector] = []
    if "gangs" in kinds and not groups:
        kinds = _without(kinds, "gangs", "scheduling.k8s.io serves no PodGroups")
        notes.append("no gangs: the server serves no PodGroups")
    if "claims" in kinds and limits.devices:
        found = await _device_class(client, target.device_class) if claims else None
        if found is None:
            kinds = _without(kinds, "claims", f"there is no DeviceClass {target.device_class}")
            notes.append(f"no claims: there is no DeviceClass {target.device_class}")
        else:
            selectors = _selectors(found)
    taints = {taint["key"] for node in nodes for taint in (node.get("spec") or {}).get("taints") or ()}
    tolerations = tuple(
        {"key": key, "operator": "Exists"} for key in sorted(taints) if not key.startswith("node.kubernetes.io/")
    )
    return Ground(
        server=f"Kubernetes 1.{version.minor}",
        nodes=len(nodes),
        limits=replace(limits, kinds=kinds),
        target=replace(target, tolerations=tolerations),
        groups=groups,
        claims=claims,
        matches=_matcher(selectors),
        notes=tuple(notes),
    )


async def clean_up(client: ApiClient, namespace: str, timeout: float = 120.0) -> int:
    """Delete the namespace of runs with all that is in it, and the PriorityClass; how many pods there were."""
    await adapt_to_server(client)
    for one in (await client.list(PRIORITY_CLASSES, label_selector=RUN_LABEL))["items"]:
        await _delete(client, PRIORITY_CLASSES, one)
    stored = await _find(client, NAMESPACES, namespace)
    if stored is None:
        return 0
    if RUN_LABEL not in labels_of(stored):
        raise StressError(f"namespace {namespace}: Forbidden: it is not of haru stress (no label {RUN_LABEL})")
    pods = (await client.list(PODS, namespace))["items"]
    for kind in (GROUPS, PODS, CLAIMS):
        if client.version.serves(kind) or kind is PODS:
            await client.delete_collection(kind, namespace)
    await _delete(client, NAMESPACES, stored)
    await _wait_gone(client, namespace, timeout)
    return len(pods)


async def _wait_gone(client: ApiClient, namespace: str, timeout: float) -> None:
    """Wait for the namespace's end; pods whose kubelet does not answer are deleted without grace after a while."""
    loop = asyncio.get_running_loop()
    began, forced = loop.time(), False
    while await _find(client, NAMESPACES, namespace) is not None:
        if not forced and loop.time() - began > _FORCE_SECONDS:
            forced = True
            for pod in (await client.list(PODS, namespace))["items"]:
                await _delete(client, PODS, pod, grace=0)
        if loop.time() - began > timeout:
            raise StressError(
                f"namespace {namespace}: it is not gone after {timeout:g} s: see what holds it, then --cleanup again"
            )
        await asyncio.sleep(_LOOK_SECONDS)


# -- what is looked at ------------------------------------------------------------------------------------------------


async def _nodes_of(client: ApiClient, target: Target) -> list[Obj]:
    selector = ",".join(f"{key}={value}" for key, value in target.node_selector.items())
    nodes: list[Obj] = (await client.list(NODES, label_selector=selector))["items"]
    if not nodes:
        raise StressError(
            f"--node-selector: no Node has the labels {selector}: label some that may be used up, or add simulated "
            "ones with haru fleet"
        )
    return nodes


def _check_image(nodes: list[Obj], target: Target) -> None:
    real = [name_of(node) for node in nodes if PROFILE_LABEL not in labels_of(node)]
    if real and not target.image:
        raise StressError(
            f"--image: Required value: nodes that are not simulated run the pods ({names_text(real)}): name an image "
            "that they can pull and that runs until it is ended, as a pause image does"
        )


async def _check_free(client: ApiClient, target: Target, foreign_work: bool) -> None:
    stored = await _find(client, NAMESPACES, target.namespace)
    if stored is not None:
        whose = (
            "of an earlier run: remove it with --cleanup"
            if RUN_LABEL in labels_of(stored)
            else "not of haru stress: take another --namespace"
        )
        raise StressError(f"--namespace: Forbidden: the namespace {target.namespace} exists and is {whose}")
    if foreign_work:
        return
    pods = [pod for pod in (await client.list(PODS))["items"] if _is_foreign(pod)]
    if pods:
        named = names_text(sorted(map(key_of, pods)))
        raise StressError(
            f"Forbidden: others work on this cluster: {named}; a run may fill its nodes and slows the scheduler: "
            "take a cluster for tests, or say --allow-foreign-work"
        )


def _is_foreign(pod: Obj) -> bool:
    """Whether a pod is somebody's work: not the cluster's own, not ended."""
    system = namespace_of(pod).startswith("kube-") or (controller_of(pod) or {}).get("kind") in ("DaemonSet", "Node")
    return not system and phase_of(pod) not in ("Succeeded", "Failed") and RUN_LABEL not in labels_of(pod)


async def _device_class(client: ApiClient, name: str) -> Obj | None:
    return await _find(client, CLASSES, name)


def _selectors(device_class: Obj) -> list[DeviceSelector]:
    try:
        expressions = [one["cel"]["expression"] for one in (device_class.get("spec") or {}).get("selectors") or ()]
        return [compile_device_selector(text, consumable_capacity=True, list_attributes=True) for text in expressions]
    except (CompileError, KeyError) as error:
        raise StressError(f"--device-class: {name_of(device_class)}: its selector cannot be read: {error}") from error


def _matcher(selectors: list[DeviceSelector]) -> Matches:
    known: dict[int, tuple[Obj, bool]] = {}

    def matches(driver: str, entry: Obj) -> bool:
        found = known.get(id(entry))
        if found is None or found[0] is not entry:
            known[id(entry)] = found = entry, all(_match(selector, driver, entry) for selector in selectors)
        return found[1]

    return matches


def _match(selector: DeviceSelector, driver: str, entry: Obj) -> bool:
    view = DeviceView(driver, entry.get("attributes") or {}, entry.get("capacity") or {}, False)
    try:
        return selector.measure(view).value is True
    except EvaluationError:
        return False


def _without(kinds: tuple[str, ...], kind: str, why: str) -> tuple[str, ...]:
    left = tuple(one for one in kinds if one != kind)
    if not {"gangs", "claims", "pods"}.intersection(left):
        raise StressError(f"--kinds: nothing can be tried here: {why}")
    return left


async def _find(client: ApiClient, kind: Kind, name: str) -> Obj | None:
    with suppress_status(404):
        return await client.get(kind, name)
    return None


async def _delete(client: ApiClient, kind: Kind, obj: Obj, grace: int | None = None) -> None:
    with suppress_status(404, 409):
        await client.delete(kind, name_of(obj), namespace_of(obj), uid=uid_of(obj), grace_period_seconds=grace)
