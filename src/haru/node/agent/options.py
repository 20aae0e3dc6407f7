"""Options of `haru node`, with the kubelet's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from haru.drivers.cdi.reader import DIRECTORIES
from haru.kube.gates import FeatureGates
from haru.node.eviction.thresholds import DEFAULT_HARD, Threshold, parse_thresholds

DEFAULT_ENDPOINT = "unix:///run/containerd/containerd.sock"


@dataclass(frozen=True, slots=True)
class CgroupOptions:
    """The cgroups of pods, and the memory QoS that is enforced in them."""

    root: str = "/"
    driver: str = "cgroupfs"
    """Used where the runtime does not report one."""
    per_qos: bool = True
    fail_v1: bool = True
    pod_pids_limit: int = 0
    """How many processes and threads a pod may have; 0: as many as the node."""
    memory_throttling_factor: float | None = 0.9
    memory_reservation_policy: str = "None"


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """How the node registers."""

    register: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class DnsOptions:
    """The DNS of the cluster, for pods with dnsPolicy ClusterFirst."""

    servers: Sequence[str] = ()
    domain: str = "cluster.local"
    resolv_conf: Path | None = Path("/etc/resolv.conf")
    """Of this machine, for pods with dnsPolicy Default; None: they have no DNS."""


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """When pods are evicted since their node is under pressure."""

    thresholds: tuple[Threshold, ...] = parse_thresholds(DEFAULT_HARD, {}, {}, {})
    transition_seconds: float = 300.0
    """How long a condition stays after it was last observed."""
    max_pod_grace_seconds: float = 0.0
    """The longest grace period of a pod at a soft threshold; negative: its own."""


@dataclass(frozen=True, slots=True)
class ImageGcOptions:
    """Percent of the disk of images above which some are removed, and to which; ages are seconds."""

    high_percent: int = 85
    low_percent: int = 80
    minimum_age: float = 120.0
    """How long an image is kept after it was first seen."""
    maximum_age: float = 0.0
    """How long an unused image is kept at most; 0: for ever."""

    @property
    def is_off(self) -> bool:
        """Whether images are removed under pressure only."""
        return self.high_percent == 100 and not self.maximum_age


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often things happen, and how long they may take, in seconds."""

    status_seconds: float = 10.0
    """Between two looks at the node's status."""
    report_seconds: float = 300.0
    """Between two reports of a status that did not change."""
    lease_seconds: int = 40
    relist_seconds: float = 1.0
    """Between two lists of everything that the runtime has."""
    resync_seconds: float = 60.0
    """Between two looks at a pod to which nothing happened."""
    runtime_seconds: float = 120.0
    """How long a call of the runtime may take."""
    crash_first_seconds: float = 10.0
    crash_longest_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """One node."""

    name: str
    root: Path
    """The directory for volumes and for what the agent has to remember."""
    logs: Path
    """The directory for logs of containers: /var/log/pods."""
    endpoint: str = DEFAULT_ENDPOINT
    addresses: Sequence[str] = ()
    """Of the node; empty: that of its default route."""
    registration: RegistrationOptions = field(default_factory=RegistrationOptions)
    max_pods: int = 110
    reserved: Mapping[str, str] = field(default_factory=dict)
    """Of each resource what is kept from pods, as quantities."""
    dns: DnsOptions = field(default_factory=DnsOptions)
    cgroups: CgroupOptions = field(default_factory=CgroupOptions)
    eviction: EvictionOptions = field(default_factory=EvictionOptions)
    image_gc: ImageGcOptions = field(default_factory=ImageGcOptions)
    ids_per_pod: int = 65_536
    """Users that a pod with `hostUsers: false` has."""
    gates: FeatureGates = field(default_factory=FeatureGates)
    intervals: Intervals = field(default_factory=Intervals)
    cdi_directories: Sequence[Path] = DIRECTORIES
    """Where CDI files are, for a runtime that does not know them; later ones win."""

    @property
    def seccomp(self) -> Path:
        """The directory of this machine's own seccomp profiles."""
        return self.root / "seccomp"
