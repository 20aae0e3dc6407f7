"""Profiles of a scheduler for `decisions_compared`: kube-scheduler and Haru read the same documents.

Source: KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from manifests import HOST, ZONE, Obj, expression, require
from random_clusters import GPU, NIC

from haru.engine import Profile
from haru.scheduler.configuration import read_configuration

API_VERSION, DEFAULT = "kubescheduler.config.k8s.io/v1", "default-scheduler"
_SHAPE = [{"utilization": at, "score": score} for at, score in ((0, 1), (40, 9), (100, 3))]


def _profile(name: str, plugins: Obj | None = None, **arguments: Obj) -> Obj:
    given = [
        {"name": plugin, "args": {"apiVersion": API_VERSION, "kind": f"{plugin}Args", **args}}
        for plugin, args in arguments.items()
    ]
    return {"schedulerName": name, "plugins": plugins or {}, "pluginConfig": given}


def _fit(kind: str, *resources: tuple[str, int], **more: Any) -> Obj:
    return {"scoringStrategy": {"type": kind, "resources": [{"name": n, "weight": w} for n, w in resources], **more}}


def _constraint(key: str, skew: int, when: str) -> Obj:
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when}


def _off(*names: str) -> list[Obj]:
    return [{"name": name} for name in names]


_ADDED = require(expression("disk", "NotIn", "hdd"))["nodeAffinity"]
_ADDED["preferredDuringSchedulingIgnoredDuringExecution"] = [
    {"weight": 10, "preference": {"matchExpressions": [expression(ZONE, "In", "z1")]}}
]
PROFILES = (
    _profile(DEFAULT),
    _profile("most", NodeResourcesFit=_fit("MostAllocated", ("cpu", 1), ("memory", 1), (GPU, 3), (NIC, 2))),
    _profile(
        "ratio",
        NodeResourcesFit=_fit(
            "RequestedToCapacityRatio", ("cpu", 3), (NIC, 5), (GPU, 2), requestedToCapacityRatio={"shape": _SHAPE}
        ),
    ),
    _profile("added", NodeAffinity={"addedAffinity": _ADDED}),
    _profile(
        "listed",
        PodTopologySpread={
            "defaultingType": "List",
            "defaultConstraints": [_constraint(ZONE, 1, "DoNotSchedule"), _constraint(HOST, 2, "ScheduleAnyway")],
        },
    ),
    _profile(
        "weighted",
        {
            "score": {"disabled": _off("ImageLocality", "NodeResourcesFit")},
            "multiPoint": {
                "enabled": [{"name": "NodeResourcesBalancedAllocation", "weight": 4}, {"name": "NodeAffinity"}]
            },
        },
        NodeResourcesBalancedAllocation={"resources": [{"name": n, "weight": 1} for n in ("cpu", "memory", NIC, GPU)]},
        InterPodAffinity={"hardPodAffinityWeight": 60, "ignorePreferredTermsOfExistingPods": True},
    ),
    _profile(
        "meek",
        {
            "multiPoint": {"disabled": _off("DefaultPreemption")},
            "filter": {"disabled": _off("TaintToleration", "NodePorts")},
        },
        NodeResourcesFit={"ignoredResources": [NIC], "ignoredResourceGroups": ["other.example.com"]},
    ),
)


def configuration(**more: Any) -> Obj:
    """The document with all profiles."""
    return {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": list(PROFILES), **more}


@cache
def profiles() -> Mapping[str, Profile]:
    """The profiles by schedulerName, as Haru reads them."""
    return read_configuration(configuration()).profiles
