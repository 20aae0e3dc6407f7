"""The scheduler's metrics: the names, types, labels and buckets of kube-scheduler 1.36, and what each measures."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from scheduler_bench import NS, PODS, Bench, play

from haru.engine.framework import MetricsRecorder
from haru.exposition import GaugeOf
from haru.scheduler.metric_table import METRICS
from haru.scheduler.queue.scheduling_queue import SchedulingQueue

_PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"

# Name without prefix, type, labels, first and last bound, number of bounds: as a kube-scheduler v1.36.2 served them
# (those of binding conditions: as its source has them).
SERVED = """
schedule_attempts_total counter profile,result
scheduling_attempt_duration_seconds histogram profile,result 0.001 16.384 15
preemption_victims histogram - 1 64 7
preemption_attempts_total counter -
pending_pods gauge queue
pod_scheduling_attempts histogram - 1 16 5
framework_extension_point_duration_seconds histogram extension_point,profile,status 0.0001 0.2048 12
queue_incoming_pods_total counter event,queue
goroutines gauge operation
pod_scheduling_sli_duration_seconds histogram attempts 0.01 5242.88 20
permit_wait_duration_seconds histogram result 0.001 16.384 15
unschedulable_pods gauge plugin,profile
plugin_evaluation_total counter extension_point,plugin,profile
event_handling_duration_seconds histogram event 0.0001 0.2048 12
scheduling_algorithm_duration_seconds histogram - 0.001 16.384 15
inflight_events gauge event
batch_attempts_total counter profile,result
batch_cache_flushed_total counter profile,reason
pod_scheduled_after_flush_total counter -
plugin_execution_duration_seconds histogram extension_point,plugin,status 1e-05 0.02216837820053101 20
queueing_hint_execution_duration_seconds histogram event,hint,plugin 1e-05 0.02216837820053101 20
cache_size gauge type
preemption_goroutines_duration_seconds histogram result 0.01 5242.88 20
preemption_goroutines_execution_total counter result
async_api_call_execution_total counter call_type,result
async_api_call_execution_duration_seconds histogram call_type,result 0.001 16.384 15
pending_async_api_calls gauge call_type
resourceclaim_creates_total counter status
dra_bindingconditions_allocations_total counter driver,profile,status
dra_bindingconditions_wait_duration_seconds histogram driver,profile,status 0.1 819.2 14
podgroup_schedule_attempts_total counter profile,result
podgroup_scheduling_attempt_duration_seconds histogram profile,result 0.001 16.384 15
podgroup_scheduling_algorithm_duration_seconds histogram - 0.001 16.384 15
"""
STABLE = 8
BETA = 5


def test_metrics_have_the_types_labels_and_buckets_of_kube_scheduler() -> None:
    ours = []
    for metric in METRICS:
        some = [repr(float(bound)).removesuffix(".0") for bound in metric.buckets]
        bounds = [some[0], some[-1], str(len(some))] if some else []
        labels = ",".join(sorted(metric.labels)) or "-"
        ours.append(" ".join([metric.name.removeprefix("scheduler_"), metric.kind, labels, *bounds]))
    assert ours == SERVED.split("\n")[1:-1]
    assert [sum(metric.stability == level for metric in METRICS) for level in ("STABLE", "BETA")] == [STABLE, BETA]


def test_page_lists_every_metric_as_the_registry_has_it() -> None:
    rows = re.findall(r"^\| `(scheduler_\w+)` \| (\w+) \| ([^|]*) \| (\w+) \| (.+) \|$", _PAGE.read_text(), re.M)
    listed = [(name, kind, labels.replace("`", "").replace(" ", ""), level) for name, kind, labels, level, _ in rows]
    served = [(m.name, m.kind, ",".join(m.labels) or "–", m.stability.lower()) for m in METRICS]
    assert listed == served


def test_bounds_are_written_as_go_writes_them() -> None:
    async def scenario(bench: Bench) -> None:
        text = bench.scheduler.metrics.text().decode()
        assert 'scheduler_preemption_victims_bucket{le="1"} 0' in text
        assert 'scheduler_pod_scheduling_attempts_bucket{le="16"} 0' in text
        assert "# HELP scheduler_preemption_victims [STABLE] " in text
        assert "scheduler_preemption_attempts_total 0" in text

    play(scenario)


def test_bound_pod_is_counted_by_cycle_queue_and_extension_point() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.pod("p")
        await bench.eventually_bound("p")
        profile = 'profile="default-scheduler"'
        assert bench.metric(f'scheduler_schedule_attempts_total{{{profile},result="scheduled"}}') == 1
        assert bench.metric("scheduler_pod_scheduling_attempts_count") == 1
        assert bench.metric('scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"}') == 1
        assert bench.metric('scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"}') == 1
        for point in ("PreEnqueue", "PreFilter", "Filter", "Score", "Reserve", "PreBind", "Bind", "PostBind"):
            name = "scheduler_framework_extension_point_duration_seconds_count"
            assert bench.metric(f'{name}{{extension_point="{point}",{profile},status="Success"}}') == 1, point
        evaluated = 'scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeResourcesFit"'
        assert bench.metric(evaluated) == 1
        timed = 'scheduler_plugin_execution_duration_seconds_count{extension_point="Filter",plugin="NodeResourcesFit"'
        assert bench.metric(timed) == 1
        assert bench.metric('scheduler_event_handling_duration_seconds_count{event="UnschedulablePodAdd"}') == 1
        assert bench.metric('scheduler_event_handling_duration_seconds_count{event="NodeAdd"}') == 1
        assert bench.metric('scheduler_cache_size{type="nodes"}') == 1
        assert bench.metric('scheduler_cache_size{type="pods"}') == 1
        assert bench.metric('scheduler_goroutines{operation="binding"}') == 0
        assert bench.metric('scheduler_async_api_call_execution_total{call_type="pod_binding",result="success"}') == 1

    play(scenario)


def test_refused_pod_counts_for_its_plugin_until_it_is_bound() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=1)
        await bench.pod("big", cpu="2")
        await bench.pod("gated", schedulingGates=[{"name": "example.com/hold"}])
        await asyncio.sleep(2)
        assert bench.metric('scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"}') == 1
        assert bench.metric('scheduler_unschedulable_pods{plugin="SchedulingGates",profile="default-scheduler"}') == 1
        assert bench.metric('scheduler_pending_pods{queue="gated"}') == 1
        failed = 'scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"}'
        assert bench.metric(failed) >= 1
        await bench.size("n1", 4)
        await bench.eventually_bound("big")
        assert bench.metric('scheduler_unschedulable_pods{plugin="NodeResourcesFit"') == 0
        hinted = "scheduler_queueing_hint_execution_duration_seconds_count"
        labels = 'event="NodeUpdateNodeAllocatable",hint="Queue",plugin="NodeResourcesFit"'
        assert bench.metric(f"{hinted}{{{labels}}}") == 1
        assert bench.metric('scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"}') == 1
        await bench.api.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, NS, "strategic")

    play(scenario)


def test_pod_that_ends_a_batch_is_measured_once_by_its_own_decision() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=8)
        # Each decision that places all of its pods lets the next one take twice as many.
        for number in range(3):
            await bench.pod(f"before-{number}")
            await bench.eventually_bound(f"before-{number}")
        await asyncio.gather(bench.pod("small"), bench.pod("large", cpu="100"), bench.pod("last"))
        await bench.eventually_bound("small", "last")
        points = "scheduler_framework_extension_point_duration_seconds_count"
        attempts = 'scheduler_schedule_attempts_total{profile="default-scheduler",result='
        assert bench.metric(f'{attempts}"scheduled"}}') == 5
        assert bench.metric(f'{attempts}"unschedulable"}}') == 1
        assert bench.metric(f'{points}{{extension_point="PreFilter"') == 6
        assert bench.metric(f'{points}{{extension_point="Filter"') == 6

    play(scenario)


def test_gang_is_counted_as_group_and_waits_for_its_members() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.gang("g", 2)
        for name in ("a", "b"):
            await bench.pod(name, group="g")
        await bench.eventually_bound("a", "b")
        label = 'profile="default-scheduler",result="scheduled"'
        assert bench.metric(f"scheduler_podgroup_schedule_attempts_total{{{label}}}") == 1
        assert bench.metric("scheduler_podgroup_scheduling_algorithm_duration_seconds_count") == 1
        assert bench.metric("scheduler_scheduling_algorithm_duration_seconds_count") == 0
        assert bench.metric('scheduler_permit_wait_duration_seconds_count{result="Success"}') == 2
        assert bench.metric('scheduler_batch_attempts_total{profile="default-scheduler",result="hint_used"}') == 1

    play(scenario)


def test_text_is_read_by_prometheus_parser() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.pod("p")
        await bench.eventually_bound("p")
        families = {f.name: f for f in text_string_to_metric_families(bench.scheduler.metrics.text().decode())}
        for metric in METRICS:
            family = families.get(metric.name.removesuffix("_total"))
            if family is not None:
                assert family.type == metric.kind
                for sample in family.samples:
                    assert set(sample.labels) - {"le"} == set(metric.labels), metric.name
        assert len(families) >= 20

    play(scenario)


def test_gauge_is_read_when_its_text_is_written() -> None:
    gauge, values = GaugeOf("waiting", "Pods.", ("queue",)), {("active",): 1.0}
    assert gauge.lines() == []
    gauge.read = lambda: values
    values["backoff",] = 2.5
    assert gauge.lines()[2:] == ['waiting{queue="active"} 1', 'waiting{queue="backoff"} 2.5']


class _Plan:
    plugins = ("A", "B", "B")

    def __init__(self) -> None:
        self.ends = [1, 2, 0, 4]


def test_checks_of_a_plan_are_evaluations_of_each_plugin_that_ran() -> None:
    recorder = MetricsRecorder(lambda: 0.0)
    plan = _Plan()
    recorder.uses(plan)
    recorder.uses(plan)
    recorder.finish()
    assert dict(recorder.evaluations) == {("A", "Filter"): 7, ("B", "Filter"): 6}
    assert plan.ends == [0, 0, 0, 0]


def test_extension_points_are_the_laps_between_start_and_stop() -> None:
    times = iter([1.0, 3.0, 6.0])
    recorder = MetricsRecorder(lambda: next(times))
    recorder.lap("Filter")
    recorder.start()
    recorder.lap("PreFilter")
    recorder.lap("Filter", "Error")
    recorder.stop()
    recorder.lap("Score")
    assert recorder.points == [("PreFilter", "Success", 2.0), ("Filter", "Error", 3.0)]


@pytest.mark.parametrize("early", [False, True])
def test_pod_that_a_flush_woke_is_marked(early: bool) -> None:
    queue = SchedulingQueue()
    unit = queue.put(("pod", "ns", "p"), "ns/p", 0, 0.0)
    queue.release(unit, 0.0)
    assert queue.pop(0.0) is unit
    queue.reject(unit, {"NodeResourcesFit"}, 0.0)
    queue.flush_leftovers(299.0 if early else 300.0)
    assert unit.flushed is not early
