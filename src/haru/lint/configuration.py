"""Opaque configuration: what drivers decode strictly when they prepare a claim, long after the API took it.

Which devices a claim gets is never configuration: partitions are chosen by class and selector.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from haru.kube.decoding import suggest
from haru.kube.meta import Obj
from haru.lint.findings import Draft, Edit, Rename, Replace
from haru.lint.published import (
    COMPUTE_DOMAIN,
    CONFIG_GROUP,
    CONFIG_KINDS,
    CONFIG_TYPES,
    KINDLESS_DRIVERS,
    NVIDIA,
    plain,
)

_PARTITION_KEYS = frozenset(
    {
        "partition",
        "partitions",
        "migprofile",
        "profile",
        "mig",
        "migdevice",
        "slice",
        "sliceprofile",
        "gpuslice",
        "migstrategy",
    }
)
_PROFILE = re.compile(r"(?:mig[-_])?(\d+g[.-]\d+gb(?:\+me(?:\.all)?)?)", re.IGNORECASE)
_STRATEGIES = ("TimeSlicing", "MPS")
_INTERVALS = ("Default", "Short", "Medium", "Long")
_SHARING = frozenset({"strategy", "timeSlicingConfig", "mpsConfig"})


def check_config(
    path: str, config: Obj, drivers: Collection[str], types: Collection[str], edits: tuple[Edit, ...] = ()
) -> Iterator[Draft]:
    """One entry; `drivers` and `types` are those of the devices it is for, `edits` make a request of a partition."""
    opaque = config.get("opaque") or {}
    driver, parameters = str(opaque.get("driver") or ""), opaque.get("parameters")
    place = f"{path}.opaque.parameters"
    if drivers and driver and driver not in drivers:
        listed = ", ".join(sorted(drivers))
        reason = "a driver takes only what is addressed to it, so this never has an effect"
        yield Draft(
            "config-driver", f"{path}.opaque.driver", f"the devices belong to {listed}, not to {driver}", reason
        )
    if not isinstance(parameters, dict) or driver in KINDLESS_DRIVERS:
        return
    profile = wanted_partition(parameters) if driver == NVIDIA else None
    api_version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if not (isinstance(api_version, str) and api_version and isinstance(kind, str) and kind):
        yield _kindless(place, driver, parameters, profile, edits)
    elif profile is not None:
        message = f"{profile[0]} asks for a partition"
        reason = "configuration says how a device is used, never which one is chosen"
        yield Draft("config-partition", place, message, reason, _partition_advice(profile[1]), edits)
    elif driver in (NVIDIA, COMPUTE_DOMAIN):
        yield from _known_kind(place, parameters, api_version, kind, types)


def wanted_partition(parameters: Obj) -> tuple[str, str] | None:
    """(key, profile) where parameters look like the request for a partition; the profile may be empty."""
    for key, value in parameters.items():
        folded = plain(key)
        match = _PROFILE.fullmatch(value) if isinstance(value, str) else None
        if folded in _PARTITION_KEYS or match is not None:
            return key, match[1].lower().replace("-", ".", 1) if match is not None else ""
    return None


def _partition_advice(profile: str) -> str:
    selector = f'device.attributes["gpu.nvidia.com"].profile == "{profile or "3g.40gb"}"'
    return f"deviceClassName: mig.nvidia.com with the selector {selector}, and no configuration"


def _kindless(
    place: str, driver: str, parameters: Obj, profile: tuple[str, str] | None, edits: tuple[Edit, ...]
) -> Draft:
    missing = [key for key in ("apiVersion", "kind") if not parameters.get(key)]
    message = f"the parameters have no {' and no '.join(missing)}"
    reason = "the driver cannot decode them, and refuses when it prepares the claim: the pod never starts"
    if profile is not None:
        why = f"{reason}; and a partition is never chosen by configuration"
        return Draft("config-kind", place, message, why, _partition_advice(profile[1]), edits)
    if driver in (NVIDIA, COMPUTE_DOMAIN):
        listed = ", ".join(CONFIG_KINDS)
        close = [kind for kind, fields in CONFIG_KINDS.items() if set(parameters) <= fields and "sharing" in fields]
        advice = f"apiVersion: {CONFIG_GROUP} and kind: one of {listed}"
        if close and parameters:
            advice = f"apiVersion: {CONFIG_GROUP} and kind: {close[0]}"
        elif parameters:
            advice += f"; {', '.join(parameters)} belongs to none of them"
        return Draft("config-kind", place, message, reason, advice)
    if driver == "gpu.example.com":
        return Draft(
            "config-kind", place, message, reason, "apiVersion: gpu.resource.example.com/v1alpha1, kind: GpuConfig"
        )
    reason = (
        "most drivers decode their parameters by apiVersion and kind, and refuse others when they prepare the claim"
    )
    return Draft(
        "config-kind", place, message, reason, "add apiVersion and kind as the driver documents", (), "warning"
    )


def _known_kind(place: str, parameters: Obj, api_version: str, kind: str, types: Collection[str]) -> Iterator[Draft]:
    reason = "the driver decodes strictly, and refuses when it prepares the claim"
    if api_version != CONFIG_GROUP:
        edit = (Replace(f"{place}.apiVersion", CONFIG_GROUP),)
        message = f"the driver does not know {api_version}"
        yield Draft("config-unknown", f"{place}.apiVersion", message, reason, f"apiVersion: {CONFIG_GROUP}", edit)
    fields = CONFIG_KINDS.get(kind)
    if fields is None:
        close = suggest(kind, CONFIG_KINDS)
        advice = f"kind: {close}" if close else f"kind: one of {', '.join(CONFIG_KINDS)}"
        edits: tuple[Edit, ...] = (Replace(f"{place}.kind", close),) if close else ()
        yield Draft("config-unknown", f"{place}.kind", f"the driver does not know {kind}", reason, advice, edits)
        return
    wanted = CONFIG_TYPES.get(kind)
    if types and wanted is not None and wanted not in types:
        right = next((name for name, type_ in CONFIG_TYPES.items() if type_ in types), "")
        message = f"{kind} is for devices of type {wanted}, the request's are {', '.join(sorted(types))}"
        yield Draft("config-unknown", f"{place}.kind", message, reason, f"kind: {right}" if right else "")
    for key in parameters:
        if key not in fields and key not in ("apiVersion", "kind"):
            yield _unknown(place, key, fields, f"{kind} has {', '.join(sorted(fields))}")
    sharing = parameters.get("sharing")
    if isinstance(sharing, dict) and "sharing" in fields:
        yield from _sharing(f"{place}.sharing", sharing, kind)


def _unknown(place: str, key: str, known: Collection[str], reason: str) -> Draft:
    close = suggest(key, known)
    edits: tuple[Edit, ...] = (Rename(f"{place}.{key}", close),) if close else ()
    return Draft(
        "config-unknown", f"{place}.{key}", f"unknown field {key}", reason, f"write {close}" if close else "", edits
    )


def _sharing(place: str, sharing: Obj, kind: str) -> Iterator[Draft]:
    strategy = sharing.get("strategy")
    if strategy not in _STRATEGIES:
        close = suggest(str(strategy), _STRATEGIES)
        edits: tuple[Edit, ...] = (Replace(f"{place}.strategy", close),) if close and "strategy" in sharing else ()
        message = f"the strategy is {strategy!r}" if "strategy" in sharing else "the strategy is missing"
        yield Draft(
            "config-unknown", f"{place}.strategy" if strategy else place, message, "", "TimeSlicing or MPS", edits
        )
    for key in sharing:
        if key not in _SHARING:
            yield _unknown(place, key, _SHARING, f"sharing has {', '.join(sorted(_SHARING))}")
    other = {"TimeSlicing": "mpsConfig", "MPS": "timeSlicingConfig"}.get(str(strategy), "")
    if other in sharing:
        message = f"{other} does not belong to the strategy {strategy}"
        yield Draft(
            "config-unknown", f"{place}.{other}", message, "the driver refuses both together", f"leave {other} out"
        )
    slicing = sharing.get("timeSlicingConfig")
    if kind == "MigDeviceConfig" and (slicing is not None or strategy == "TimeSlicing"):
        message = "partitions have no time slicing"
        yield Draft("config-unknown", f"{place}.strategy", message, "the driver refuses it", "strategy: MPS")
    interval = slicing.get("interval") if isinstance(slicing, dict) else None
    if interval is not None and interval not in _INTERVALS:
        close = suggest(str(interval), _INTERVALS)
        edits = (Replace(f"{place}.timeSlicingConfig.interval", close),) if close else ()
        message, listed = f"the interval is {interval!r}", ", ".join(_INTERVALS)
        yield Draft("config-unknown", f"{place}.timeSlicingConfig.interval", message, "", f"one of {listed}", edits)
