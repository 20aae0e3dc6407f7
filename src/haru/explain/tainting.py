"""A taint that a person puts on one device: the DeviceTaintRule that does it, and whom it affects.

The rule of a device and a key has one name, so that the same wish finds the same rule. A label says that it is ours.
Who is evicted, and when, is the eviction controller's own arithmetic. Source: KEP-5055.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from haru.engine.dra import (
    NO_EXECUTE,
    DeviceId,
    Taint,
    decode_taint_rule,
    published_taints,
    rule_selects,
    taint_time,
    tolerates,
)
from haru.explain.device_names import published_devices
from haru.kube.meta import Obj, allocation_of, is_being_deleted, labels_of, name_of, namespace_of, uid_of
from haru.kube.names import is_label_value, is_qualified_name, short_hash

EFFECTS = ("NoExecute", "NoSchedule", "None")
RULE_VERSION = "resource.k8s.io/v1beta2"
OWN_LABEL = ("app.kubernetes.io/managed-by", "haru-device-taint")
_MAX_NAME = 253
_SUFFIX = 5

Outcome = Literal["Evicted", "EvictedLater", "EvictedOnceBound", "Tolerates", "Stays", "Leaving"]


class TaintTextError(ValueError):
    """A text is no taint; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod that uses the device through a claim, what a taint does to it, and when (if it evicts it)."""

    namespace: str
    name: str
    node: str
    outcome: Outcome
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim that holds the device, whether the taint bars it from getting the device again, and its pods."""

    namespace: str
    name: str
    barred: bool
    pods: tuple[PodUse, ...]


# -- the taint ---------------------------------------------------------------------------------------------------------


def parse_taint(text: str) -> Taint:
    """`KEY[=VALUE]:EFFECT`; TaintTextError names what is wrong."""
    description, colon, effect = text.rpartition(":")
    if not colon:
        raise TaintTextError(f'"{text}": write KEY[=VALUE]:EFFECT, for example maintenance=fan:NoExecute')
    key, _, value = description.partition("=")
    if complaints := [f"key: {c}" for c in is_qualified_name(key)] + [f"value: {c}" for c in is_label_value(value)]:
        raise TaintTextError(f'"{text}": {complaints[0]}')
    return Taint(key, value, _effect(text, effect))


def parse_key(text: str) -> tuple[str, str, str | None]:
    """`KEY[=VALUE][:EFFECT]` as key, effect ("": any) and value (None: any); TaintTextError names what is wrong."""
    what, colon, effect = text.partition(":")
    key, equals, value = what.partition("=")
    if complaints := is_qualified_name(key):
        raise TaintTextError(f'"{text}": write KEY, KEY:EFFECT or KEY=VALUE:EFFECT: {complaints[0]}')
    return key, _effect(text, effect) if colon else "", value if equals else None


def _effect(text: str, effect: str) -> str:
    if effect not in EFFECTS:
        close = difflib.get_close_matches(effect, EFFECTS, 1)
        hint = f"did you mean {close[0]}?" if close else f"it must be one of {', '.join(EFFECTS)}"
        raise TaintTextError(f'"{text}": unknown effect "{effect}"; {hint}')
    return effect


# -- the rule ----------------------------------------------------------------------------------------------------------


def rule_name(device: DeviceId, key: str) -> str:
    """A name that says what the rule is about, and that no other device and key has."""
    readable = re.sub("[^a-z0-9]+", "-", f"{device.pool}-{device.device}-{key}".lower()).strip("-")
    return f"{readable[: _MAX_NAME - _SUFFIX - 1].rstrip('-')}-{short_hash('|'.join((*device, key)), _SUFFIX)}"


def rule_manifest(device: DeviceId, taint: Taint, api_version: str) -> Obj:
    """The DeviceTaintRule that puts the taint on the device."""
    described = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {
        "apiVersion": api_version,
        "kind": "DeviceTaintRule",
        "metadata": {"name": rule_name(device, taint.key), "labels": dict([OWN_LABEL])},
        "spec": {
            "deviceSelector": {"driver": device.driver, "pool": device.pool, "device": device.device},
            "taint": {name: text for name, text in described.items() if text},
        },
    }


