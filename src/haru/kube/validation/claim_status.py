"""The status of a ResourceClaim: allocation, reservations, device status (KEP 4381, 4817, 5007, 5075).

An allocation is set once and only ever cleared; a claim that is being deleted takes no new reservations.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, required, too_long
from haru.kube.meta import Obj
from haru.kube.validation.claims import RequestNames, request_names, request_reference, request_references
from haru.kube.validation.common import (
    bounded,
    bounded_set,
    driver_name,
    each_message,
    immutable,
    indexed,
    items,
    label_name,
    one_of,
    part,
    same,
    unique,
)
from haru.kube.validation.devices import (
    MAX_CONFIG,
    binding_conditions,
    device_configuration,
    json_object,
    pool_name,
)
from haru.kube.validation.selectors import validate_conditions, validate_node_selector

MAX_RESULTS = 32
MAX_RESERVED_FOR = 256
MAX_DEVICE_CONDITIONS = 8
MAX_DATA_BYTES = 10 * 1024
MAX_IPS = 16
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID_LENGTHS = (32, 36, 38, 45)
_IDENTITY = ("driver", "pool", "device", "shareID")
_UUID_MESSAGE = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "
    "characters"
)


def validate_claim_status(new: Obj, old: Obj) -> list[FieldError]:
    """A claim's status when it replaces a stored one."""
    status, before = part(new, "status"), part(old, "status")
    reserved = items(status, "reservedFor")
    found = bounded_set("status.reservedFor", reserved, MAX_RESERVED_FOR, _consumer, lambda c: c.get("uid"))
    allocation = status.get("allocation")
    allocated = frozenset(_device_key(result) for result in items(part(allocation, "devices"), "results"))
    devices = items(status, "devices")
    found += indexed("status.devices", devices, lambda field, device: _device_status(field, device, allocated))
    found += unique("status.devices", devices, _device_key)
    if reserved:
        found += _reservations(reserved, items(before, "reservedFor"), new, allocation)
    if allocation is not None:
        if before.get("allocation") is not None:
            found += immutable("status.allocation", allocation, before["allocation"])
        else:
            found += _allocation("status.allocation", allocation, request_names(part(new, "spec")))
    return found


def _reservations(
    reserved: Sequence[Obj], before: Sequence[Obj], claim: Obj, allocation: Obj | None
) -> list[FieldError]:
    if allocation is None:
        return [forbidden("status.reservedFor", "may not be specified when `allocated` is not set")]
    if part(claim, "metadata").get("deletionTimestamp") and any(
        not any(same(consumer, known) for known in before) for consumer in reserved
    ):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        return [forbidden("status.reservedFor", why)]
    return []


def _consumer(field: str, consumer: Obj) -> list[FieldError]:
    return [required(f"{field}.{name}") for name in ("resource", "name", "uid") if not consumer.get(name)]


def _device_key(device: Obj) -> tuple[str, ...]:
    return tuple(device.get(name) or "" for name in _IDENTITY)


def _allocation(field: str, allocation: Obj, known: RequestNames) -> list[FieldError]:
    devices = part(allocation, "devices")
    found = bounded(
        f"{field}.devices.results", items(devices, "results"), MAX_RESULTS, lambda f, r: _result(f, r, known)
    )
    # Configuration comes from the classes and from the claim itself.
    found += bounded(
        f"{field}.devices.config", items(devices, "config"), 2 * MAX_CONFIG, lambda f, c: _configuration(f, c, known)
    )
    selector = allocation.get("nodeSelector")
    return found + (validate_node_selector(f"{field}.nodeSelector", selector) if selector is not None else [])


def _result(field: str, result: Obj, known: RequestNames) -> list[FieldError]:
    found = request_reference(f"{field}.request", result.get("request") or "", known)
    found += _device_identity(field, result)
    return found + binding_conditions(field, result)


def _device_identity(field: str, device: Obj) -> list[FieldError]:
    found = driver_name(f"{field}.driver", device.get("driver") or "")
    found += pool_name(f"{field}.pool", device.get("pool") or "")
    found += label_name(f"{field}.device", device.get("device") or "")
    share = device.get("shareID")
    if share is not None and not _UUID.fullmatch(share):
        is_short = len(share) not in _UUID_LENGTHS
        why = f"error validating uid: invalid UUID length: {len(share)}" if is_short else _UUID_MESSAGE
        found.append(invalid(f"{field}.shareID", share, why))
    return found


def _configuration(field: str, config: Obj, known: RequestNames) -> list[FieldError]:
    found = one_of(f"{field}.source", config.get("source"), ("FromClaim", "FromClass"))
    found += request_references(f"{field}.requests", items(config, "requests"), known)
    return found + device_configuration(field, config)


def _device_status(field: str, device: Obj, allocated: frozenset[Hashable]) -> list[FieldError]:
    found = _device_identity(field, device)
    if _device_key(device) not in allocated:
        identity = {
            f"{name[0].upper()}{name[1:]}": text for name, text in zip(_IDENTITY, _device_key(device), strict=True)
        }
        found.append(invalid(field, identity, "must be an allocated device in the claim"))
    found += validate_conditions(f"{field}.conditions", items(device, "conditions"), MAX_DEVICE_CONDITIONS)
    if device.get("data") is not None:
        found += json_object(f"{field}.data", device["data"], MAX_DATA_BYTES)
    network = device.get("networkData")
    return found + (_network_data(f"{field}.networkData", network) if network is not None else [])


def _network_data(field: str, network: Obj) -> list[FieldError]:
    found = [
        too_long(f"{field}.{name}", maximum)
        for name, maximum in (("interfaceName", 256), ("hardwareAddress", 128))
        if len((network.get(name) or "").encode()) > maximum
    ]
    return found + bounded_set(f"{field}.ips", items(network, "ips"), MAX_IPS, _address, lambda ip: ip)


def _address(field: str, address: str) -> list[FieldError]:
    return each_message(field, address, names.is_interface_address(address))
