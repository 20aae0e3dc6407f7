"""What `/configz` shows brings about, as a configuration file, the settings that it was made of."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from test_configuration import HEAD, TWO

from haru.engine import Profile
from haru.engine.framework import PROFILES
from haru.kube.yaml import load
from haru.scheduler.configuration import (
    Configuration,
    ConfigurationError,
    LeaderElection,
    configuration_document,
    read_configuration,
)


def settings(profile: Profile) -> dict[str, Any]:
    return {one.name: getattr(profile, one.name) for one in fields(profile)}


def reread(configuration: Configuration) -> Configuration:
    return read_configuration(json.loads(json.dumps(configuration_document(configuration))))


def check_same(found: Configuration, given: Configuration) -> None:
    assert list(found.profiles) == list(given.profiles)
    for name, profile in given.profiles.items():
        assert settings(found.profiles[name]) == settings(profile), name
    assert replace(found, profiles={}, notes=()) == replace(given, profiles={}, notes=())


@pytest.mark.parametrize("name", PROFILES)
def test_named_profile_is_what_its_document_brings_about(name: str) -> None:
    given = Configuration({"haru": PROFILES[name]}, kubeconfig="/etc/kubeconfig")
    check_same(reread(given), given)


PROFILE_BODIES = (
    "plugins: {multiPoint: {disabled: [{name: VolumeBinding}, {name: NodePorts}, {name: DefaultPreemption}]}}",
    "plugins: {filter: {disabled: [{name: TaintToleration}]}}",
    "plugins: {preFilter: {disabled: [{name: NodeResourcesFit}]}, filter: {disabled: [{name: NodeResourcesFit}]}}",
    "plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 7}, {name: HaruExpected}]}}",
    "plugins: {score: {disabled: [{name: DynamicResources}], enabled: [{name: HaruPacking}]}}",
    "plugins: {placementScore: {disabled: [{name: '*'}], enabled: [{name: PodGroupPodsCount, weight: 4}]}}",
    "plugins: {multiPoint: {enabled: [{name: HaruExpected, weight: 3}, {name: HaruPacking}]}}",
    "pluginConfig: [{name: NodeResourcesFit, args: {ignoredResourceGroups: [a.example], "
    "ignoredResources: [b.example/c], scoringStrategy: {type: RequestedToCapacityRatio, "
    "resources: [{name: cpu, weight: 3}], "
    "requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}}}]",
    "pluginConfig: [{name: InterPodAffinity, args: "
    "{hardPodAffinityWeight: 9, ignorePreferredTermsOfExistingPods: true}}]",
    "pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 10}}]",
    "pluginConfig: [{name: NodeResourcesBalancedAllocation, args: {resources: [{name: a.example/b}]}}]",
    "pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: "
    "[{topologyKey: zone, maxSkew: 2, whenUnsatisfiable: DoNotSchedule}]}}]",
)  # fmt: skip


@pytest.mark.parametrize("body", PROFILE_BODIES)
def test_profile_of_a_file_is_what_its_document_brings_about(body: str) -> None:
    given = read_configuration(load(f"{HEAD}profiles:\n- schedulerName: s\n  {body}\n"))
    check_same(reread(given), given)


def test_other_settings_of_a_file_are_in_its_document() -> None:
    given = read_configuration(
        load(
            f"{HEAD}{TWO}clientConnection: {{kubeconfig: /etc/k}}\npartition: {{nodeSelector: 'team=a', pools: [p]}}\n"
            "leaderElection: {leaderElect: false, resourceName: mine, leaseDuration: 1m, renewDeadline: 30s}\n"
        )
    )
    check_same(reread(given), given)


def test_document_has_the_fields_of_kube_scheduler() -> None:
    found = configuration_document(Configuration({"haru": PROFILES["Default"]}, leader_election=LeaderElection()))
    assert (found["kind"], found["apiVersion"]) == ("KubeSchedulerConfiguration", "kubescheduler.config.k8s.io/v1")
    assert found["leaderElection"]["leaseDuration"] == "15s"
    (profile,) = found["profiles"]
    enabled = {plugin["name"]: plugin["weight"] for plugin in profile["plugins"]["multiPoint"]["enabled"]}
    assert (enabled["TaintToleration"], enabled["NodePorts"], enabled["DynamicResources"]) == (3, 0, 2)
    assert "HaruPacking" not in enabled
    fit = next(entry["args"] for entry in profile["pluginConfig"] if entry["name"] == "NodeResourcesFit")
    assert fit["scoringStrategy"]["type"] == "LeastAllocated"


def test_document_with_an_unknown_field_is_refused() -> None:
    found = configuration_document(Configuration({"haru": PROFILES["Default"]}))
    with pytest.raises(ConfigurationError):
        read_configuration({**found, "shown": True})
