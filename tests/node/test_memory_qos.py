"""Memory QoS: the formulas, the values of containers, pods and the node, and what a configuration may say."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from haru.kube.gates import FeatureGates
from haru.kube.strategy import qos_class
from haru.node.agent.options import NodeOptions
from haru.node.cgroups.host import Hierarchies
from haru.node.cgroups.memory_qos import MemoryQos, configured, container_values, high_mark, node_values, pod_values
from haru.node.cgroups.qos_groups import rule_of

Obj = dict[str, Any]
MI = 1 << 20
ON = MemoryQos(enforces=True, protects=True)
THROTTLES = MemoryQos(enforces=True, protects=False)


def container(name: str = "c", request: str | None = None, limit: str | None = None, cpu: bool = False) -> Obj:
    resources: Obj = {"requests": {}, "limits": {}}
    for side, amount in (("requests", request), ("limits", limit)):
        if amount is not None:
            resources[side]["memory"] = amount
        if cpu:
            resources[side]["cpu"] = "1"
    return {"name": name, "resources": resources}


def pod(*containers: Obj, init: list[Obj] | None = None, **spec: Any) -> Obj:
    return {"spec": {"containers": list(containers), "initContainers": init or [], **spec}}


@pytest.mark.parametrize(
    ("factor", "request_", "high"),
    [
        (0.9, 0, 900),
        (0.9, 100, 910),
        (0.9, 200, 920),
        (0.9, 500, 950),
        (0.9, 800, 980),
        (0.9, 900, 990),
        (0.9, 1000, None),
        (0.6, 500, 800),
        (0.6, 800, 920),
        (0.8, 850, 970),
    ],
)
def test_memory_high_equals_published_examples(factor: float, request_: int, high: int | None) -> None:
    rule = MemoryQos(enforces=True, protects=False, factor=factor, page=MI)
    found = high_mark(rule, request_ * MI, 1000 * MI, 0)
    assert found == (None if high is None else high * MI)


@pytest.mark.parametrize("page", [4096, 65_536])
def test_memory_high_is_page_aligned_below_limit(page: int) -> None:
    rng = random.Random(page)
    rule = MemoryQos(enforces=True, protects=False, page=page)
    for _ in range(500):
        limit = rng.randrange(1, 1 << 34)
        request = rng.randrange(0, limit + 1)
        high = high_mark(rule, request, limit, 0)
        if high is not None:
            assert high % page == 0 and request < high <= limit
        else:
            assert request == limit or math.floor((request + 0.9 * (limit - request)) / page) * page <= request


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod(container(request="100Mi", limit="100Mi", cpu=True)), {"memory.min": 100 * MI, "memory.low": 0}),
        (
            pod(container(request="100Mi", limit="200Mi")),
            {"memory.min": 0, "memory.low": 100 * MI, "memory.high": 190 * MI},
        ),
        (
            pod(container(request="100Mi")),
            {"memory.min": 0, "memory.low": 100 * MI, "memory.high": 910 * MI},
        ),
        (pod(container(request="0", limit="200Mi")), {"memory.min": 0, "memory.low": 0, "memory.high": 180 * MI}),
        (pod(container(request="100Mi", limit="100Mi")), {"memory.min": 0, "memory.low": 100 * MI}),
        (pod(container(limit="100Mi")), {"memory.min": 0, "memory.low": 100 * MI}),
        (pod(container()), {"memory.min": 0, "memory.low": 0, "memory.high": 900 * MI}),
    ],
)
def test_container_memory_qos_values(made: Obj, expected: dict[str, int]) -> None:
    found = container_values(ON, made, made["spec"]["containers"][0], 1000 * MI)
    assert {key: int(value) for key, value in found.items()} == expected


def test_protection_off_writes_zero_min_and_keeps_high() -> None:
    made = pod(container(request="100Mi", limit="200Mi"))
    found = container_values(THROTTLES, made, made["spec"]["containers"][0], 1000 * MI)
    assert found == {"memory.min": "0", "memory.low": "0", "memory.high": str(190 * MI)}
    assert pod_values(THROTTLES, made) == {"memory.low": "0"}
    values = node_values(THROTTLES, [made])
    assert (dict(values.root), dict(values.of_burstable)) == ({"memory.min": "0"}, {"memory.low": "0"})
    assert (values.guaranteed, values.burstable) == (0, 0)


def test_best_effort_pod_has_no_memory_high_in_1_36_0_mode() -> None:
    made = pod(container())
    rule = MemoryQos(enforces=True, protects=False, as_in_1_36_0=True)
    assert "memory.high" not in container_values(rule, made, made["spec"]["containers"][0], 1000 * MI)


def test_memory_qos_off_writes_nothing() -> None:
    rule = configured(gate=True, unified=False, factor=0.9, policy="TieredReservation", page=4096)
    made = pod(container(request="100Mi", limit="200Mi"))
    assert container_values(rule, made, made["spec"]["containers"][0], 1000) == {}
    assert pod_values(rule, made) == {}
    assert dict(node_values(rule, [made]).root) == {}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod(container(request="1Mi", limit="1Mi", cpu=True)), {"memory.min": str(MI)}),
        (pod(container(request="1Mi"), container("d", request="2Mi")), {"memory.low": str(3 * MI)}),
        (pod(container(request="1Mi"), init=[container("i", request="9Mi")]), {"memory.low": str(9 * MI)}),
        (
            pod(container(request="1Mi"), init=[{**container("s", request="2Mi"), "restartPolicy": "Always"}]),
            {"memory.low": str(3 * MI)},
        ),
        (pod(container(request="1Mi"), overhead={"memory": "4Mi"}), {"memory.low": str(5 * MI)}),
        (pod(container(), resources={"requests": {"memory": "7Mi"}}), {"memory.low": str(7 * MI)}),
        (pod(container()), {}),
    ],
)
def test_pod_memory_qos_values(made: Obj, expected: dict[str, str]) -> None:
    assert pod_values(ON, made) == expected


def test_parent_cgroups_protect_sum_of_pods() -> None:
    guaranteed = pod(container(request="5Mi", limit="5Mi", cpu=True))
    burstable = pod(container(request="3Mi"))
    found = node_values(ON, [guaranteed, burstable, pod(container())])
    assert dict(found.root) == {"memory.min": str(8 * MI)}
    assert dict(found.of_burstable) == {"memory.low": str(3 * MI)}
    assert (found.guaranteed, found.burstable) == (5 * MI, 3 * MI)


@pytest.mark.parametrize("value", [0, -0.1, 1.01, float("nan")])
def test_throttling_factor_must_be_between_0_and_1(value: float) -> None:
    with pytest.raises(ValueError, match=r"memoryThrottlingFactor: Invalid value: .*at most 1\.0"):
        configured(gate=True, unified=True, factor=value, policy="None", page=4096)


def test_memory_qos_configuration_is_validated() -> None:
    with pytest.raises(ValueError, match="memoryThrottlingFactor: Required value"):
        configured(gate=True, unified=True, factor=None, policy="", page=4096)
    with pytest.raises(ValueError, match="must be one of: None, TieredReservation"):
        configured(gate=True, unified=True, factor=0.9, policy="Tiered", page=4096)
    with pytest.raises(ValueError, match="the feature gate MemoryQoS is off"):
        configured(gate=False, unified=True, factor=0.9, policy="TieredReservation", page=4096)
    assert not configured(gate=False, unified=True, factor=None, policy="", page=4096).enforces


def random_pod(rng: random.Random) -> Obj:
    def amounts() -> Obj:
        limit = rng.choice([None, rng.randrange(1, 4096)])
        request = rng.choice([None, 0, rng.randrange(0, (limit or 4096) + 1), limit])
        return container(
            f"c{rng.randrange(1 << 30)}",
            None if request is None else f"{request}Mi",
            None if limit is None else f"{limit}Mi",
            cpu=rng.random() < 0.5,
        )

    init = [
        {**amounts(), **({"restartPolicy": "Always"} if rng.random() < 0.5 else {})} for _ in range(rng.randrange(3))
    ]
    made = pod(*(amounts() for _ in range(rng.randrange(1, 4))), init=init)
    if rng.random() < 0.3:
        made["spec"]["overhead"] = {"memory": f"{rng.randrange(64)}Mi"}
    return made


def by_the_table(made: Obj, one: Obj, allocatable: int) -> dict[str, int]:
    """The table of the KEP, row by row."""
    resources = one["resources"]
    limit = int(resources["limits"].get("memory", "0Mi")[:-2]) * MI
    stated = resources["requests"].get("memory")
    request = int(stated[:-2]) * MI if stated is not None else limit
    qos = qos_class(made["spec"])
    if qos == "Guaranteed":
        return {"memory.min": request, "memory.low": 0}
    found = {"memory.min": 0, "memory.low": request if qos == "Burstable" else 0}
    if request == limit and request > 0:
        return found
    high = math.floor((request + 0.9 * ((limit or allocatable) - request)) / 4096) * 4096
    return {**found, "memory.high": high} if high > request else found


def test_random_pods_agree_with_plain_formulas() -> None:
    rng = random.Random(36)
    pods = [random_pod(rng) for _ in range(200)]
    for made in pods:
        for one in made["spec"]["containers"]:
            found = container_values(ON, made, one, 64 << 30)
            assert {key: int(value) for key, value in found.items()} == by_the_table(made, one, 64 << 30)
    values = node_values(ON, pods)
    below = [pod_values(ON, made) for made in pods]
    assert int(values.root["memory.min"]) == sum(int(v) for found in below for v in found.values())
    assert int(values.of_burstable["memory.low"]) == sum(int(found.get("memory.low", 0)) for found in below)
    assert {qos_class(made["spec"]) for made in pods} == {"Guaranteed", "Burstable", "BestEffort"}


@pytest.mark.parametrize(
    ("mode", "controllers", "problem"),
    [
        ("unified", ("cpu", "memory"), ""),
        ("unified", ("cpu",), "cgroup.controllers does not list memory"),
        ("hybrid", (), "cgroup.controllers does not list memory"),
        ("hybrid", ("memory",), "is of both versions"),
        ("legacy", (), "has no hierarchy of version 2"),
    ],
)
def test_missing_memory_controller_is_logged_and_disables_memory_qos(
    caplog: pytest.LogCaptureFixture, mode: Any, controllers: tuple[str, ...], problem: str
) -> None:
    root = Path("/sys/fs/cgroup")
    found = Hierarchies(mode, root, None if mode == "legacy" else root, controllers)
    options = NodeOptions("n", root, root, gates=FeatureGates({"MemoryQoS": True}))
    assert rule_of(options, found).enforces is not bool(problem)
    assert ("MemoryQoS has no effect" in caplog.text) is bool(problem) and problem in caplog.text
    caplog.clear()
    assert rule_of(NodeOptions("n", root, root), found).enforces is False and not caplog.text
