"""What the kubelet measures of dynamic resources and of its PodResources endpoint, under the kubelet's names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)


class DraMetrics:
    """The metrics of one node, in `registry`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.operations = Histogram(
            "dra_operations_duration_seconds",
            "Time to prepare or unprepare the claims of a pod.",
            ("operation_name", "is_error"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.calls = Histogram(
            "dra_grpc_operations_duration_seconds",
            "Time of calls to DRA drivers.",
            ("driver_name", "method_name", "grpc_status_code"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.claims = Gauge(
            "dra_resource_claims_in_use", "Claims that are prepared here.", ("driver_name",), registry=self.registry
        )
        self.requests = Counter(
            "kubelet_pod_resources_endpoint_requests",
            "Calls of the PodResources endpoint.",
            ("server_api_version",),
            registry=self.registry,
        )
        self.of_method: dict[str, Counter] = {}
        self.failures: dict[str, Counter] = {}
        for method in ("list", "get", "get_allocatable"):
            self.of_method[method] = self._counter(f"requests_{method}", "Calls of one method.")
            self.failures[method] = self._counter(f"errors_{method}", "Calls of one method that failed.")

    def lines(self) -> list[str]:
        """Everything as /metrics has it."""
        return generate_latest(self.registry).decode().splitlines()

    def _counter(self, name: str, told: str) -> Counter:
        full = f"kubelet_pod_resources_endpoint_{name}"
        return Counter(full, told, ("server_api_version",), registry=self.registry)
