"""Autoscalers on an API server: their scales, conditions, events and status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from controller_cluster import RUNTIME, VirtualCluster, in_virtual_time, pod_body, started, template
from metrics_apis import NAME, MetricsApis

import virtual_time
from haru.controllers.horizontal_pod_autoscaler import AUTOSCALERS
from haru.controllers.manager import ControllerManager
from haru.controllers.objects import DEPLOYMENTS, PODS, REPLICATION_CONTROLLERS
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.meta import get_condition
from haru.kube.names import format_time
from haru.storage.sqlite import SqliteStore

Obj = dict[str, Any]
EVENTS = known_kind("v1", "Event")
DEFINITIONS = known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"cpu": "1", "memory": "1Gi"}


class Autoscaled:
    """A Deployment with pods, metrics APIs, and an autoscaler."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.metrics = MetricsApis(cluster)
        self.manager: ControllerManager

    async def deploy(self, replicas: int, name: str = "web") -> None:
        labels = {"app": name}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(labels)}
        await self.cluster.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
        await self.cluster.set_status(DEPLOYMENTS, name, {"replicas": replicas})
        await self.run_pods(replicas, name)

    async def run_pods(self, count: int, name: str = "web") -> None:
        began = format_time(virtual_time.now() - timedelta(hours=1))
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": began}
        for index in range(count):
            body = pod_body(f"{name}-{index}")
            body["metadata"]["labels"] = {"app": name}
            body["spec"]["containers"][0]["resources"] = {"requests": CPU}
            await self.cluster.create(PODS, body)
            status = {"phase": "Running", "startTime": began, "conditions": [ready]}
            await self.cluster.set_status(PODS, f"{name}-{index}", status)

    async def autoscale(self, *metrics: Obj, name: str = "web", target: Obj = WEB, **spec: Any) -> None:
        given = {"maxReplicas": 10, "scaleTargetRef": target, "metrics": list(metrics), **spec}
        await self.cluster.create(AUTOSCALERS, {"metadata": {"name": name}, "spec": given})

    def use(self, *cpu: str, name: str = "web") -> None:
        """What each pod of a workload uses."""
        used = {f"{name}-{index}": {"cpu": amount, "memory": "512Mi"} for index, amount in enumerate(cpu)}
        self.metrics.served = ["metrics.k8s.io", *[one for one in self.metrics.served if one != "metrics.k8s.io"]]
        self.metrics.values.setdefault("namespaces/ns/pods", {}).update(used)

    async def look(self, times: int = 1) -> None:
        """Let so many periods pass."""
        await asyncio.sleep(15.5 * times)

    async def status(self, name: str = "web") -> Obj:
        found = await self.cluster.get(AUTOSCALERS, name)
        assert found is not None
        status: Obj = found.get("status") or {}
        return status

    async def reason(self, type_: str, name: str = "web") -> str:
        condition = get_condition((await self.status(name)).get("conditions"), type_)
        return f"{condition['status']} {condition['reason']}" if condition is not None else ""

    async def message(self, type_: str) -> str:
        condition = get_condition((await self.status())["conditions"], type_)
        assert condition is not None
        return str(condition["message"])

    async def replicas(self, name: str = "web") -> int:
        found = await self.cluster.get(DEPLOYMENTS, name)
        assert found is not None
        return int(found["spec"]["replicas"])

    async def events(self) -> dict[str, str]:
        return {one["reason"]: one["message"] for one in await self.cluster.items(EVENTS)}


JSON = {"content-type": "application/json"}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PATHS = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.pods"}
FLEETS = {
    "metadata": {"name": "fleets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Fleet", "plural": "fleets"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN, "status": OPEN}}},
                "subresources": {"status": {}, "scale": PATHS},
            }
        ],
    },
}


def cpu(percent: int) -> Obj:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def outside(target: Obj) -> Obj:
    return {"type": "External", "external": {"metric": {"name": "depth"}, "target": target}}


def play(scenario: Callable[[Autoscaled], Awaitable[None]], gates: FeatureGates | None = None) -> None:
    async def run(cluster: VirtualCluster) -> None:
        autoscaled = Autoscaled(cluster)
        autoscaled.manager = await cluster.start(NAME)
        await scenario(autoscaled)

    async def with_gates() -> None:
        store = SqliteStore(":memory:", clock=asyncio.get_running_loop().time)
        async with started(VirtualCluster, store, gates, RUNTIME, clock=virtual_time.now) as cluster:
            await run(cluster)

    if gates is None:
        in_virtual_time(run)
    else:
        virtual_time.run(with_gates())


