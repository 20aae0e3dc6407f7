"""Which devices of claims each container of a pod uses, and how those are, in its status. Pure.

Source: kubelet `cm/dra` (GetResources, UpdateAllocatedResourcesStatus), as behaviour; KEP-4381, KEP-5004, KEP-4680.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from haru.kube.meta import Obj, namespace_of
from haru.kube.pod_claims import NotPrepared, pod_claims


class Use(NamedTuple):
    """A container uses the devices of a request of a claim (empty: of all requests)."""

    container: str
    entry: str
    """The pod's name for the claim; empty for that of its extended resources."""
    key: str
    request: str


class UsedDevice(NamedTuple):
    """A device that a container uses, with its first CDI id if it has one."""

    driver: str
    pool: str
    device: str
    cdi_id: str = ""


def uses_of(pod: Mapping[str, Any]) -> list[Use]:
    """What the containers use. Raises `NotPrepared` while a claim has not been generated."""
    claims = {use.entry: f"{namespace_of(pod)}/{use.name}" for use in pod_claims(pod)}
    spec, uses = pod.get("spec") or {}, []
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for claim in (container.get("resources") or {}).get("claims") or ():
            if claim["name"] in claims:
                key = claims[claim["name"]]
                uses.append(Use(container["name"], claim["name"], key, claim.get("request") or ""))
    extended = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("requestMappings") or ()
    if "" in claims:
        uses += [Use(mapping["containerName"], "", claims[""], mapping["requestName"]) for mapping in extended]
    return uses


def health_status(
    pod: Mapping[str, Any],
    devices: Callable[[Use], Iterable[UsedDevice]],
    health: Callable[[str, str, str], tuple[str, str]],
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
        for one in devices(use):
            id_ = one.cdi_id or f"{one.driver}/{one.pool}/{one.device}"
            state, message = health(one.driver, one.pool, one.device)
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
