"""Devices of each container of a pod, and their health in its status. Pure.

Source: kubelet `cm/dra` (GetResources, UpdateAllocatedResourcesStatus), as behaviour; KEP-4381, KEP-5004, KEP-4680.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from haru.kube.meta import Obj, namespace_of
from haru.kube.pod_claims import NotPrepared, pod_claims
from haru.node.dra.claim_info_cache import ClaimInfo, PreparedDevice

Find = Callable[[str], ClaimInfo | None]
"""The claim of a key (`namespace/name`) as it is prepared here."""


class Use(NamedTuple):
    """A container uses the devices of a request of a claim (empty: of all requests)."""

    container: str
    entry: str
    """The pod's name for the claim; empty for that of its extended resources."""
    key: str
    request: str


def uses_of(pod: Mapping[str, Any]) -> list[Use]:
    """What the containers use. Raises `NotPrepared` while a claim has not been generated."""
    claims = {use.entry: f"{namespace_of(pod)}/{use.name}" for use in pod_claims(pod)}
    uses = []
    for container in containers_of(pod):
        for claim in (container.get("resources") or {}).get("claims") or ():
            if claim["name"] in claims:
                key = claims[claim["name"]]
                uses.append(Use(container["name"], claim["name"], key, claim.get("request") or ""))
    extended = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("requestMappings") or ()
    if "" in claims:
        uses += [Use(mapping["containerName"], "", claims[""], mapping["requestName"]) for mapping in extended]
    return uses


def containers_of(pod: Mapping[str, Any]) -> list[Obj]:
    """Init containers, then the others."""
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def devices_of(use: Use, find: Find) -> Iterator[tuple[str, PreparedDevice]]:
    """(driver, device) of what a container uses, as far as it is prepared."""
    info = find(use.key)
    if info is None:
        return
    for driver, devices in info.drivers.items():
        for device in devices:
            if device.serves(use.request):
                yield driver, device


def cdi_ids(pod: Mapping[str, Any], find: Find) -> dict[str, tuple[str, ...]]:
    """Container -> the CDI ids of its devices, each once. Raises `NotPrepared`."""
    found: dict[str, dict[str, None]] = {}
    for use in uses_of(pod):
        for _, device in devices_of(use, find):
            found.setdefault(use.container, {}).update(dict.fromkeys(device.cdi_ids))
    return {container: tuple(ids) for container, ids in found.items()}


def health_status(
    pod: Mapping[str, Any], find: Find, health: Callable[[str, str, str], tuple[str, str]]
) -> dict[str, list[Obj]]:
    """Container -> `allocatedResourcesStatus`; `health(driver, pool, device)` is (Healthy|Unhealthy|Unknown, message).

    Only regular containers that list claims have one, and only for what has devices.
    """
    try:
        uses = uses_of(pod)
    except NotPrepared:
        return {}
    regular = {container["name"] for container in (pod.get("spec") or {}).get("containers") or ()}
    status: dict[str, list[Obj]] = {}
    for use in uses:
        if not use.entry or use.container not in regular:
            continue
        resources = {}
        for driver, device in devices_of(use, find):
            id_ = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
            state, message = health(driver, device.pool, device.device)
            told = {"resourceID": id_, "health": state}
            resources[id_] = {**told, "message": message} if message else told
        if resources:
            name = f"claim:{use.entry}/{use.request}" if use.request else f"claim:{use.entry}"
            status.setdefault(use.container, []).append({"name": name, "resources": list(resources.values())})
    return status


def with_health(status: Sequence[Obj], health: Mapping[str, list[Obj]]) -> list[Obj]:
    """Container statuses with the current health of their devices."""
    told = []
    for one in status:
        rest = {key: value for key, value in one.items() if key != "allocatedResourcesStatus"}
        mine = health.get(one["name"])
        told.append({**rest, "allocatedResourcesStatus": mine} if mine else rest)
    return told
