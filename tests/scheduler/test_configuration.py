"""The scheduler's configuration file: what kube-scheduler takes is taken, what makes no sense is told with its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scheduler_bench import EVENTS, PODS, Bench, play

from haru.engine import Profile
from haru.engine.framework import (
    DEFAULT_PROFILE,
    EXPECTED_PROFILE,
    FILTERS,
    PACKING_PROFILE,
    WEIGHTS,
    DefaultSpread,
    FitStrategy,
    IgnoredResources,
    InterPodAffinityArgs,
)
from haru.kube.gates import FeatureGates
from haru.kube.yaml import load
from haru.scheduler.config import scheduler_config
from haru.scheduler.configuration import (
    Configuration,
    ConfigurationError,
    LeaderElection,
    load_configuration,
    read_configuration,
)

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def read(text: str = "", default_name: str = "default-scheduler") -> Configuration:
    return read_configuration(load(HEAD + text), default_name)


def profile(body: str) -> Profile:
    """The one profile of a file with this in it, each line two levels deep."""
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    return next(iter(read(f"profiles:\n- schedulerName: s\n{lines}\n").profiles.values()))


def plugins(body: str) -> Profile:
    return profile("plugins:\n" + "\n".join(f"  {line}" for line in body.splitlines()))


def arguments(name: str, body: str) -> Profile:
    return profile(f"pluginConfig:\n- name: {name}\n  args: {body}")


def test_empty_configuration_equals_kube_scheduler_defaults() -> None:
    found = read()
    assert found.profiles == {"default-scheduler": DEFAULT_PROFILE}
    assert (found.initial_backoff, found.max_backoff, found.notes) == (1.0, 10.0, ())
    assert found.leader_election == LeaderElection()
    assert dict(WEIGHTS) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesFit": 1,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


def test_profile_without_changes_is_the_default_profile() -> None:
    """What decisions have learnt under the default profile holds under it."""
    assert profile("plugins: {}") is DEFAULT_PROFILE
    assert read("profiles:\n- {}\n", "haru").profiles == {"haru": DEFAULT_PROFILE}


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("score: {enabled: [{name: ImageLocality, weight: 7}]}", {**WEIGHTS, "ImageLocality": 7}),
        ("score: {enabled: [{name: TaintToleration}]}", {**WEIGHTS, "TaintToleration": 1}),
        ("multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}", {**WEIGHTS, "NodeAffinity": 9}),
        ("multiPoint: {enabled: [{name: NodeAffinity}]}", {**WEIGHTS, "NodeAffinity": 1}),
        ("score: {disabled: [{name: '*'}]}", {}),
        ("score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 5}]}", {"NodeResourcesFit": 5}),
        ("score: {disabled: [{name: ImageLocality}]}", {k: v for k, v in WEIGHTS.items() if k != "ImageLocality"}),
        (
            "multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}\n"
            "score: {enabled: [{name: NodeAffinity, weight: 4}]}",
            {**WEIGHTS, "NodeAffinity": 4},
        ),
        (
            "multiPoint: {disabled: [{name: ImageLocality}]}\nscore: {enabled: [{name: ImageLocality, weight: 2}]}",
            {**WEIGHTS, "ImageLocality": 2},
        ),
    ],
)
def test_plugin_weights_are_read(body: str, weights: dict[str, int]) -> None:
    found = plugins(body)
    assert dict(found.weights) == weights
    assert found.filters == FILTERS


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("filter: {disabled: [{name: NodePorts}]}", {"NodePorts"}),
        ("multiPoint: {disabled: [{name: PodTopologySpread}]}", {"PodTopologySpread"}),
        (
            "multiPoint:\n  disabled: [{name: '*'}]\n  enabled: [{name: SchedulingGates}, {name: PrioritySort}, "
            "{name: DefaultBinder}, {name: DynamicResources}, {name: NodeResourcesFit}]",
            FILTERS - {"DynamicResources", "NodeResourcesFit"},
        ),
    ],
)
def test_disabled_filters_are_removed(body: str, missing: set[str]) -> None:
    assert plugins(body).filters == FILTERS - missing


def test_default_preemption_can_be_disabled() -> None:
    assert not plugins("postFilter: {disabled: [{name: DefaultPreemption}]}").preemption
    off = read("profiles:\n- plugins: {multiPoint: {disabled: [{name: DefaultPreemption}]}}\n")
    options = scheduler_config(FeatureGates.accelerator_defaults(), (), configuration=off).options(1)
    assert (options.preemption.preempt_for_pods, options.preemption.preempt_for_groups) == (False, False)


def test_haru_packing_plugin_enables_packing() -> None:
    found = plugins("multiPoint: {enabled: [{name: HaruPacking}]}")
    assert found.packing
    assert (found.fit, dict(found.weights), found.spread.constraints) == (
        PACKING_PROFILE.fit,
        dict(PACKING_PROFILE.weights),
        (),
    )
    kept = plugins("score: {enabled: [{name: HaruPacking}, {name: NodeResourcesBalancedAllocation, weight: 2}]}")
    assert kept.weights["NodeResourcesBalancedAllocation"] == 2


def test_haru_expected_plugin_has_a_weight() -> None:
    found = plugins("score: {enabled: [{name: HaruPacking}, {name: HaruExpected, weight: 7}]}")
    assert (found.packing, found.expected, found.expected_weight) == (True, EXPECTED_PROFILE.expected, 7)
    assert plugins("multiPoint: {enabled: [{name: HaruExpected}]}").remaining is not None
    assert plugins("score: {enabled: [{name: HaruPacking}]}").remaining is None
    assert read().profiles["default-scheduler"].remaining is None


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("NodeResourcesFit", "{scoringStrategy: {type: MostAllocated}}", {"fit": FitStrategy("MostAllocated")}),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {resources: [{name: nvidia.com/gpu, weight: 5}, {name: cpu}]}}",
            {"fit": FitStrategy(resources=(("nvidia.com/gpu", 5), ("cpu", 1)))},
        ),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: "
            "{shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}}",
            {"fit": FitStrategy("RequestedToCapacityRatio", shape=((0, 0), (100, 10)))},
        ),
        (
            "NodeResourcesFit",
            "{ignoredResources: [example.com/foo], ignoredResourceGroups: [other.com]}",
            {"ignored": IgnoredResources(frozenset({"example.com/foo"}), frozenset({"other.com"}))},
        ),
        ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 1}]}", {"balanced": ("cpu",)}),
        (
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: "
            "[{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}",
            {
                "spread": DefaultSpread(
                    ({"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},), system=False
                )
            },
        ),
        ("PodTopologySpread", "{defaultingType: List}", {"spread": DefaultSpread((), system=False)}),
        ("InterPodAffinity", "{hardPodAffinityWeight: 0}", {"affinity": InterPodAffinityArgs(hard_weight=0)}),
        (
            "InterPodAffinity",
            "{ignorePreferredTermsOfExistingPods: true}",
            {"affinity": InterPodAffinityArgs(ignore_preferred=True)},
        ),
        ("DefaultPreemption", "{minCandidateNodesPercentage: 5, minCandidateNodesAbsolute: 10}", {}),
        ("VolumeBinding", "{bindTimeoutSeconds: 10}", {}),
        ("DynamicResources", "{filterTimeout: 1m30s, bindingTimeout: 10s}", {"device_timeout": 10}),
    ],
)  # fmt: skip
def test_plugin_arguments_are_read(name: str, body: str, expected: dict[str, Any]) -> None:
    found = arguments(name, body)
    assert {key: getattr(found, key) for key in expected} == expected


def test_added_affinity_is_read() -> None:
    term = "{matchExpressions: [{key: pool, operator: In, values: [gpu]}]}"
    found = arguments(
        "NodeAffinity",
        f"{{addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}, "
        f"preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 3, preference: {term}}}]}}}}",
    )
    assert found.added_affinity is not None
    assert len(found.added_affinity) == 2


def test_other_configuration_fields_are_read() -> None:
    found = read(
        "podInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 60\nparallelism: 4\npercentageOfNodesToScore: 50\n"
        "clientConnection: {kubeconfig: /etc/k, qps: 50, burst: 100}\nenableProfiling: true\n"
        "leaderElection: {leaderElect: true, resourceName: mine, leaseDuration: 1m, renewDeadline: 30s, "
        "retryPeriod: 2s}\n"
    )
    assert (found.initial_backoff, found.max_backoff, found.kubeconfig) == (2.0, 60.0, "/etc/k")
    assert found.leader_election == LeaderElection(True, "kube-system", "mine", 60.0, 30.0, 2.0)
    assert len(found.notes) == 1
    assert found.notes[0].startswith("percentageOfNodesToScore: every feasible node is scored")


TABLE = Path(__file__).parents[1] / "data" / "scheduler" / "wrong-configurations.txt"
WRONG = [tuple(part.split("\n    ")) for part in TABLE.read_text().strip().split("\n\n")[1:]]


@pytest.mark.parametrize(("text", "finding"), WRONG, ids=[finding[:60] for _, finding in WRONG])
def test_invalid_configuration_is_reported_with_path(text: str, finding: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    assert finding in str(raised.value)


def test_all_configuration_errors_are_reported_together() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_configuration({"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": "Config", "foo": 1})
    assert [line.split(":")[0] for line in str(raised.value).splitlines()] == ["apiVersion", "kind", "foo"]


def test_configuration_file_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    with pytest.raises(ConfigurationError, match=r"scheduler\.yaml: No such file"):
        load_configuration(path)
    path.write_text(HEAD + "extenders: [1]\n")
    with pytest.raises(ConfigurationError, match=r"scheduler\.yaml: extenders: Forbidden"):
        load_configuration(path)
    path.write_text("a: [")
    with pytest.raises(ConfigurationError, match=r"scheduler\.yaml: "):
        load_configuration(path)
    path.write_text(HEAD)
    assert load_configuration(path, "haru").profiles == {"haru": DEFAULT_PROFILE}


TWO = """
podInitialBackoffSeconds: 3
podMaxBackoffSeconds: 3
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
  pluginConfig:
  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
  - {name: PodTopologySpread, args: {defaultingType: List}}
- schedulerName: reserved
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: Exists}]}]
"""


def test_two_profiles_serve_their_scheduler_names() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=8)
        await bench.node("n2", cpu=8)
        await bench.pod("first", nodeName="n1")
        await bench.pod("spread")
        await bench.eventually_bound("spread")
        assert await bench.node_of("spread") == "n2"
        await bench.pod("second", nodeName="n1")
        await bench.pod("packed", schedulerName="packing")
        await bench.pod("kept", schedulerName="reserved")
        await bench.pod("foreign", schedulerName="somebody")
        await bench.eventually_bound("packed")
        assert await bench.node_of("packed") == "n1"
        await bench.scheduler.drain()
        condition = await bench.condition(PODS, "kept", "PodScheduled")
        assert condition["message"].startswith(
            "0/2 nodes are available: 2 node(s) didn't match scheduler-enforced node affinity."
        )
        assert not await bench.node_of("foreign")
        events = [e for e in (await bench.api.list(EVENTS, "default"))["items"] if e["reason"] == "Scheduled"]
        told_by = {e["involvedObject"]["name"]: e["reportingComponent"] for e in events}
        assert told_by == {"spread": "default-scheduler", "packed": "packing"}

    play(scenario, configuration=read(TWO))
