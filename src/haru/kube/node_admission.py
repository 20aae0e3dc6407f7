"""Check whether a node can admit a pod that was bound to it, as a kubelet does.

Source: the kubelet's admission by resources (reasons OutOfcpu and so on), labels, ports and taints, in this order, as
behaviour; KEP-5004 and KEP-5517.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj, labels_of, name_of, tolerates
from haru.kube.pod_containers import containers_of
from haru.kube.pod_security.baseline import SAFE_SYSCTLS
from haru.kube.resources import claimed_resources, pod_requests
from haru.kube.selectors import node_selector_matches
from haru.kube.strategy import qos_class
from haru.kube.validation.security import sysctl_with_dots

EVICTED: Final = "Evicted"
"""The reason of a pod that a node under pressure does not take, or that it ends."""
_ADMITTED: Final = ("cpu", "memory", "ephemeral-storage")
_OS: Final = "kubernetes.io/os"
_CRITICAL_PRIORITY: Final = 2_000_000_000
_MEMORY_TAINT: Final = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
_EVERYWHERE: Final = ("", "0.0.0.0")


class Shortage(NamedTuple):
    """What a node has too little of for a pod, in thousandths."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """How much others would have to free."""
        return self.requested + self.used - self.capacity

    @property
    def problem(self) -> tuple[str, str]:
        """Reason and message of a refusal."""
        name, unit = self.resource, 1 if self.resource == "cpu" else 1000
        asked, taken, room = (amount // unit for amount in (self.requested, self.used, self.capacity))
        text = f"Node didn't have enough resource: {name}, requested: {asked}, used: {taken}, capacity: {room}"
        return f"OutOf{name}", text


def admission_problem(pod: Obj, others: Sequence[Obj], allocatable: Mapping[str, int]) -> tuple[str, str] | None:
    """(reason, message) if the node has no room for the pod beside the others; amounts in thousandths."""
    return next((one.problem for one in shortages_beside(pod, others, allocatable)), None)


def shortages_beside(pod: Obj, others: Sequence[Obj], allocatable: Mapping[str, int]) -> list[Shortage]:
    """All that the node has too little of for the pod beside the others; amounts in thousandths."""
    return list(
        shortages(
            pod, len(others), lambda name: sum(requested_amounts(other).get(name, 0) for other in others), allocatable
        )
    )


def shortages(pod: Obj, others: int, used: Callable[[str], int], allocatable: Mapping[str, int]) -> Iterator[Shortage]:
    """The same where the number of the other pods and what they use of each resource are known."""
    places = allocatable["pods"] // 1000
    if others + 1 > places:
        yield Shortage("pods", 1000, others * 1000, places * 1000)
    amounts = requested_amounts(pod)
    for name in (*_ADMITTED, *sorted(amounts.keys() - {*_ADMITTED})):
        # An extended resource that the node does not advertise is served by devices, through a claim (KEP-5004).
        is_native = name in _ADMITTED or name.startswith("hugepages-")
        if not amounts.get(name) or not (is_native or ("/" in name and name in allocatable)):
            continue
        found = Shortage(name, amounts[name], used(name), allocatable.get(name, 0))
        if found.missing > 0:
            yield found


def requested_amounts(pod: Obj) -> dict[str, int]:
    """What the pod requests, and what its devices take of the node (KEP-5517), in thousandths."""
    total = pod_requests(pod)
    for name, quantity in claimed_resources(pod).items():
        total[name] = total[name] + quantity if name in total else quantity
    return {name: quantity.milli() for name, quantity in total.items()}


def has_host_ports(pod: Obj) -> bool:
    """Whether the pod takes ports of the node."""
    return next(_host_ports(pod.get("spec") or {}), None) is not None


def sysctl_problem(pod: Obj) -> tuple[str, str] | None:
    """(reason, message) for a pod that sets a sysctl which is not safe; nodes here allow no other."""
    for entry in ((pod.get("spec") or {}).get("securityContext") or {}).get("sysctls") or ():
        name = sysctl_with_dots(entry["name"])
        if name not in SAFE_SYSCTLS:
            return "SysctlForbidden", f'forbidden sysctl: "{name}" not allowlisted'
    return None


def os_problem(pod: Obj) -> tuple[str, str] | None:
    """(reason, message) for a pod of another operating system than Linux; kubelets look at this before all else."""
    if labels_of(pod).get(_OS, "linux") != "linux":
        text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        return "PodOSSelectorNodeLabelDoesNotMatch", text
    if ((pod.get("spec") or {}).get("os") or {}).get("name", "linux") != "linux":
        return "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
    return None


def is_critical(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has the priority of what a cluster must have, by which nodes treat it."""
    return int((pod.get("spec") or {}).get("priority") or 0) >= _CRITICAL_PRIORITY


