"""What a proxy tells of itself: whether it keeps up, whether its node should get traffic, and its metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from haru.clock import Clock
from haru.secure_serving.http import Request
from haru.service_proxy.health import PATIENCE_SECONDS, ProxyHealth

Obj = dict[str, Any]
NODE: Obj = {"metadata": {"name": "n"}, "spec": {}}


async def nothing() -> Obj:
    return {}


class Play:
    """A health with a clock that a test sets."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 2, tzinfo=UTC)
        self.passed = 0.0
        self.health = ProxyHealth(Clock(lambda: self.at, lambda: self.passed))
        self.health.node = NODE

    def later(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.passed += seconds

    def ask(self, path: str) -> tuple[int, Obj]:
        answer = self.health.health_routes()[path](Request({"path": path, "headers": []}, nothing))
        return answer.status, orjson.loads(answer.body)

    def codes(self) -> list[int]:
        return [self.ask(path)[0] for path in ("/healthz", "/livez")]


def test_proxy_is_well_until_a_change_has_waited_for_too_long() -> None:
    play = Play()
    assert play.codes() == [200, 200], "while it starts"
    play.health.queued()
    play.health.synced(0.5, full=True)
    play.later(3 * PATIENCE_SECONDS)
    assert play.codes() == [200, 200], "nothing has changed"
    play.health.queued()
    play.later(PATIENCE_SECONDS - 1)
    play.health.queued()
    assert play.codes() == [200, 200]
    play.later(1)
    assert play.codes() == [503, 503]
    told = play.ask("/livez")[1]
    late = {"lastUpdated": "2026-01-02T00:00:00Z", "healthy": False}
    assert told == {**late, "currentTime": "2026-01-02T00:04:00Z", "status": {"IPv4": late, "IPv6": late}}
    play.health.synced(0.1, full=False)
    assert play.codes() == [200, 200]


@pytest.mark.parametrize("hours", [1, -1])
def test_clock_that_jumps_makes_no_change_wait_longer_or_shorter(hours: int) -> None:
    play = Play()
    play.health.synced(0.5, full=True)
    play.health.queued()
    play.at += timedelta(hours=hours)
    play.later(PATIENCE_SECONDS - 1)
    assert play.codes() == [200, 200]
    play.later(1)
    assert play.codes() == [503, 503]


@pytest.mark.parametrize(
    "node",
    [
        None,
        {"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}},
        {"metadata": {}, "spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}},
    ],
)
def test_node_that_goes_fails_healthz_but_not_livez(node: Obj | None) -> None:
    play = Play()
    play.health.node = node
    assert play.codes() == [503, 200]
    told = play.ask("/healthz")[1]
    assert (told["nodeEligible"], told["healthy"]) == (False, True)


def test_metrics_have_the_names_of_kube_proxy() -> None:
    play = Play()
    metrics = play.health.metrics
    metrics.changed("service")
    metrics.changed("endpoint")
    metrics.taken()
    metrics.changed("endpoint")
    play.health.queued()
    play.health.synced(0.003, full=True)
    metrics.failed()
    metrics.failed(cleanup=True)
    metrics.programmed(59.5, "IPv4")
    metrics.reconciled(0.003, 2, "IPv4")
    metrics.no_local_endpoints.read = lambda: {("internal", "IPv4"): 3}
    play.codes()
    answer = play.health.metrics_routes()["/metrics"](Request({"path": "/metrics", "headers": []}, nothing))
    lines = answer.body.decode().splitlines()
    at = play.at.timestamp()
    for line in (
        'kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.002"} 0',
        'kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.004"} 1',
        'kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1',
        'kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 1',
        'kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total{ip_family="IPv4"} 1',
        'kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="59"} 0',
        'kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="60"} 1',
        'kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="300"} 1',
        'kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 3',
        'kubeproxy_conntrack_reconciler_sync_duration_seconds_bucket{ip_family="IPv4",le="0.004"} 1',
        'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 2',
        "kubeproxy_sync_proxy_rules_service_changes_total 1",
        "kubeproxy_sync_proxy_rules_endpoint_changes_total 2",
        "kubeproxy_sync_proxy_rules_service_changes_pending 0",
        "kubeproxy_sync_proxy_rules_endpoint_changes_pending 1",
        f'kubeproxy_sync_proxy_rules_last_timestamp_seconds{{ip_family="IPv4"}} {at:.3f}',
        f'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{{ip_family="IPv6"}} {at:.3f}',
        'kubeproxy_proxy_healthz_total{code="200"} 1',
        'kubeproxy_proxy_livez_total{code="200"} 1',
    ):
        assert line in lines
    assert not any("partial" in line for line in lines)