@pytest.mark.parametrize(("options", "period"), [({}, 15.0), ({"horizontal-pod-autoscaler-sync-period": 5.0}, 5.0)])
def test_autoscalers_are_looked_at_once_a_period(options: dict[str, float], period: float) -> None:
    async def run(cluster: VirtualCluster) -> None:
        it = Autoscaled(cluster)
        it.manager = await cluster.start(NAME, **options)
        await it.deploy(2)
        await it.autoscale(cpu(50))
        it.use("900m", "700m")
        await asyncio.sleep(period - 0.5)
        assert await it.replicas() == 2
        await asyncio.sleep(1)
        assert await it.replicas() == 4
        it.use("1", "1")
        await asyncio.sleep(period - 1)
        looked = (await it.status())["currentMetrics"]
        await asyncio.sleep(1)
        assert (await it.status())["currentMetrics"] != looked

    in_virtual_time(run)


def test_workload_above_its_target_grows_and_status_and_events_tell_of_it() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(2)
        await it.autoscale(cpu(50))
        it.use("900m", "700m")
        await it.look()
        assert await it.replicas() == 4
        status = await it.status()
        assert (status["currentReplicas"], status["desiredReplicas"]) == (2, 4)
        current = {"averageUtilization": 80, "averageValue": "800m"}
        assert status["currentMetrics"] == [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
        assert status["lastScaleTime"]
        assert await it.reason("AbleToScale") == "True SucceededRescale"
        assert await it.message("AbleToScale") == "the HPA controller was able to update the target scale to 4"
        assert await it.reason("ScalingActive") == "True ValidMetricFound"
        assert await it.reason("ScalingLimited") == "False DesiredWithinRange"
        reason = "cpu resource utilization (percentage of request) above target"
        assert (await it.events())["SuccessfulRescale"] == f"New size: 4; reason: {reason}"

    play(scenario)


@pytest.mark.parametrize("hours", [0, 1, -1], ids=["", "the clock jumps forward", "the clock jumps back"])
def test_workload_shrinks_when_its_window_is_over(hours: int) -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(4)
        await it.autoscale(cpu(50))
        it.use("100m", "100m", "100m", "100m")
        await it.look()
        it.cluster.ahead = timedelta(hours=hours)
        await it.look()
        assert await it.replicas() == 4
        assert await it.reason("AbleToScale") == "True ScaleDownStabilized"
        await it.look(20)
        assert await it.replicas() == 1
        assert (await it.events())["SuccessfulRescale"] == "New size: 1; reason: All metrics below target"

    play(scenario)


@pytest.mark.parametrize(
    ("replicas", "spec", "wanted", "reason"),
    [
        (12, {}, 10, "Current number of replicas above Spec.MaxReplicas"),
        (2, {"minReplicas": 3}, 3, "Current number of replicas below Spec.MinReplicas"),
    ],
)
def test_workload_outside_its_bounds_is_brought_back_without_metrics(
    replicas: int, spec: Obj, wanted: int, reason: str
) -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(replicas)
        await it.autoscale(cpu(50), **spec)
        await it.look()
        assert await it.replicas() == wanted
        assert (await it.events())["SuccessfulRescale"] == f"New size: {wanted}; reason: {reason}"
        assert not (await it.status()).get("currentMetrics")

    play(scenario)


def test_workload_that_somebody_scaled_to_zero_stays_there() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(0)
        await it.autoscale(cpu(50))
        await it.look()
        assert await it.replicas() == 0
        assert await it.reason("ScalingActive") == "False ScalingDisabled"

    play(scenario)


def test_without_a_metrics_api_condition_and_events_say_what_is_missing() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(2)
        container = {**cpu(50)["resource"], "container": "c"}
        await it.autoscale(cpu(50), {"type": "ContainerResource", "containerResource": container})
        await it.look()
        assert await it.replicas() == 2
        assert await it.reason("AbleToScale") == "True SucceededGetScale"
        assert await it.reason("ScalingActive") == "False FailedGetResourceMetric"
        told = (
            "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from "
            "resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
        )
        assert await it.message("ScalingActive") == f"the HPA was unable to compute the replica count: {told}"
        events = await it.events()
        assert events["FailedGetResourceMetric"] == events["FailedGetContainerResourceMetric"] == told
        summary = (
            f"invalid metrics (2 invalid out of 2), first error is: failed to get cpu resource metric value: {told}"
        )
        assert events["FailedComputeMetricsReplicas"] == summary
        assert (await it.status())["currentMetrics"] == [{"type": ""}, {"type": ""}]

    play(scenario)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (WEB, 'deployments.apps "web" not found'),
        ({**WEB, "kind": "Thing"}, 'no matches for kind "Thing" in group "apps"'),
        ({**WEB, "apiVersion": "gone.example.com/v1"}, 'no matches for kind "Deployment" in group "gone.example.com"'),
        ({"apiVersion": "batch/v1", "kind": "Job", "name": "web"}, "the server could not find the requested resource"),
    ],
)
def test_target_without_a_scale_is_named(target: Obj, why: str) -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.autoscale(cpu(50), target=target)
        await it.look()
        assert await it.reason("AbleToScale") == "False FailedGetScale"
        assert (
            await it.message("AbleToScale") == f"the HPA controller was unable to get the target's current scale: {why}"
        )
        assert (await it.events())["FailedGetScale"] == why

    play(scenario)