def pressure_problem(pod: Obj, short: Sequence[str]) -> tuple[str, str] | None:
    """(reason, message) for a pod on a node that runs short, by its conditions: of memory only BestEffort pods."""
    spec = pod.get("spec") or {}
    if not short or is_critical(pod):
        return None
    spared = qos_class(dict(spec)) != "BestEffort" or tolerates(spec.get("tolerations"), _MEMORY_TAINT)
    if list(short) == ["MemoryPressure"] and spared:
        return None
    return EVICTED, f"The node had condition: [{' '.join(short)}]. "


def groups_problem(pod: Obj, node: Obj) -> tuple[str, str] | None:
    """(reason, message) for a pod that wants its groups alone, on a node whose runtime cannot see to that."""
    context = (pod.get("spec") or {}).get("securityContext") or {}
    features = (node.get("status") or {}).get("features") or {}
    if context.get("supplementalGroupsPolicy") != "Strict" or features.get("supplementalGroupsPolicy"):
        return None
    return "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"


def apparmor_problem(pod: Obj, *, enabled: bool) -> tuple[str, str] | None:
    """(reason, message) for a pod that wants a profile of AppArmor, on a machine that has none."""
    spec = pod.get("spec") or {}
    profiles = [(one.get("securityContext") or {}).get("appArmorProfile") or {} for one in (spec, *containers_of(spec))]
    if enabled or all(one.get("type", "Unconfined") == "Unconfined" for one in profiles):
        return None
    return "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"


def placement_problem(pod: Obj, others: Collection[Obj], node: Obj) -> tuple[str, str] | None:
    """(reason, message) if the pod's node selector, host ports or tolerations do not fit the node."""
    spec = pod.get("spec") or {}
    if not _matches(spec, node):
        return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if problem := _port_problem(pod, others):
        return problem
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") == "NoExecute" and not tolerates(spec.get("tolerations"), taint):
            return _failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _port_problem(pod: Obj, others: Collection[Obj]) -> tuple[str, str] | None:
    """(reason, message) if another pod has a host port that the pod wants."""
    wanted = list(_host_ports(pod.get("spec") or {}))
    taken = [port for other in others for port in _host_ports(other.get("spec") or {})] if wanted else []
    if any(_conflict(one, other) for one in wanted for other in taken):
        return _failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    return None


def _failed(name: str, why: str) -> tuple[str, str]:
    return name, f"Predicate {name} failed: {why}"


def _matches(spec: Mapping[str, Any], node: Obj) -> bool:
    selector = spec.get("nodeSelector") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not selector and required is None:
        return True
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    return required is None or node_selector_matches(required, name_of(node), labels)


def _host_ports(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Address, protocol and number of each port of the node that the pod takes."""
    every = [*(spec.get("containers") or ())]
    every += [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in every:
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield port.get("hostIP") or "", port.get("protocol") or "TCP", port["hostPort"]


def _conflict(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    same = one[0] == other[0] or one[0] in _EVERYWHERE or other[0] in _EVERYWHERE
    return same and one[1:] == other[1:]
