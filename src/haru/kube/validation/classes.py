"""DeviceClass, DeviceTaintRule and ResourcePoolStatusRequest (KEP 4381, 5004, 5055, 5677)."""

from __future__ import annotations

from haru.kube import names
from haru.kube.errors import FieldError, invalid, required, too_long
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    bounded,
    bounded_set,
    driver_name,
    each_message,
    immutable_member,
    items,
    label_name,
    not_negative,
    part,
    positive,
    same,
    subdomain,
)
from haru.kube.validation.devices import (
    MAX_CONFIG,
    MAX_POOL_NAME,
    device_configuration,
    device_selectors,
    device_taint,
    pool_name,
)
from haru.kube.validation.selectors import validate_conditions
from haru.kube.validation.types import CheckSelector, Rules, no_selector_check

MAX_RULE_CONDITIONS = 8
MAX_REQUEST_CONDITIONS = 10
MAX_POOLS = 1000
MAX_POOL_ERROR_BYTES = 256


def validate_class(device_class: Obj, rules: Rules) -> list[FieldError]:
    """A DeviceClass when it is created."""
    return _class_spec(part(device_class, "spec"), rules.check_selector, stored_config=False)


def validate_class_update(new: Obj, old: Obj, rules: Rules) -> list[FieldError]:
    """A class when it replaces a stored one: selectors and configuration that did not change are not judged again."""
    spec, before = part(new, "spec"), part(old, "spec")
    stored = same(spec.get("selectors"), before.get("selectors"))
    check = no_selector_check if stored else rules.check_selector
    return _class_spec(spec, check, stored_config=same(spec.get("config"), before.get("config")))


def _class_spec(spec: Obj, check: CheckSelector, *, stored_config: bool) -> list[FieldError]:
    found = device_selectors("spec.selectors", items(spec, "selectors"), check)
    found += bounded(
        "spec.config", items(spec, "config"), MAX_CONFIG, lambda f, c: device_configuration(f, c, stored=stored_config)
    )
    name = spec.get("extendedResourceName")
    if name is not None and not names.is_extended_resource_name(name):
        found.append(invalid("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return found


def _caseless_name(field: str, value: str) -> list[FieldError]:
    """A subdomain in any case that must be there: a driver's name without the limit of 63 characters."""
    return each_message(field, value, names.is_caseless_subdomain(value)) if value else [required(field)]


def _segments(field: str, value: str) -> list[FieldError]:
    """A pool's name, whose segments are counted; an empty one is invalid rather than missing."""
    found = [too_long(field, MAX_POOL_NAME)] if len(value.encode()) > MAX_POOL_NAME else []
    for number, segment in enumerate(value.split("/")):
        wrong = names.is_dns1123_subdomain(segment) if segment else ["must not be empty"]
        shown = segment or value
        found += each_message(field, shown, [f"segment {number}: {message}" for message in wrong])
    return found


def validate_taint_rule(rule: Obj, old: Obj | None = None) -> list[FieldError]:
    """A DeviceTaintRule, alone or as the replacement of a stored one."""
    spec = part(rule, "spec")
    selector = spec.get("deviceSelector")
    found: list[FieldError] = []
    if selector is not None:
        place = "spec.deviceSelector"
        checks = {"driver": driver_name, "pool": pool_name, "device": label_name}
        for name, check in checks.items():
            if selector.get(name) is not None:
                found += check(f"{place}.{name}", selector[name])
    before = part(part(old, "spec"), "taint") if old is not None else None
    return found + device_taint("spec.taint", part(spec, "taint"), before)


def validate_taint_rule_status(rule: Obj) -> list[FieldError]:
    """The conditions of a DeviceTaintRule."""
    return validate_conditions("status.conditions", items(part(rule, "status"), "conditions"), MAX_RULE_CONDITIONS)


def validate_pool_status_request(request: Obj) -> list[FieldError]:
    """A ResourcePoolStatusRequest when it is created."""
    spec = part(request, "spec")
    found = _caseless_name("spec.driver", spec.get("driver") or "")
    if spec.get("poolName") is not None:
        found += _segments("spec.poolName", spec["poolName"])
    limit = spec.get("limit")
    if limit is not None and limit < 1:
        found.append(invalid("spec.limit", limit, "must be greater than or equal to 1"))
    elif limit is not None and limit > 1000:
        found.append(invalid("spec.limit", limit, "must be less than or equal to 1000"))
    return found


def validate_pool_status_request_update(new: Obj, old: Obj) -> list[FieldError]:
    """Its spec is immutable."""
    return immutable_member("", "spec", new, old, "resource.v1alpha3.ResourcePoolStatusRequest")


def validate_pool_status(new: Obj, old: Obj) -> list[FieldError]:
    """The answer to a ResourcePoolStatusRequest: written once."""
    status, before = new.get("status"), old.get("status")
    conditions = items(status, "conditions")
    if before is not None:
        found = immutable_member("", "status", new, old, "resource.v1alpha3.ResourcePoolStatusRequest")
    else:
        found = validate_conditions("status.conditions", conditions)
    if status is None:
        return found
    if not same(status.get("poolCount"), part(old, "status").get("poolCount")) or before is None:
        if status.get("poolCount") is None:
            found.append(required("status.poolCount"))
        found += not_negative("status.poolCount", status.get("poolCount"))
    if not same(status.get("pools"), part(old, "status").get("pools")):
        found += bounded("status.pools", items(status, "pools"), MAX_POOLS, _pool)
    if not same(status.get("conditions"), part(old, "status").get("conditions")):
        found += bounded_set(
            "status.conditions",
            conditions,
            MAX_REQUEST_CONDITIONS,
            lambda f, c: [],
            lambda c: c.get("type"),
            whole=True,
        )
    return found


def _pool(field: str, pool: Obj) -> list[FieldError]:
    found = _caseless_name(f"{field}.driver", pool.get("driver") or "")
    name = pool.get("poolName") or ""
    found += _segments(f"{field}.poolName", name) if name else [required(f"{field}.poolName")]
    generation = pool.get("generation") or 0
    found += not_negative(f"{field}.generation", generation) if generation else [required(f"{field}.generation")]
    found += positive(f"{field}.resourceSliceCount", pool.get("resourceSliceCount"))
    for name in ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"):
        found += not_negative(f"{field}.{name}", pool.get(name))
    if pool.get("nodeName") is not None:
        found += subdomain(f"{field}.nodeName", pool["nodeName"])
    if len((pool.get("validationError") or "").encode()) > MAX_POOL_ERROR_BYTES:
        found.append(too_long(f"{field}.validationError", MAX_POOL_ERROR_BYTES))
    return found
