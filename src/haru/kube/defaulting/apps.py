"""Defaults of apps/v1: deployments, replica sets, stateful sets, daemon sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.defaulting.filling import fill, fill_unset, items, part, section
from haru.kube.defaulting.pods import fill_template

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]


def _deployment(deployment: Obj, gates: FeatureGates) -> None:
    spec = section(deployment, "spec")
    fill_unset(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = section(spec, "strategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_unset(section(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    fill_template(part(spec, "template"))


def _replica_set(replica_set: Obj, gates: FeatureGates) -> None:
    spec = section(replica_set, "spec")
    fill_unset(spec, replicas=1)
    fill_template(part(spec, "template"))


def _stateful_set(stateful_set: Obj, gates: FeatureGates) -> None:
    spec = section(stateful_set, "spec")
    fill(spec, podManagementPolicy="OrderedReady")
    fill_unset(spec, replicas=1, revisionHistoryLimit=10)
    strategy = section(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        section(strategy, "rollingUpdate")
    rolling = part(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and rolling is not None:
        fill_unset(rolling, partition=0)
    fill(section(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    for claim in items(spec, "volumeClaimTemplates"):
        fill(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        fill_unset(section(claim, "spec"), volumeMode="Filesystem")
        fill(section(claim, "status"), phase="Pending")
    fill_template(part(spec, "template"))


def _daemon_set(daemon_set: Obj, gates: FeatureGates) -> None:
    spec = section(daemon_set, "spec")
    fill_unset(spec, revisionHistoryLimit=10)
    strategy = section(spec, "updateStrategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_unset(section(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    fill_template(part(spec, "template"))


FILLERS: Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
}
