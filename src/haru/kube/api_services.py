"""APIServices: who serves a group version, this server or an extension API server behind a Service.

Local ones (without `spec.service`) are kept by the server itself for what it serves; their label says how. What is said
of remote ones is decided in `haru.apiserver.aggregation`.
Source: apiregistration.k8s.io/v1 and kube-aggregator's autoregister controller, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from haru.kube.data import rows
from haru.kube.meta import Obj, set_condition

GroupVersion = tuple[str, str]

GROUP = "apiregistration.k8s.io"
VERSION = "v1"
PLURAL = "apiservices"
KIND = "APIService"
AVAILABLE = "Available"
MANAGED = "kube-aggregator.kubernetes.io/automanaged"
"""The label of APIServices that servers keep: `onstart` for what is built in, `true` for custom resources."""
ON_START, ALWAYS = "onstart", "true"
CUSTOM_PRIORITIES = (1000, 100)
LOCAL: Mapping[str, str] = {
    "type": AVAILABLE,
    "status": "True",
    "reason": "Local",
    "message": "Local APIServices are always available",
}

_PRIORITIES = {"" if group == "core" else group: (int(own), versions) for group, own, *versions in rows("api_services")}
_GROUPS = {group: own for group, (own, _) in _PRIORITIES.items()}
_VERSIONS: Mapping[GroupVersion, int] = {
    (group, version): int(own)
    for group, (_, versions) in _PRIORITIES.items()
    for version, own in (text.split(":") for text in versions)
}
_KUBE_LIKE = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


def name_of(group: str, version: str) -> str:
    """The name of a group version's APIService; `v1.` for the core group."""
    return f"{version}.{group}"


def group_version_of(service: Obj) -> GroupVersion:
    """Return the group and version of an APIService."""
    spec = service.get("spec") or {}
    return spec.get("group") or "", spec.get("version") or ""


def is_remote(service: Obj) -> bool:
    """Whether a Service answers for the group version."""
    return bool((service.get("spec") or {}).get("service"))


def local_service(group: str, version: str, *, custom: bool = False) -> Obj | None:
    """The APIService that a server keeps for what it serves itself; None for a group that has none (its own)."""
    if custom:
        priorities, label = CUSTOM_PRIORITIES, ALWAYS
    elif group in _GROUPS:
        rest = 15 if "alpha" not in version and "beta" not in version else 9
        priorities, label = (_GROUPS[group], _VERSIONS.get((group, version), rest)), ON_START
    else:
        return None
    spec: Obj = {"group": group} if group else {}
    spec |= {"version": version, "groupPriorityMinimum": priorities[0], "versionPriority": priorities[1]}
    metadata = {"name": name_of(group, version), "labels": {MANAGED: label}}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": spec}


def with_first_status(service: Obj, now: str) -> Obj:
    """A new APIService: a local one is available at once, of another one nothing is known yet."""
    if is_remote(service):
        return service
    return {**service, "status": {"conditions": set_condition((), dict(LOCAL), now)}}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as clients prefer them: v2, v1, v1beta2, v1beta1, v1alpha1, then all others by name."""
    found = _KUBE_LIKE.fullmatch(version)
    if found is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), "")


def by_preference(services: Iterable[Obj]) -> list[Obj]:
    """APIServices in the order in which clients prefer their groups, then their versions.

    A group's place follows from the highest priority that any of its versions asks for, then from its name.
    """
    listed = list(services)
    groups: dict[str, int] = {}
    for service in listed:
        group, _ = group_version_of(service)
        groups[group] = max(groups.get(group, 0), int(service["spec"].get("groupPriorityMinimum") or 0))

    def rank(service: Obj) -> tuple[Any, ...]:
        group, version = group_version_of(service)
        return -groups[group], group, -int(service["spec"].get("versionPriority") or 0), version_rank(version)

    return sorted(listed, key=rank)
