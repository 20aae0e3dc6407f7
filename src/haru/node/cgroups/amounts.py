"""What containers and pods get of a machine, in the numbers that control groups and runtimes take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.kube.cgroup_values import MIN_SHARES, PERIOD_MICROSECONDS, quota_of, shares_of
from haru.kube.oom_scores import oom_score
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.resources import Requests, pod_limits, pod_requests
from haru.kube.strategy import qos_class
from haru.node.cgroups.memory_qos import MemoryQos, container_values

Obj = Mapping[str, Any]
_PAGE_UNITS = ("Ki", "Mi", "Gi")


@dataclass(frozen=True, slots=True)
class Amounts:
    """Resources of one group: 0 is no limit. `huge_pages` is bytes by the kernel's name of a page size (`2MB`)."""

    cpu_shares: int
    cpu_quota: int
    memory_limit: int
    cpu_period: int = PERIOD_MICROSECONDS
    oom_score_adj: int = 0
    huge_pages: Mapping[str, int] = field(default_factory=dict)
    unified: Mapping[str, str] = field(default_factory=dict)
    pids: int = 0
    """How many processes and threads; 0: what the group has is left as it is."""


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What the amounts of a container depend on, of its node; sizes in bytes."""

    capacity: int
    allocatable: int
    memory_qos: MemoryQos
    unified: bool
    """Cgroup v2."""
    page_sizes: Sequence[str] = ()
    """Of huge pages."""
    single_process_oom_kill: bool = False
    cpu_quota: bool = True


def container_amounts(pod: Obj, container: Obj, node: NodeMemory) -> Amounts:
    """The resources of a container for the runtime; without a limit of its own it has that of its pod."""
    resources, whole = container.get("resources") or {}, (pod.get("spec") or {}).get("resources") or {}
    requests = _parsed(resources.get("requests"))
    limits = _parsed({**(whole.get("limits") or {}), **(resources.get("limits") or {})})
    asked = requests.get("cpu", limits.get("cpu"))
    keys = container_values(node.memory_qos, pod, container, node.allocatable)
    if node.unified:
        keys = {"memory.oom.group": "0" if node.single_process_oom_kill else "1", **keys}
    return Amounts(
        shares_of(asked.milli() if asked is not None else 0),
        quota_of(limits["cpu"].milli()) if node.cpu_quota and "cpu" in limits else 0,
        limits["memory"].value() if "memory" in limits else 0,
        oom_score_adj=oom_score(pod, container, node.capacity),
        huge_pages={**dict.fromkeys(node.page_sizes, 0), **_huge_pages(limits)},
        unified=keys,
    )


def pod_amounts(pod: Obj) -> Amounts:
    """What the group of a pod gets: limits only where every container has one."""
    spec = pod.get("spec") or {}
    requests, limits = pod_requests(pod), pod_limits(pod)
    limited = {name for name in ("cpu", "memory") if _all_limited(spec, name)}
    asked = requests.get("cpu")
    quota = quota_of(limits["cpu"].milli()) if "cpu" in limited and "cpu" in limits else 0
    memory = limits["memory"].value() if "memory" in limited and "memory" in limits else 0
    if qos_class(dict(spec)) == "BestEffort":
        return Amounts(MIN_SHARES, 0, 0)
    return Amounts(shares_of(asked.milli() if asked is not None else 0), quota, memory, huge_pages=_huge_pages(limits))


def _all_limited(spec: Obj, name: str) -> bool:
    if name in ((spec.get("resources") or {}).get("limits") or {}):
        return True
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    return all(name in ((c.get("resources") or {}).get("limits") or {}) for c in containers)


def _huge_pages(limits: Mapping[str, Quantity]) -> dict[str, int]:
    """By the kernel's name: `hugepages-2Mi` is `2MB`, `hugepages-1Gi` is `1GB`."""
    prefix = "hugepages-"
    found = {name.removeprefix(prefix): amount.value() for name, amount in limits.items() if name.startswith(prefix)}
    return {f"{size[:-2]}{size[-2]}B": amount for size, amount in found.items() if size[-2:] in _PAGE_UNITS}


def _parsed(listed: Mapping[str, Any] | None) -> Requests:
    return {name: parse_quantity(amount) for name, amount in (listed or {}).items()}
