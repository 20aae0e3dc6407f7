"""The part of a cluster that one scheduler serves: some nodes, pools of devices and device classes.

Everything else is there and counts (pods, taken devices, counters), but nothing is placed on it. A partition without
conditions is the whole cluster.
Source: our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.kube.node_taints import parse_taint
from haru.kube.partition_names import HOLDER, PARTITION
from haru.kube.selectors import EVERYTHING, LabelSelector, Requirement, label_selector_from, parse_label_selector

_SYMBOLS = {"in": "in", "notin": "notin", "gt": ">", "lt": "<"}


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint that nodes must carry; an empty value or effect stands for any."""

    key: str
    value: str = ""
    effect: str = ""

    @classmethod
    def parse(cls, text: str) -> NodeTaint:
        """Read `key`, `key=value`, `key:effect` or `key=value:effect`. Raises ValueError."""
        return cls(**parse_taint(text, with_effect=False))

    def __str__(self) -> str:
        return self.key + (f"={self.value}" if self.value else "") + (f":{self.effect}" if self.effect else "")

    def is_on(self, taints: Iterable[Mapping[str, Any]]) -> bool:
        """Tell whether one of a node's taints is this one."""
        return any(
            taint.get("key") == self.key
            and self.value in ("", taint.get("value") or "")
            and self.effect in ("", taint.get("effect"))
            for taint in taints
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """Conditions on nodes, pools and classes; all must hold, and an empty one always holds.

    A node is in it if it has the labels of `node_selector` and the taint `node_taint`. A device is in it if its pool
    (`spec.pool.name`) and its driver are. A claim is in it if every device class that it names is.
    """

    node_selector: LabelSelector = EVERYTHING
    node_taint: NodeTaint | None = None
    pools: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    device_classes: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole cluster."""
        return self == WHOLE

    @property
    def limits_nodes(self) -> bool:
        """Whether some nodes may be outside."""
        return not self.node_selector.empty or self.node_taint is not None

    def has_node(self, labels: Mapping[str, str], taints: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether a node is inside."""
        if not self.node_selector.matches(labels):
            return False
        return self.node_taint is None or self.node_taint.is_on(taints)

    def has_pool(self, driver: str, pool: str) -> bool:
        """Tell whether the devices of a pool are inside."""
        return (not self.pools or pool in self.pools) and (not self.drivers or driver in self.drivers)

    def has_class(self, name: str) -> bool:
        """Tell whether claims may name a device class."""
        return not self.device_classes or name in self.device_classes

    def __str__(self) -> str:
        parts = [f"nodes with {selector_text(self.node_selector)}"] if not self.node_selector.empty else []
        parts += [f"nodes with taint {self.node_taint}"] if self.node_taint is not None else []
        for word, names in (("pools", self.pools), ("drivers", self.drivers), ("device classes", self.device_classes)):
            parts += [f"{word} {', '.join(sorted(names))}"] if names else []
        return "; ".join(parts) or "the whole cluster"

    def as_dict(self) -> dict[str, Any]:
        """The JSON value, without empty conditions."""
        found: dict[str, Any] = {
            "nodeSelector": selector_text(self.node_selector),
            "nodeTaint": str(self.node_taint or ""),
            "pools": sorted(self.pools),
            "drivers": sorted(self.drivers),
            "deviceClasses": sorted(self.device_classes),
        }
        return {name: value for name, value in found.items() if value}


WHOLE = Partition()


def partition_from(value: Mapping[str, Any]) -> Partition:
    """The partition of a JSON value; `nodeSelector` is text or a LabelSelector. Raises ValueError."""
    given = value.get("nodeSelector") or ""
    selector = label_selector_from(given) if isinstance(given, Mapping) else selector_from(str(given))
    taint = str(value.get("nodeTaint") or "")
    names = (frozenset(map(str, value.get(name) or ())) for name in ("pools", "drivers", "deviceClasses"))
    return Partition(selector, NodeTaint.parse(taint) if taint else None, *names)


def published_partition(lease: Mapping[str, Any]) -> tuple[tuple[str, ...], Partition] | None:
    """The schedulerNames and the partition that the holder of a Lease published; None if it published none."""
    annotations = lease["metadata"].get("annotations") or {}
    holder = (lease.get("spec") or {}).get("holderIdentity")
    if not holder or annotations.get(HOLDER) != holder:
        return None
    try:
        told = json.loads(annotations[PARTITION])
        return tuple(map(str, told["schedulerNames"])), partition_from(told["partition"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def selector_from(text: str) -> LabelSelector:
    """The label selector that a text says. Raises ValueError."""
    from haru.kube.errors import StatusError

    try:
        return parse_label_selector(text)
    except StatusError as error:
        raise ValueError(error.message) from None


def selector_text(selector: LabelSelector) -> str:
    """A label selector as text that `selector_from` reads."""
    return ",".join(map(_requirement_text, selector.requirements))


def _requirement_text(requirement: Requirement) -> str:
    key, values = requirement.key, sorted(requirement.values)
    if requirement.operator in ("exists", "!"):
        return f"!{key}" if requirement.operator == "!" else key
    if requirement.operator in ("gt", "lt"):
        return f"{key}{_SYMBOLS[requirement.operator]}{values[0]}"
    if requirement.operator == "in" and len(values) == 1 and values[0]:
        return f"{key}={values[0]}"
    return f"{key} {_SYMBOLS[requirement.operator]} ({','.join(values)})"
