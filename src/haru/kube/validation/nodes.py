"""Nodes: taints, networks of pods, resources, features that a kubelet declares (core/v1)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from haru.kube import names, node_taints
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    each_message,
    items,
    label_key,
    one_of,
    part,
    positive,
    required_label,
    required_subdomain,
)
from haru.kube.validation.pod_status import one_per_family
from haru.kube.validation.resources import quantity

_FEATURE: Final = re.compile(r"[A-Z][a-zA-Z0-9]*(?:/[a-zA-Z][a-zA-Z0-9]*)*")
_MAX_FEATURE: Final = 253
_ONE_PER_FAMILY: Final = "may specify no more than one CIDR for each IP family"
_UNREADABLE: Final = (
    "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{place}]: <nil> "
    "(invalid CIDR address: {text})"
)
_CONFIGURATIONS: Final = ("assigned", "active", "lastKnownGood")


def validate_node(node: Obj) -> list[FieldError]:
    """A Node when it is created; errors of taints are told at its metadata, as 1.36 does."""
    spec, status = part(node, "spec"), part(node, "status")
    found = _taints("metadata.taints", items(spec, "taints")) + _reports(node)
    swap = part(part(status, "nodeInfo"), "swap").get("capacity")
    found += positive("metadata.nodeSwapStatus.capacity", swap)
    networks = items(spec, "podCIDRs")
    for index, network in enumerate(networks):
        found += each_message(f"spec.podCIDRs[{index}]", network, names.is_network(network))
    return found + one_per_family("spec.podCIDRs", networks, _ONE_PER_FAMILY, ipaddress.ip_interface, _UNREADABLE)


def validate_node_update(new: Obj, old: Obj) -> list[FieldError]:
    """A Node that is written, its status among it: networks and provider stay once they are set."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = _reports(new) + _addresses(items(part(new, "status"), "addresses"))
    found += _taints("metadata.taints", items(spec, "taints"))
    why = 'node updates may not change {} except from "" to valid'
    if items(before, "podCIDRs") and items(spec, "podCIDRs") != items(before, "podCIDRs"):
        found.append(forbidden("spec.podCIDRs", why.format("podCIDR")))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        found.append(forbidden("spec.providerID", why.format("providerID")))
    if spec.get("configSource") is not None:
        found += _source("spec.configSource", spec["configSource"], is_spec=True)
    for name in _CONFIGURATIONS:
        source = part(part(new, "status"), "config").get(name)
        found += _source(f"status.config.{name}", source, is_spec=False) if source is not None else []
    if (spec.get("externalID") or "") != (before.get("externalID") or ""):
        found.append(forbidden("spec.externalID", "may not be updated"))
    return found


def _reports(node: Obj) -> list[FieldError]:
    """What the kubelet says of its resources and features."""
    status = part(node, "status")
    found: list[FieldError] = []
    for member in ("capacity", "allocatable"):
        for name, value in part(status, member).items():
            found += quantity(f"status.{member}.{name}", name, value)[1]
    features = items(status, "declaredFeatures")
    for index, feature in enumerate(features):
        place = f"status.declaredFeatures[{index}]"
        if len(feature) > _MAX_FEATURE or not _FEATURE.fullmatch(feature):
            why = (
                "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature "
                "or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            )
            found.append(invalid(place, feature, f'invalid feature name "{feature}": {why}'))
        previous = features[index - 1] if index else ""
        if index and previous == feature:
            found.append(duplicate(place, feature))
        elif previous > feature:
            found.append(invalid(place, feature, "list must be sorted alphabetically"))
    return found


def _addresses(addresses: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, one in enumerate(addresses):
        key = (one.get("type") or "", one.get("address") or "")
        if key in seen:
            found.append(duplicate(f"status.addresses[{index}]", one))
        seen.add(key)
    return found


def _taints(field: str, taints: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        place = f"{field}[{index}]"
        key, effect, value = (taint.get(name) or "" for name in ("key", "effect", "value"))
        found += label_key(f"{place}.key", key)
        wrong = names.is_label_value(value)
        found += [invalid(f"{place}.value", value, ";".join(wrong))] if wrong else []
        found += one_of(f"{place}.effect", effect, node_taints.EFFECTS, in_order=True)
        if (key, effect) in seen:
            why = "taints must be unique by key and effect pair"
            found.append(FieldError("FieldValueDuplicate", place, taint, why))
        seen.add((key, effect))
    return found


def _source(field: str, source: Obj, *, is_spec: bool) -> list[FieldError]:
    """Where a kubelet of old took its configuration from: a ConfigMap, of which the status knows the version."""
    reference = source.get("configMap")
    if reference is None:
        return [invalid(field, source, "exactly one reference subfield must be non-nil")]
    place = f"{field}.configMap"
    found: list[FieldError] = []
    for name in ("uid", "resourceVersion"):
        if is_spec and reference.get(name):
            found.append(forbidden(f"{place}.{name}", f"{name} must not be set in spec"))
        elif not is_spec and not reference.get(name):
            found.append(required(f"{place}.{name}"))
    found += required_label(f"{place}.namespace", reference.get("namespace") or "")
    found += required_subdomain(f"{place}.name", reference.get("name") or "")
    key = reference.get("kubeletConfigKey") or ""
    here = f"{place}.kubeletConfigKey"
    return found + (each_message(here, key, names.is_config_map_key(key)) if key else [required(here)])