def test_failed_metric_lets_a_workload_grow_and_keeps_it_from_shrinking() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(4)
        await it.autoscale(cpu(50), {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": AVERAGE}})
        it.use("100m", "100m", "100m", "100m")
        await it.look(25)
        assert await it.replicas() == 4
        assert await it.reason("ScalingActive") == "False FailedGetPodsMetric"
        text = "no custom metrics API (custom.metrics.k8s.io) registered"
        assert (await it.message("ScalingActive")).endswith(text)
        it.use("800m", "800m", "800m", "800m")
        await it.look()
        assert await it.replicas() == 7
        assert await it.reason("ScalingActive") == "True ValidMetricFound"

    play(scenario)


AVERAGE = {"type": "AverageValue", "averageValue": "10"}
VALUE = {"type": "Value", "value": "10"}
QUEUE = {"name": "depth", "selector": {"matchLabels": {"queue": "a"}}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "name": "front"}


@pytest.mark.parametrize(
    ("metric", "path", "values", "replicas", "current", "why"),
    [
        (
            {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": AVERAGE}},
            "namespaces/ns/pods/*/qps",
            {"web-0": "12", "web-1": "18500m"},
            4,
            {"averageValue": "15250m"},
            "pods metric qps",
        ),
        (
            {"type": "Object", "object": {"metric": QUEUE, "target": VALUE, "describedObject": SERVICE}},
            "namespaces/ns/services/front/depth",
            {"front": "20"},
            4,
            {"value": "20"},
            "Service metric depth",
        ),
        (
            {"type": "Object", "object": {"metric": QUEUE, "target": AVERAGE, "describedObject": SERVICE}},
            "namespaces/ns/services/front/depth",
            {"front": "31"},
            4,
            {"averageValue": "15500m"},
            "external metric depth(&LabelSelector{MatchLabels:map[string]string{queue: a,},"
            "MatchExpressions:[]LabelSelectorRequirement{},})",
        ),
        (
            {
                "type": "Object",
                "object": {
                    "metric": {"name": "depth"},
                    "target": VALUE,
                    "describedObject": {"apiVersion": "v1", "kind": "Namespace", "name": "other"},
                },
            },
            "namespaces/ns/metrics/depth",
            {"ns": "20"},
            4,
            {"value": "20"},
            "Namespace metric depth",
        ),
        (
            {"type": "External", "external": {"metric": QUEUE, "target": VALUE}},
            "namespaces/ns/depth",
            {"one": "15", "two": "2"},
            4,
            {"value": "17"},
            "external metric depth(&LabelSelector{MatchLabels:map[string]string{queue: a,},"
            "MatchExpressions:[]LabelSelectorRequirement{},})",
        ),
        (
            outside(AVERAGE),
            "namespaces/ns/depth",
            {"one": "40"},
            4,
            {"averageValue": "20"},
            "external metric depth(nil)",
        ),
    ],
    ids=["pods", "object-value", "object-average", "namespace", "external-value", "external-average"],
)
def test_metrics_of_pods_objects_and_the_outside_scale_a_workload(
    metric: Obj, path: str, values: dict[str, str], replicas: int, current: Obj, why: str
) -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(2)
        await it.autoscale(metric)
        group = "external.metrics.k8s.io" if metric["type"] == "External" else "custom.metrics.k8s.io"
        it.metrics.served, it.metrics.values = [group], {path: values}
        await it.look()
        assert await it.replicas() == replicas
        (told,) = (await it.status())["currentMetrics"]
        member = metric["type"].lower()
        kept = {name: value for name, value in metric[member].items() if name != "target"}
        assert told == {"type": metric["type"], member: {**kept, "current": current}}
        assert (await it.events())["SuccessfulRescale"] == f"New size: {replicas}; reason: {why} above target"
        (query,) = {query for _, query in it.metrics.queries}
        series = "queue=a" if "selector" in metric[member]["metric"] else ""
        expected = {
            "Pods": "labelSelector=app=web",
            "Object": f"metricLabelSelector={series}",
            "External": f"labelSelector={series}",
        }
        assert query == (expected[metric["type"]] if series or metric["type"] == "Pods" else "")

    play(scenario)


@pytest.mark.parametrize(
    ("served", "kind", "items", "why"),
    [
        ([], "Thing", {}, "no custom metrics API (custom.metrics.k8s.io) registered"),
        (
            ["custom.metrics.k8s.io"],
            "Thing",
            {},
            'unable to map kind Thing to resource: no matches for kind "Thing" in group ""',
        ),
        (
            ["custom.metrics.k8s.io"],
            "Service",
            {"a": "1", "b": "2"},
            "the custom metrics API server returned 2 results when we asked for exactly one",
        ),
        (
            ["custom.metrics.k8s.io"],
            "Service",
            None,
            "the server could not find the requested resource (get services.custom.metrics.k8s.io front)",
        ),
    ],
)
def test_metric_of_an_object_that_cannot_be_read_says_why(
    served: list[str], kind: str, items: dict[str, str] | None, why: str
) -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(2)
        metric = {"metric": QUEUE, "target": VALUE, "describedObject": {**SERVICE, "kind": kind}}
        await it.autoscale({"type": "Object", "object": metric})
        it.metrics.served = served
        if items is not None:
            it.metrics.values = {"namespaces/ns/services/front/depth": items}
        await it.look()
        told = f"unable to get metric depth: unable to fetch metrics from custom metrics API: {why} on {kind} ns/front"
        assert (await it.events())["FailedGetObjectMetric"] == told

    play(scenario)


def test_one_container_of_each_pod_can_be_followed() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(1)
        container = {"name": "memory", "container": "c", "target": {"type": "AverageValue", "averageValue": "256Mi"}}
        await it.autoscale({"type": "ContainerResource", "containerResource": container})
        used = [{"name": "log", "usage": {"memory": "9Gi"}}, {"name": "c", "usage": {"memory": "600Mi"}}]
        it.metrics.served, it.metrics.values = ["metrics.k8s.io"], {"namespaces/ns/pods": {"web-0": used}}
        await it.look()
        assert await it.replicas() == 3
        (told,) = (await it.status())["currentMetrics"]
        assert told["containerResource"] == {"name": "memory", "container": "c", "current": {"averageValue": "600Mi"}}

    play(scenario)


def test_two_autoscalers_of_the_same_pods_scale_nothing() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(2)
        it.use("900m", "900m")
        await it.autoscale(cpu(50), name="one")
        await it.autoscale(cpu(50), name="two")
        await it.look(3)
        reasons = {await it.reason("ScalingActive", name) for name in ("one", "two")}
        assert "False AmbiguousSelector" in reasons
        text = "pods by selector app=web are controlled by multiple HPAs: [ns/one ns/two]"
        assert (await it.events())["AmbiguousSelector"] == text
        await it.cluster.client.delete(AUTOSCALERS, "two", "ns")
        await it.look(2)
        assert await it.reason("ScalingActive", "one") == "True ValidMetricFound"

    play(scenario)


def test_replication_controllers_of_the_core_group_are_scaled() -> None:
    async def scenario(it: Autoscaled) -> None:
        spec = {"replicas": 1, "selector": {"app": "old"}, "template": template({"app": "old"})}
        await it.cluster.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "old"}, "spec": spec})
        await it.cluster.set_status(REPLICATION_CONTROLLERS, "old", {"replicas": 1})
        await it.run_pods(1, "old")
        await it.autoscale(cpu(50), target={"apiVersion": "v1", "kind": "ReplicationController", "name": "old"})
        it.use("1", name="old")
        await it.look()
        found = await it.cluster.get(REPLICATION_CONTROLLERS, "old")
        assert found is not None
        assert found["spec"]["replicas"] == 2

    play(scenario)


