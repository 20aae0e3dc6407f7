"""What `haru node` can be told, with the kubelet's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from haru.drivers.cdi.reader import DIRECTORIES
from haru.kube.gates import FeatureGates

DEFAULT_ENDPOINT = "unix:///run/containerd/containerd.sock"


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """One node. Durations are seconds."""

    name: str
    root: Path
    """Where the agent keeps volumes and what it has to remember."""
    logs: Path
    """Where containers' logs are: /var/log/pods."""
    endpoint: str = DEFAULT_ENDPOINT
    addresses: Sequence[str] = ()
    """Of the node; empty: that of its default route."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    max_pods: int = 110
    reserved: Mapping[str, str] = field(default_factory=dict)
    """Of each resource what is kept from pods, as quantities."""
    cluster_dns: Sequence[str] = ()
    cluster_domain: str = "cluster.local"
    cgroup_root: str = "/"
    cgroup_driver: str = "cgroupfs"
    cgroups_per_qos: bool = True
    fail_cgroup_v1: bool = True
    memory_throttling_factor: float | None = 0.9
    memory_reservation_policy: str = "None"
    ids_per_pod: int = 65_536
    """Users that a pod with `hostUsers: false` has."""
    gates: FeatureGates = field(default_factory=FeatureGates)
    status_seconds: float = 10.0
    """How often the node's status is looked at."""
    report_seconds: float = 300.0
    """How often it is reported although nothing changed."""
    lease_seconds: int = 40
    relist_seconds: float = 1.0
    """How often the runtime is asked for everything it has."""
    resync_seconds: float = 60.0
    """How often each pod is looked at although nothing happened."""
    runtime_seconds: float = 120.0
    """How long a call of the runtime may take."""
    crash_first_seconds: float = 10.0
    crash_longest_seconds: float = 300.0
    cdi_directories: Sequence[Path] = DIRECTORIES
    """Where CDI files are, for a runtime that does not know them; later ones win."""
    register: bool = True