def own_rules(
    rules: Iterable[Obj], device: DeviceId, key: str, effect: str = "", value: str | None = None
) -> list[Obj]:
    """Our rules that are about this device alone and this key, and this effect and value if they are given."""
    found = []
    for rule in rules:
        known = decode_taint_rule(rule)
        taint, is_own = known.taint, labels_of(rule).get(OWN_LABEL[0]) == OWN_LABEL[1]
        is_meant = taint.key == key and effect in ("", taint.effect) and value in (None, taint.value or "")
        if is_own and known.named_device == device and is_meant:
            found.append(rule)
    return found


def remaining_taints(device: DeviceId, slices: Iterable[Obj], rules: Iterable[Obj]) -> list[tuple[Obj, str]]:
    """The taints of a device, each with the name of the rule that puts it there, or nothing if its driver does."""
    own = [s for s in slices if (s["spec"]["driver"], s["spec"]["pool"]["name"]) == (device.driver, device.pool)]
    found = [(taint, "") for taint in published_taints(own, device.device)]
    return found + [(rule["spec"]["taint"], name_of(rule)) for rule in rules if rule_selects(rule, device)]


def parts_beside(device: DeviceId, slices: Iterable[Obj]) -> tuple[str, ...]:
    """Other devices of the pool that draw on the same counters: parts of the same hardware, which keep their taints."""
    pool = [found for found in published_devices(slices) if found[0][:2] == device[:2]]
    own = {c.counter_set for i, _, found in pool if i == device for c in found.consumes}
    return tuple(i.device for i, _, d in pool if i != device and any(c.counter_set in own for c in d.consumes))


# -- whom it affects ---------------------------------------------------------------------------------------------------


def affected(
    device: DeviceId, taint: Obj, claims: Iterable[Obj], pods: Iterable[Obj], now: datetime
) -> tuple[ClaimUse, ...]:
    """The claims that hold the device, and what the taint does to each and to its pods, by namespace and name.

    `taint` is a DeviceTaint; without `timeAdded` it is added now.
    """
    by_uid = {uid_of(pod): pod for pod in pods}
    found = []
    for claim in claims:
        results = [result for result in _results(claim) if _device_of(result) == device]
        if results:
            tolerated = all(any(tolerates(t, taint) for t in result.get("tolerations") or ()) for result in results)
            barred = taint.get("effect") in ("NoSchedule", NO_EXECUTE) and not tolerated
            users = tuple(_pod_use(pod, results, taint, now) for pod in _users(claim, by_uid))
            found.append(ClaimUse(namespace_of(claim), name_of(claim), barred, users))
    return tuple(sorted(found, key=lambda use: (use.namespace, use.name)))


def _results(claim: Mapping[str, Any]) -> Iterable[Obj]:
    allocation = allocation_of(claim) or {}
    return (allocation.get("devices") or {}).get("results") or ()


def _device_of(result: Mapping[str, Any]) -> DeviceId:
    return DeviceId(result["driver"], result["pool"], result["device"])


def _users(claim: Obj, by_uid: Mapping[str, Obj]) -> Iterator[Obj]:
    """The pods that the claim is reserved for, themselves or through their PodGroup, unless they have ended."""
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    direct = {entry["uid"] for entry in reserved if entry["resource"] == "pods"}
    groups = {entry["name"] for entry in reserved if entry["resource"] == "podgroups"}
    for uid, pod in sorted(by_uid.items(), key=lambda item: name_of(item[1])):
        group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
        of_group = group in groups and namespace_of(pod) == namespace_of(claim)
        if (uid in direct or of_group) and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            yield pod


def _pod_use(pod: Obj, results: list[Obj], taint: Obj, now: datetime) -> PodUse:
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    outcome, at = _outcome(pod, node, results, taint, now)
    return PodUse(namespace_of(pod), name_of(pod), node, outcome, at)


def _outcome(pod: Obj, node: str, results: list[Obj], taint: Obj, now: datetime) -> tuple[Outcome, datetime | None]:
    if is_being_deleted(pod):
        return "Leaving", None
    if taint.get("effect") != NO_EXECUTE:
        return "Stays", None
    times = [at for result in results if (at := taint_time(result, taint, now)) is not None]
    if not times:
        return "Tolerates", None
    if not node:
        return "EvictedOnceBound", min(times)
    return ("Evicted" if min(times) <= now else "EvictedLater"), min(times)
