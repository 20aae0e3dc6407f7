"""Extended resources that devices stand behind: a pod says `nvidia.com/gpu: 2` and is given devices of a class.

What the pod's containers ask for becomes one *special* claim, which the scheduler makes for the pod. A node that
advertises a resource itself serves it through its device plugin; on every other node its class does.
Source: KEP-5004 (DRAExtendedResource).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from haru.engine.state.decision import PodKey
from haru.engine.state.pod_values import amount_of
from haru.kube.meta import Obj, annotations_of, controller_of

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


class ContainerRequest(NamedTuple):
    """What one container asks of one extended resource. `name` is that of the request in the special claim.

    `devices` is 0 where the container uses devices that are requested for another one.
    """

    name: str
    container: str
    resource: str
    devices: int


def explicit_classes(classes: Mapping[str, Obj]) -> dict[str, str]:
    """From `extendedResourceName` to the class that counts: the newest one, among equals the first by name."""
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(classes):
        resource = (classes[name].get("spec") or {}).get("extendedResourceName")
        created = classes[name]["metadata"].get("creationTimestamp") or ""
        if resource and (resource not in found or created > found[resource][0]):
            found[resource] = (created, name)
    return {resource: name for resource, (_, name) in found.items()}


def backing_class(resource: str, explicit: Mapping[str, str], classes: Collection[str]) -> str:
    """The class behind a resource: by its explicit name, or by the implicit one that every class has; "" if none."""
    implicit = resource.removeprefix(IMPLICIT_PREFIX) if resource.startswith(IMPLICIT_PREFIX) else ""
    return explicit.get(resource) or (implicit if implicit in classes else "")


def container_requests(pod: Obj, resources: Collection[str]) -> Iterator[ContainerRequest]:
    """What init containers and containers ask of these resources.

    An init container ends before the containers after it start: it uses their devices first, and what it needs more of
    is requested once, for the one that needs most.
    """
    spec: Mapping[str, Any] = pod.get("spec") or {}
    initial = spec.get("initContainers") or ()
    ending = {index for index, container in enumerate(initial) if container.get("restartPolicy") != "Always"}
    containers = [*initial, *(spec.get("containers") or ())]
    for resource in sorted(resources):
        asked = {index: own for index, one in enumerate(containers) if (own := _own_request(index, one, resource))}
        lasting = {index: own for index, own in asked.items() if index not in ending}
        yield from lasting.values()
        yield from _ending_requests({index: own for index, own in asked.items() if index in ending}, lasting)


def _own_request(index: int, container: Mapping[str, Any], resource: str) -> ContainerRequest | None:
    asked = (container.get("resources") or {}).get("requests") or {}
    devices = amount_of(resource, asked[resource]) if resource in asked else 0
    if devices <= 0:
        return None
    return ContainerRequest(
        f"container-{index}-request-{sorted(asked).index(resource)}", container["name"], resource, devices
    )


def _ending_requests(
    ending: Mapping[int, ContainerRequest], lasting: Mapping[int, ContainerRequest]
) -> list[ContainerRequest]:
    found = []
    for index, own in ending.items():
        missing = own.devices
        for later, other in lasting.items():
            if later > index and missing > 0:
                found.append(other._replace(container=own.container, devices=0))
                missing -= other.devices
        if missing > 0:
            found.append(own._replace(devices=missing))
    most = max(found, key=lambda one: one.devices, default=None)
    return [
        one if one is most or not one.devices or most is None else one._replace(name=most.name, devices=0)
        for one in found
    ]


def device_requests(requests: Iterable[ContainerRequest], classes: Mapping[str, str]) -> list[Obj]:
    """The requests of the special claim, sorted by name. `classes` has the class of every resource."""
    return [
        {
            "name": request.name,
            "exactly": {
                "deviceClassName": classes[request.resource],
                "allocationMode": "ExactCount",
                "count": request.devices,
            },
        }
        for request in sorted(requests)
        if request.devices
    ]


def request_mappings(requests: Iterable[ContainerRequest]) -> tuple[Obj, ...]:
    """`requestMappings` of `status.extendedResourceClaimStatus`: which container gets the devices of which request."""
    return tuple(
        {"containerName": request.container, "resourceName": request.resource, "requestName": request.name}
        for request in requests
    )


def extended_resource_claim(pod: PodKey, requests: list[Obj]) -> Obj:
    """The claim to be made for a pod. Its name is a stand-in that no object can have: the real one is generated."""
    base = f"{pod.name}-extended-resources-"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": base,
            "generateName": base,
            "namespace": pod.namespace,
            "uid": "",
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"devices": {"requests": requests}},
    }


def extended_resource_claim_owner(claim: Mapping[str, Any]) -> str:
    """The UID of the pod that a special claim was made for; "" for any other claim."""
    if annotations_of(claim).get(ANNOTATION) != "true":
        return ""
    owner = controller_of(claim) or {}
    return str(owner.get("uid") or "") if owner.get("kind") == "Pod" else ""


def extended_resource_claim_owners(claim: Mapping[str, Any] | None) -> frozenset[str]:
    """The UID of the pod that a claim was made for because of its extended resources, if it was."""
    if claim is None or not claim["metadata"].get("annotations"):
        return frozenset()
    owner = extended_resource_claim_owner(claim)
    return frozenset((owner,)) if owner else frozenset()


def requested_devices(claim: Mapping[str, Any]) -> tuple[tuple[str, str, int], ...]:
    """Name, class and count of each request of a special claim: what tells two of them apart."""
    found = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        exact = request.get("exactly") or {}
        count = exact.get("count")
        found.append((request["name"], exact.get("deviceClassName") or "", 1 if count is None else int(count)))
    return tuple(sorted(found))