def test_custom_resources_with_a_scale_are_scaled() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.cluster.create(DEFINITIONS, FLEETS)
        fleet = {"metadata": {"name": "f", "namespace": "ns"}, "spec": {"size": 1}}
        path = "/apis/example.com/v1/namespaces/ns/fleets"
        body = {"apiVersion": "example.com/v1", "kind": "Fleet", **fleet, "status": {"size": 1, "pods": "app=f"}}
        client = it.cluster.client
        status, _, _ = await client.raw("POST", path, body=orjson.dumps(body), headers=JSON)
        assert status == 201
        merge = {"content-type": "application/merge-patch+json"}
        told = orjson.dumps({"status": body["status"]})
        status, _, _ = await client.raw("PATCH", f"{path}/f/status", body=told, headers=merge)
        assert status == 200
        await it.run_pods(1, "f")
        await it.autoscale(cpu(50), target={"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f"})
        it.use("1", name="f")
        await it.look()
        _, _, found = await client.raw("GET", f"{path}/f")
        assert orjson.loads(found)["spec"]["size"] == 2

    play(scenario)


def test_tolerance_and_policies_of_its_behavior_hold_for_an_autoscaler() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(2)
        up = {"tolerance": "0.5", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
        await it.autoscale(cpu(50), behavior={"scaleUp": up})
        it.use("700m", "700m")
        await it.look()
        assert await it.replicas() == 2
        it.use("950m", "950m")
        await it.look()
        assert await it.replicas() == 3
        assert await it.reason("ScalingLimited") == "True ScaleUpLimit"

    play(scenario)


def test_workload_goes_to_zero_and_comes_back_under_its_gate() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(1)
        down = {"stabilizationWindowSeconds": 0}
        await it.autoscale(outside(AVERAGE), minReplicas=0, behavior={"scaleDown": down})
        it.metrics.served, it.metrics.values = ["external.metrics.k8s.io"], {"namespaces/ns/depth": {"one": "0"}}
        await it.look()
        assert await it.replicas() == 0
        assert await it.reason("ScaledToZero") == "True ScaledToZero"
        await it.cluster.set_status(DEPLOYMENTS, "web", {"replicas": 0})
        it.metrics.values = {"namespaces/ns/depth": {"one": "25"}}
        await it.look()
        assert await it.replicas() == 3
        assert await it.reason("ScaledToZero") == "False NotScaledToZero"

    play(scenario, FeatureGates({"HPAScaleToZero": True}))


def test_looks_and_wishes_are_counted() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.deploy(2)
        await it.autoscale(cpu(50))
        it.use("900m", "900m")
        await it.look()
        text = it.manager.metrics().decode()
        prefix = "horizontal_pod_autoscaler_controller_"
        for line in (
            'reconciliations_total{action="scale_up",error="none"} 1.0',
            'metric_computation_total{action="scale_up",error="none",metric_type="Resource"} 1.0',
            "num_horizontal_pod_autoscalers 1.0",
            'desired_replicas{hpa_name="web",namespace="ns"} 4.0',
        ):
            assert f"{prefix}{line}" in text
        await it.cluster.client.delete(AUTOSCALERS, "web", "ns")
        await it.look()
        text = it.manager.metrics().decode()
        assert f"{prefix}num_horizontal_pod_autoscalers 0.0" in text
        assert f"{prefix}desired_replicas{{" not in text

    play(scenario)


@pytest.mark.parametrize(
    ("gate", "metric", "message"),
    [
        (False, outside(AVERAGE), "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"),
        (
            True,
            cpu(50),
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero "
            "replicas",
        ),
    ],
)
def test_zero_replicas_are_refused_without_gate_or_without_a_metric_from_elsewhere(
    gate: bool, metric: Obj, message: str
) -> None:
    async def scenario(it: Autoscaled) -> None:
        with pytest.raises(StatusError) as error:
            await it.autoscale(metric, minReplicas=0)
        assert message in error.value.message

    play(scenario, FeatureGates({"HPAScaleToZero": gate}))


def test_tolerance_is_dropped_without_its_gate() -> None:
    async def scenario(it: Autoscaled) -> None:
        await it.autoscale(cpu(50), behavior={"scaleDown": {"tolerance": "0.5"}})
        found = await it.cluster.get(AUTOSCALERS, "web")
        assert found is not None
        assert "tolerance" not in found["spec"]["behavior"]["scaleDown"]

    play(scenario, FeatureGates({"HPAConfigurableTolerance": False}))
