"""The files of a simulated container that are neither its own nor of its volumes: of kubelets, cgroups, nodes. Pure.

Source: the kubelet's `/etc/hosts` and `/etc/resolv.conf`, the kernel's cgroup v2, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from haru.kube.cgroup_values import PERIOD_MICROSECONDS, quota_of, shares_of, weight_of
from haru.kube.meta import Obj
from haru.kube.oom_scores import oom_score
from haru.kube.quantity import Quantity, parse_quantity

TERMINATION_LOG: Final = "/dev/termination-log"
CGROUP_MOUNT: Final = "cgroup on /sys/fs/cgroup type cgroup2 (ro,nosuid,nodev,noexec,relatime)"
_CGROUP: Final = "/sys/fs/cgroup"
_CONTROLLERS: Final = "cpuset cpu io memory hugetlb pids"
_OOM_SCORE: Final = "/proc/1/oom_score_adj"
_PAGE: Final = 4096
_LOOPBACK: Final = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_NAME_SERVER: Final = "10.96.0.10"
_DOMAIN: Final = "cluster.local"


def kubelet_files(pod: Obj, container: Mapping[str, Any], memory: int = 0) -> dict[str, str]:
    """The text of each by its path, on a node with so many bytes of memory."""
    spec = pod.get("spec") or {}
    return {
        "/etc/hostname": f"{hostname_of(pod)}\n",
        "/etc/hosts": _hosts(pod, spec),
        "/etc/resolv.conf": _resolver(pod, spec),
        container.get("terminationMessagePath") or TERMINATION_LOG: "",
        **_cgroup_files(pod, container),
        **({_OOM_SCORE: f"{oom_score(pod, container, memory)}\n"} if memory else {}),
    }


def node_files(pod: Obj) -> dict[str, str]:
    """What is known of the files of the pod's node."""
    node = (pod.get("spec") or {}).get("nodeName") or ""
    return {"/etc/hosts": _LOOPBACK, "/etc/hostname": f"{node}\n"}


def node_memory(node: Obj) -> int:
    """The memory of a node in bytes; 0 where it does not tell."""
    return parse_quantity(((node.get("status") or {}).get("capacity") or {}).get("memory", "0")).value()


def hostname_of(pod: Obj) -> str:
    """The hostname of a pod's containers: that of the node in its network."""
    spec = pod.get("spec") or {}
    own = spec.get("nodeName") if spec.get("hostNetwork") else spec.get("hostname")
    return str(own or pod["metadata"]["name"])


def _hosts(pod: Obj, spec: Mapping[str, Any]) -> str:
    aliases = ["\t".join([one["ip"], *(one.get("hostnames") or ())]) for one in spec.get("hostAliases") or ()]
    noted = "".join(f"{line}\n" for line in ("", "# Entries added by HostAliases.", *aliases)) if aliases else ""
    if spec.get("hostNetwork"):
        return f"# Kubernetes-managed hosts file (host network).\n{node_files(pod)['/etc/hosts']}{noted}"
    address = (pod.get("status") or {}).get("podIP")
    own = f"{address}\t{hostname_of(pod)}\n" if address else ""
    return f"# Kubernetes-managed hosts file.\n{_LOOPBACK}{own}{noted}"


def _resolver(pod: Obj, spec: Mapping[str, Any]) -> str:
    """The servers and domains of the cluster, unless the pod asks for those of its node, and its own beside them.

    Of a node's own nothing is known.
    """
    policy, own = spec.get("dnsPolicy") or "ClusterFirst", spec.get("dnsConfig") or {}
    servers, searches, options = list[str](), list[str](), dict[str, str]()
    if policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork")):
        namespace = pod["metadata"].get("namespace") or "default"
        servers, options = [_NAME_SERVER], {"ndots": "ndots:5"}
        searches = [f"{namespace}.svc.{_DOMAIN}", f"svc.{_DOMAIN}", _DOMAIN]
    servers += own.get("nameservers") or ()
    searches += own.get("searches") or ()
    for one in own.get("options") or ():
        name, value = one.get("name", ""), one.get("value")
        options[name] = f"{name}:{value}" if value else name
    lines = [
        ("search", searches),
        *(("nameserver", [one]) for one in dict.fromkeys(servers)),
        ("options", options.values()),
    ]
    return "".join(f"{name} {' '.join(dict.fromkeys(values))}\n" for name, values in lines if values)


def _cgroup_files(pod: Obj, container: Mapping[str, Any]) -> dict[str, str]:
    """What a container has of CPU and memory; what its pod has as a whole, without a limit of its own."""
    whole, own = (pod.get("spec") or {}).get("resources") or {}, _resources(pod, container)
    limits = {**(whole.get("limits") or {}), **(own.get("limits") or {})}
    cpu, memory = _amount(limits, "cpu"), _amount(limits, "memory")
    asked = _amount(own.get("requests") or {}, "cpu") or cpu
    quota = quota_of(cpu.milli()) if cpu is not None else 0
    texts = {
        "cgroup.controllers": _CONTROLLERS,
        "cpu.max": f"{quota or 'max'} {PERIOD_MICROSECONDS}",
        "cpu.weight": weight_of(shares_of(asked.milli() if asked is not None else 0)),
        "memory.max": memory.value() // _PAGE * _PAGE if memory is not None else "max",
    }
    return {f"{_CGROUP}/{name}": f"{text}\n" for name, text in texts.items()}


def _resources(pod: Obj, container: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the container has: what its status tells, as the spec may ask for more."""
    status = pod.get("status") or {}
    told = (one for member in ("containerStatuses", "initContainerStatuses") for one in status.get(member) or ())
    found = next((one.get("resources") for one in told if one["name"] == container["name"]), None)
    return found if found is not None else container.get("resources") or {}


def _amount(amounts: Mapping[str, Any], name: str) -> Quantity | None:
    return parse_quantity(amounts[name]) if name in amounts else None
