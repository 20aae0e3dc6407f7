"""What a claim may ask of its cards: kinds `GpuConfig` and `MigDeviceConfig` of `resource.nvidia.com/v1beta1`.

Of the configurations for a device the claim's come before the class's and later ones before earlier; the first whose
kind fits counts. One that names the request and does not fit is an error. Unknown fields are errors. Pure.
Source: the NVIDIA DRA driver's API.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from haru.drivers.library import Allocated, ConfigError
from haru.kube.quantity import parse_quantity

GROUP: Final = "resource.nvidia.com/v1beta1"
KINDS: Final = {"GpuConfig": False, "MigDeviceConfig": True}
INTERVALS: Final = ("Default", "Short", "Medium", "Long")
_HERE: Final = "opaque.parameters"
_GATES: Final = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}


@dataclass(frozen=True, slots=True)
class MpsSettings:
    """Defaults for the clients of an MPS server."""

    active_thread_percentage: int | None = None
    memory_limit: str = ""
    """In MPS' own writing (`2048M`); empty for none."""
    memory_limits: tuple[tuple[str, str], ...] = ()
    """(index in the claim or UUID of a device, limit): before `memory_limit`."""
    multi_user: bool = False


@dataclass(frozen=True, slots=True)
class Sharing:
    """How containers that use one device share it: a time slice (0 to 3, the driver's default first), or MPS."""

    strategy: str
    interval: int = 0
    mps: MpsSettings = field(default_factory=MpsSettings)


def sharing_of(allocated: Allocated, is_partition: bool, gates: Collection[str]) -> Sharing | None:
    """How a device is to be shared, None if nothing is said. Raises `ConfigError`."""
    decoded = [_decode(parameters, gates) for parameters in allocated.parameters]
    named = allocated.named or (False,) * len(decoded)
    for (kind, sharing), is_named in zip(reversed(decoded), reversed(named), strict=True):
        if KINDS[kind] == is_partition:
            return sharing
        if is_named:
            remedy = f"device {allocated.device} is {'a partition' if is_partition else 'a whole card'}: write " + (
                "MigDeviceConfig" if is_partition else "GpuConfig"
            )
            raise ConfigError(f"{_HERE}.kind", kind, remedy)
    return None


def _decode(parameters: Mapping[str, Any], gates: Collection[str]) -> tuple[str, Sharing | None]:
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != GROUP:
        raise ConfigError(f"{_HERE}.apiVersion", version, f"write {GROUP}")
    if kind not in KINDS:
        raise ConfigError(f"{_HERE}.kind", kind, f"this driver knows {' and '.join(KINDS)}")
    _only(parameters, ("apiVersion", "kind", "sharing"), _HERE)
    found = parameters.get("sharing")
    if found is None:
        return str(kind), None
    where = f"{_HERE}.sharing"
    told = _mapping(found, where)
    _only(told, ("strategy", "timeSlicingConfig", "mpsConfig"), where)
    strategy = told.get("strategy")
    if strategy not in _GATES:
        raise ConfigError(f"{where}.strategy", strategy, f"write {' or '.join(_GATES)}")
    other = "mpsConfig" if strategy == "TimeSlicing" else "timeSlicingConfig"
    if told.get(other) is not None:
        raise ConfigError(f"{where}.{other}", told[other], f"cannot stand beside the strategy {strategy}")
    if strategy == "TimeSlicing" and KINDS[kind]:
        raise ConfigError(f"{where}.strategy", strategy, "a partition has no time slices of its own: write MPS")
    if _GATES[strategy] not in gates:
        raise ConfigError(f"{where}.strategy", strategy, f"the driver runs without {_GATES[strategy]}")
    if strategy == "TimeSlicing":
        return str(kind), Sharing(strategy, _interval(told.get("timeSlicingConfig"), f"{where}.timeSlicingConfig"))
    return str(kind), Sharing(strategy, mps=_mps(told.get("mpsConfig"), f"{where}.mpsConfig"))


def _interval(found: Any, where: str) -> int:
    told = _mapping(found or {}, where)
    _only(told, ("interval",), where)
    interval = told.get("interval", "Default")
    if interval not in INTERVALS:
        raise ConfigError(f"{where}.interval", interval, f"write one of {', '.join(INTERVALS)}")
    return INTERVALS.index(interval)


def _mps(found: Any, where: str) -> MpsSettings:
    told = _mapping(found or {}, where)
    percentage, limit = "defaultActiveThreadPercentage", "defaultPinnedDeviceMemoryLimit"
    limits = "defaultPerDevicePinnedMemoryLimit"
    _only(told, (percentage, limit, limits, "multiUser"), where)
    threads = told.get(percentage)
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= 100):
        raise ConfigError(f"{where}.{percentage}", threads, "write a whole number from 0 to 100")
    multi_user = told.get("multiUser", False)
    if not isinstance(multi_user, bool):
        raise ConfigError(f"{where}.multiUser", multi_user, "write true or false")
    memory = "" if told.get(limit) is None else _memory(told[limit], f"{where}.{limit}")
    by_device = _mapping(told.get(limits) or {}, f"{where}.{limits}")
    each = tuple((key, _memory(value, f"{where}.{limits}[{key}]")) for key, value in by_device.items())
    return MpsSettings(threads, memory, each, multi_user)


def _memory(value: Any, where: str) -> str:
    try:
        mebibytes = parse_quantity(str(value)).value() >> 20
    except ValueError as error:
        raise ConfigError(where, value, str(error)) from None
    if mebibytes < 1:
        raise ConfigError(where, value, "write at least 1Mi")
    return f"{mebibytes}M"


def limits_of(settings: MpsSettings, uuids: list[str]) -> dict[str, str]:
    """UUID -> memory limit of the devices of a server. Raises `ConfigError` for a device that is not among them."""
    found = {uuid: settings.memory_limit for uuid in uuids if settings.memory_limit}
    for key, limit in settings.memory_limits:
        uuid = uuids[int(key)] if key.isdigit() and int(key) < len(uuids) else key
        if uuid not in uuids:
            where = f"{_HERE}.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit"
            raise ConfigError(where, key, f"write an index below {len(uuids)} or a device's UUID")
        found[uuid] = limit
    return found


def _mapping(found: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise ConfigError(where, found, "write an object")
    return found


def _only(found: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for name in found:
        if name not in known:
            raise ConfigError(f"{where}.{name}", found[name], f"unknown field: write {', '.join(known)}")
