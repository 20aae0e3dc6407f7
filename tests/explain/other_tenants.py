"""Situations in which all other work belongs to other tenants: it has names of its own, in a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from situations import Situation

from haru.api.snapshot import Snapshot

Obj = dict[str, Any]
MINE, THEIRS = "default", "team-zebra"
_OF_A_NAMESPACE = ("Pod", "ResourceClaim", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "PodGroup")


def among_others(one: Situation) -> Situation:
    """The same situation, with what runs beside the work in a namespace of others."""
    kept, theirs = _others([*one.base()], one), _others(one.objects, one)
    names = dict(_names([*kept, *theirs]))
    return Situation(
        one.name,
        lambda: Snapshot.of(_moved(obj, names) if obj in kept else obj for obj in one.base()),
        tuple(_moved(obj, names) if obj in theirs else obj for obj in one.objects),
        one.about,
        one.ask,
    )


def _others(objects: Iterable[Obj], one: Situation) -> list[Obj]:
    """Pods that have a place and are no part of the work, their claims, and who makes them."""
    there = [obj for obj in objects if obj["kind"] in _OF_A_NAMESPACE]
    pods = [obj for obj in there if obj["kind"] == "Pod" and _is_others(obj, one)]
    claims = {entry.get("resourceClaimName") for pod in pods for entry in pod["spec"].get("resourceClaims") or ()}
    claims |= {
        entry["resourceClaimName"]
        for pod in pods
        for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    mine = {entry.get("resourceClaimName") for pod in there if pod["kind"] == "Pod" and pod not in pods
            for entry in pod["spec"].get("resourceClaims") or ()}  # fmt: skip
    owners = {reference["uid"] for pod in pods for reference in pod["metadata"].get("ownerReferences") or ()}
    held = [obj for obj in there if obj["kind"] == "ResourceClaim" and obj["metadata"]["name"] in claims - mine]
    return [*pods, *held, *(obj for obj in there if obj["metadata"].get("uid") in owners)]


def _is_others(pod: Obj, one: Situation) -> bool:
    word, _, name = one.about.partition("/")
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    owners = {reference["name"] for reference in pod["metadata"].get("ownerReferences") or ()}
    claims = {entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims") or ()}
    mine = pod["metadata"]["name"] == name if word == "pod" else name in (group, *owners, *claims)
    return bool(pod["spec"].get("nodeName")) and not mine and group is None


def _names(objects: Iterable[Obj]) -> Iterator[tuple[str, str]]:
    for obj in objects:
        references = obj["metadata"].get("ownerReferences") or ()
        for name in (obj["metadata"]["name"], *(reference["name"] for reference in references)):
            yield name, f"stripes-{name}"


def _moved(obj: Obj, names: Mapping[str, str]) -> Obj:
    found: Obj = _renamed(obj, names)
    return {**found, "metadata": {**found["metadata"], "namespace": THEIRS}}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        named = {key: names.get(value[key], value[key]) for key in ("name", "resourceClaimName") if key in value}
        return {**{key: _renamed(each, names) for key, each in value.items()}, **named}
    return [_renamed(each, names) for each in value] if isinstance(value, list) else value


def hidden_names(one: Situation) -> frozenset[str]:
    """What a tenant may not be told of such a situation."""
    theirs = [obj for obj in (*one.base(), *one.objects) if obj["metadata"].get("namespace") == THEIRS]
    return frozenset({THEIRS, *(obj["metadata"]["name"] for obj in theirs)}) if theirs else frozenset()
