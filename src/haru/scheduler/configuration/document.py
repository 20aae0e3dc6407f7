"""A scheduler's settings as the KubeSchedulerConfiguration that brings them about, for `/configz`.

What is read from the document is what it was made of. Fields that change nothing here are left out.
Source: `/configz` of kube-scheduler 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haru.engine import Profile
from haru.engine.framework import DEFAULT_PLUGINS, EXPECTED, PACKING, WEIGHTS, DefaultPlugin
from haru.engine.state import WHOLE
from haru.kube.meta import Obj
from haru.scheduler.configuration.file import API_VERSION, KIND, Configuration, LeaderElection
from haru.scheduler.configuration.plugins import POINTS


def configuration_document(configuration: Configuration) -> Obj:
    """Return the document; `read_configuration` of it has the same settings, names and times included."""
    partition = configuration.partition
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "leaderElection": _leader_election(configuration.leader_election),
        "clientConnection": {"kubeconfig": configuration.kubeconfig},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": int(configuration.initial_backoff),
        "podMaxBackoffSeconds": int(configuration.max_backoff),
        "profiles": [
            {"schedulerName": name, "plugins": _plugins(profile), "pluginConfig": _plugin_config(profile)}
            for name, profile in configuration.profiles.items()
        ],
        **({"partition": partition.as_dict()} if partition != WHOLE else {}),
    }


def _leader_election(election: LeaderElection) -> Obj:
    return {
        "leaderElect": election.elect,
        "leaseDuration": f"{election.lease:g}s",
        "renewDeadline": f"{election.renew:g}s",
        "retryPeriod": f"{election.retry:g}s",
        "resourceLock": "leases",
        "resourceName": election.name,
        "resourceNamespace": election.namespace,
    }


def _plugins(profile: Profile) -> Obj:
    """Enable at `multiPoint` what has a part anywhere; disable it at the points where the profile leaves it out."""
    points: dict[str, dict[str, list[Obj]]] = {point: {} for point in (*POINTS, "multiPoint")}

    def add(point: str, state: str, **entry: Any) -> None:
        points[point].setdefault(state, []).append(entry)

    for plugin in DEFAULT_PLUGINS:
        name = plugin.name
        if not (plugin.enabled or (name == PACKING and profile.packing) or (name == EXPECTED and profile.expected)):
            continue
        left_out = _left_out(profile, plugin)
        if left_out == set(plugin.extension_points):
            add("multiPoint", "disabled", name=name)
            continue
        add("multiPoint", "enabled", name=name, weight=_weight(profile, name))
        for point in plugin.extension_points:
            if point in left_out:
                add(point, "disabled", name=name)
            elif point == "placementScore" and name in profile.placement_weights:
                add(point, "enabled", name=name, weight=profile.placement_weights[name])
    return points


def _weight(profile: Profile, name: str) -> int:
    return profile.expected_weight if name == EXPECTED else profile.weight(name)


def _left_out(profile: Profile, plugin: DefaultPlugin) -> set[str]:
    """The extension points of a plugin at which the profile does not call it."""
    name, points = plugin.name, set(plugin.extension_points)
    scoring = points & {"preScore", "score"} if name in WEIGHTS else set()
    placing = points & {"placementScore"}
    left_out: set[str] = set()
    if "filter" in points and name not in profile.filters:
        left_out |= points - scoring - placing
    if name not in profile.weights:
        left_out |= scoring
    if name not in profile.placement_weights:
        left_out |= placing
    if name == "DefaultPreemption" and not profile.preemption:
        left_out |= points
    return left_out


def _plugin_config(profile: Profile) -> list[Obj]:
    """The arguments that are kept of each plugin."""
    fit, ignored, spread = profile.fit, profile.ignored, profile.spread
    strategy: Obj = {"type": fit.type, "resources": _resources(fit.resources)}
    if fit.shape:
        shape = [{"utilization": utilization, "score": score} for utilization, score in fit.shape]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    names = {"ignoredResources": sorted(ignored.names), "ignoredResourceGroups": sorted(ignored.groups)}
    constraints = {} if spread.system else {"defaultConstraints": list(spread.constraints)}
    affinity = profile.affinity
    arguments: dict[str, Obj] = {
        "InterPodAffinity": {
            "hardPodAffinityWeight": affinity.hard_weight,
            "ignorePreferredTermsOfExistingPods": affinity.ignore_preferred,
        },
        "NodeAffinity": {"addedAffinity": profile.added_affinity} if profile.added_affinity else {},
        "NodeResourcesBalancedAllocation": {"resources": _resources((name, 1) for name in profile.balanced)},
        "NodeResourcesFit": {"scoringStrategy": strategy, **{name: value for name, value in names.items() if value}},
        "PodTopologySpread": {"defaultingType": "System" if spread.system else "List", **constraints},
        "VolumeBinding": {"bindTimeoutSeconds": profile.bind_timeout},
    }
    return [
        {"name": name, "args": {"kind": f"{name}Args", "apiVersion": API_VERSION, **given}}
        for name, given in arguments.items()
    ]


def _resources(weights: Iterable[tuple[str, int]]) -> list[Obj]:
    return [{"name": name, "weight": weight} for name, weight in weights]
