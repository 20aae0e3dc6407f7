"""The kinds that controllers work on, and what they ask of pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from haru.kube.kinds import known_kind
from haru.kube.meta import controller_of, get_condition, is_being_deleted, namespace_of, node_of, phase_of
from haru.kube.names import parse_time

PODS = known_kind("v1", "Pod")
NODES = known_kind("v1", "Node")
NAMESPACES = known_kind("v1", "Namespace")
SERVICE_ACCOUNTS = known_kind("v1", "ServiceAccount")
LEASES = known_kind("coordination.k8s.io/v1", "Lease")
DEPLOYMENTS = known_kind("apps/v1", "Deployment")
DAEMON_SETS = known_kind("apps/v1", "DaemonSet")
REPLICA_SETS = known_kind("apps/v1", "ReplicaSet")
REPLICATION_CONTROLLERS = known_kind("v1", "ReplicationController")
STATEFUL_SETS = known_kind("apps/v1", "StatefulSet")
CRON_JOBS = known_kind("batch/v1", "CronJob")
JOBS = known_kind("batch/v1", "Job")
VOLUME_ATTRIBUTES_CLASSES = known_kind("storage.k8s.io/v1", "VolumeAttributesClass")
VOLUME_CLAIMS = known_kind("v1", "PersistentVolumeClaim")
VOLUMES = known_kind("v1", "PersistentVolume")
STORAGE_CLASSES = known_kind("storage.k8s.io/v1", "StorageClass")
DISRUPTION_BUDGETS = known_kind("policy/v1", "PodDisruptionBudget")
SERVICES = known_kind("v1", "Service")
SERVICE_CIDRS = known_kind("networking.k8s.io/v1", "ServiceCIDR")
IP_ADDRESSES = known_kind("networking.k8s.io/v1", "IPAddress")
ENDPOINTS = known_kind("v1", "Endpoints")
ENDPOINT_SLICES = known_kind("discovery.k8s.io/v1", "EndpointSlice")
QUOTAS = known_kind("v1", "ResourceQuota")
CLAIMS = known_kind("resource.k8s.io/v1", "ResourceClaim")
DEVICE_CLASSES = known_kind("resource.k8s.io/v1", "DeviceClass")
CLAIM_TEMPLATES = known_kind("resource.k8s.io/v1", "ResourceClaimTemplate")
SLICES = known_kind("resource.k8s.io/v1", "ResourceSlice")
TAINT_RULES = known_kind("resource.k8s.io/v1beta2", "DeviceTaintRule")
POOL_STATUS_REQUESTS = known_kind("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest")
WORKLOADS = known_kind("scheduling.k8s.io/v1alpha2", "Workload")
POD_GROUPS = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")


class ConditionText(NamedTuple):
    """A condition of a status, its times left out."""

    type: str
    status: str
    reason: str
    message: str


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """The pod has Succeeded or Failed: it never runs again."""
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Mapping[str, Any]) -> bool:
    """The pod runs or will run: neither terminal nor being deleted."""
    return not is_terminal(pod) and not is_being_deleted(pod)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """The pod's Ready condition is True."""
    condition = get_condition(pod, "Ready")
    return condition is not None and condition.get("status") == "True"


def available_in(pod: Mapping[str, Any], min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until a ready pod counts as available: 0 if it does, None if it is not ready."""
    condition = get_condition(pod, "Ready")
    if condition is None or condition.get("status") != "True":
        return None
    since = condition.get("lastTransitionTime")
    if not min_ready_seconds or not since:
        return 0.0
    return max(0.0, (parse_time(since) + timedelta(seconds=min_ready_seconds) - now).total_seconds())


def by_controller(obj: Mapping[str, Any]) -> Iterable[str]:
    """An informer's index `controller`: the uid of the managing owner."""
    owner = controller_of(obj)
    return [owner["uid"]] if owner else []


def by_orphan_namespace(obj: Mapping[str, Any]) -> Iterable[str]:
    """An informer's index `orphan`: the namespace of an object that nobody manages."""
    return [] if controller_of(obj) or is_being_deleted(obj) else [namespace_of(obj)]


def by_node(pod: Mapping[str, Any]) -> Iterable[str]:
    """An informer's index `node`: where the pod is bound to."""
    node = node_of(pod)
    return [node] if node else []
