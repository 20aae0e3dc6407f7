"""What controllers count, under the names that Kubernetes gives them.

Source: metrics of kube-controller-manager (`workqueue_*`, `running_managed_controllers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from haru.controllers.base import Controller

_MANAGER = "haru-controllers"
# Queues that the specification of their KEP names otherwise than their controller.
_QUEUE_NAMES = {"resourceclaim-controller": "resource_claim"}


class _Collector:
    def __init__(self, controllers: Mapping[str, Controller]) -> None:
        self._controllers = controllers

    def collect(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("running_managed_controllers", "Controllers that run.", labels=("name", "manager"))
        depth = GaugeMetricFamily("workqueue_depth", "Keys that wait.", labels=("name",))
        adds = CounterMetricFamily("workqueue_adds", "Keys that were added.", labels=("name",))
        retries = CounterMetricFamily("workqueue_retries", "Keys that were added after a failure.", labels=("name",))
        for name, controller in sorted(self._controllers.items()):
            queue = (_QUEUE_NAMES.get(name, name),)
            running.add_metric((name, _MANAGER), 1)
            depth.add_metric(queue, len(controller.queue))
            adds.add_metric(queue, controller.queue.adds)
            retries.add_metric(queue, controller.queue.retries)
        yield from (running, depth, adds, retries)
        for controller in self._controllers.values():
            yield from controller.metrics()


def render(controllers: Mapping[str, Controller]) -> bytes:
    """The controllers' metrics in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Collector(controllers))
    return generate_latest(registry)
