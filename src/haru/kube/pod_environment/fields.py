"""The downward API: what a container may know of its pod, of itself and of its node.

Source: the fields and resources that fieldRef and resourceFieldRef may name, as documented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.kube.meta import Obj, annotations_of, labels_of
from haru.kube.quantity import Quantity, parse_quantity

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")

_DEFAULTED = ("cpu", "memory", "ephemeral-storage")
"""Limits that a container has although it sets none: huge pages are never overcommitted."""


class ConfigError(Exception):
    """A container or volume that cannot be made; the text names what is missing."""


@dataclass(frozen=True, slots=True)
class DownwardFacts:
    """Where a pod is: addresses, and what the node has for pods."""

    host_ips: Sequence[str] = ()
    pod_ips: Sequence[str] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)


def field_value(pod: Obj, path: str, facts: DownwardFacts) -> str:
    """The text of a fieldRef. Raises `ConfigError`."""
    meta, spec = pod["metadata"], pod["spec"]
    if found := _SUBSCRIPT.fullmatch(path):
        named = labels_of(pod) if found[1] == "labels" else annotations_of(pod)
        return named.get(found[2], "")
    simple = {
        "metadata.name": meta.get("name", ""),
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": meta.get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "spec.restartPolicy": spec.get("restartPolicy", ""),
        "status.hostIP": next(iter(facts.host_ips), ""),
        "status.hostIPs": ",".join(facts.host_ips),
        "status.podIP": next(iter(facts.pod_ips), ""),
        "status.podIPs": ",".join(facts.pod_ips),
        "metadata.labels": _lines(labels_of(pod)),
        "metadata.annotations": _lines(annotations_of(pod)),
    }
    if path not in simple:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return str(simple[path])


def resource_value(pod: Obj, container: Mapping[str, Any], ref: Mapping[str, Any], facts: DownwardFacts) -> str:
    """The number of a resourceFieldRef, rounded up to its divisor; without a limit it is the pod's, or the node's."""
    asked = ref.get("containerName") or container["name"]
    named = [c for c in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())) if c["name"] == asked]
    if not named:
        raise ConfigError(f"container {asked} not found")
    part, _, resource = str(ref["resource"]).partition(".")
    amount = _amount(named[0], part, resource)
    if not amount.nano and part == "limits" and resource in _DEFAULTED and resource in facts.allocatable:
        of_pod = _amount(pod["spec"], part, resource)
        amount = of_pod if of_pod.nano else parse_quantity(facts.allocatable[resource])
    return str(_divided(amount, parse_quantity(ref.get("divisor") or "0")))


def _amount(of: Mapping[str, Any], part: str, resource: str) -> Quantity:
    return parse_quantity(((of.get("resources") or {}).get(part) or {}).get(resource, "0"))


def _divided(amount: Quantity, divisor: Quantity) -> int:
    """Rounded up. A divisor of zero stands for one."""
    unit = divisor.milli() or 1000
    return -(-amount.milli() // unit)


def _lines(table: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(table[key], ensure_ascii=False)}" for key in sorted(table))
