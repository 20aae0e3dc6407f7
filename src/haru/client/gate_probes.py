"""Find out by dry-run writes which feature gates a server has on: a field whose gate is off is not kept.

Only for a scheduler beside a server of another release, and only for gates that its version has off by default: on such
a server they may have been turned on. Nothing is stored. Without the right to create an object its gates stay as the
version has them. Source: API strategies of resource.k8s.io (dropDisabledFields).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.client.access_reviews import may
from haru.client.api import ApiClient
from haru.client.server_version import ServerVersion
from haru.kube.errors import StatusError
from haru.kube.gate_table import NEWEST, OLDEST_SERVER, gates_of
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj

_NAME = "haru-gate-probe-"
_NAMESPACE = "default"
_CLASS = "probe.haru.dev"
_SECONDS = 10.0
_API = "resource.k8s.io/v1"
_log = logging.getLogger(__name__)
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Probe:
    """An object with fields of gates. `refused`: without the field the object is invalid, which tells as much."""

    kind: Kind
    spec: Obj
    fields: Mapping[str, Path]
    refused: bool = False


def _claim(name: str, request: Obj, fields: Mapping[str, Path], *, refused: bool = False) -> _Probe:
    spec = {"devices": {"requests": [{"name": name, **request}]}}
    return _Probe(known_kind(_API, "ResourceClaim"), spec, fields, refused)


def _slice(spec: Obj, fields: Mapping[str, Path]) -> _Probe:
    pool = {"name": _CLASS, "generation": 1, "resourceSliceCount": 1}
    return _Probe(known_kind(_API, "ResourceSlice"), {"driver": _CLASS, "pool": pool, "allNodes": True, **spec}, fields)


_EXACTLY: Path = ("devices", "requests", 0, "exactly")
_DEVICE: Path = ("devices", 0)
_PROBES: Sequence[_Probe] = (
    _Probe(
        known_kind(_API, "DeviceClass"),
        {"extendedResourceName": "haru.dev/probe"},
        {"DRAExtendedResource": ("extendedResourceName",)},
    ),
    _claim(
        "one",
        {"exactly": {"deviceClassName": _CLASS, "tolerations": [{"operator": "Exists"}]}},
        {"DRADeviceTaints": (*_EXACTLY, "tolerations")},
    ),
    _claim(
        "one",
        {"firstAvailable": [{"name": "first", "deviceClassName": _CLASS}]},
        {"DRAPrioritizedList": ("devices", "requests", 0, "firstAvailable")},
        refused=True,
    ),
    _slice(
        {"sharedCounters": [{"name": "card", "counters": {"memory": {"value": "1"}}}]},
        {"DRAPartitionableDevices": ("sharedCounters",)},
    ),
    _slice(
        {"devices": [{"name": "one", "allowMultipleAllocations": True}]},
        {"DRAConsumableCapacity": (*_DEVICE, "allowMultipleAllocations")},
    ),
    _slice(
        {"devices": [{"name": "one", "bindingConditions": ["Ready"], "bindingFailureConditions": ["Failed"]}]},
        {"DRADeviceBindingConditions": (*_DEVICE, "bindingConditions")},
    ),
    _slice(
        {"devices": [{"name": "one", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}]},
        {"DRANodeAllocatableResources": (*_DEVICE, "nodeAllocatableResourceMappings")},
    ),
    _Probe(
        known_kind("scheduling.k8s.io/v1alpha2", "PodGroup"),
        {
            "schedulingPolicy": {"gang": {"minCount": 1}},
            "resourceClaims": [{"name": "one", "resourceClaimTemplateName": "probe"}],
        },
        {"DRAWorkloadResourceClaims": ("resourceClaims",)},
    ),
)


def doubtful_gates(given: Collection[str], version: ServerVersion) -> frozenset[str]:
    """Return the gates that can be found out: those that nobody gave and that the server's version has off."""
    if not version.serves(known_kind(_API, "ResourceSlice")):
        return frozenset()
    there = gates_of(min(max(version.minor or NEWEST, OLDEST_SERVER), NEWEST))
    found = {gate for probe in _PROBES for gate in probe.fields}
    return frozenset(gate for gate in found - set(given) if gate in there and not there[gate].default)


async def kept_gates(client: ApiClient, gates: Collection[str]) -> dict[str, bool]:
    """Return which of these gates the server has on, as far as it lets us find out within ten seconds."""
    found: dict[str, bool] = {}
    allowed: dict[Kind, bool] = {}
    try:
        async with asyncio.timeout(_SECONDS):
            for probe in _PROBES:
                if probe.fields.keys().isdisjoint(gates):
                    continue
                if probe.kind not in allowed:
                    allowed[probe.kind] = await _may_create(client, probe.kind)
                if allowed[probe.kind]:
                    found |= {gate: kept for gate, kept in (await _ask(client, probe)).items() if gate in gates}
    except TimeoutError:
        _log.warning("the API server did not answer dry-run writes: its version's feature gates are assumed")
    return found


async def _may_create(client: ApiClient, kind: Kind) -> bool:
    try:
        return await may(client, "create", kind.group, kind.plural, _NAMESPACE if kind.namespaced else "")
    except (StatusError, OSError):
        return False


async def _ask(client: ApiClient, probe: _Probe) -> dict[str, bool]:
    obj: Obj = {"metadata": {"generateName": _NAME}, "spec": probe.spec}
    try:
        answer = await client.create(probe.kind, obj, _NAMESPACE if probe.kind.namespaced else "", dry_run=True)
    except StatusError as error:
        return dict.fromkeys(probe.fields, False) if probe.refused and error.code == 422 else {}
    except OSError:
        return {}
    return {gate: _value(answer["spec"], path) is not None for gate, path in probe.fields.items()}


def _value(part: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, int):
            part = part[step] if isinstance(part, list) and len(part) > step else None
        else:
            part = part.get(step) if isinstance(part, dict) else None
    return part or None
