"""The kubelet API's own metrics, under the kubelet's names."""

from __future__ import annotations

from collections import Counter

from haru.exposition import HistogramOf, head

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
_ROOTS = frozenset(
    (
        *("pods", "runningpods", "stats", "metrics", "logs", "checkpoint", "exec", "attach", "run", "portForward"),
        *("containerLogs", "debug", "healthz", "configz", "statusz", "flagz"),
        *("metrics/cadvisor", "metrics/probes", "metrics/resource", "metrics/slis"),
    )
)
_LONG = frozenset({"exec", "attach", "portForward", "debug"})
Labels = tuple[str, str]


def root_of(path: str) -> str:
    """The label of a path; the number of labels is bounded by the served paths."""
    parts = path.strip("/").split("/")
    root = "/".join(parts[:2]) if parts[0] == "metrics" else parts[0]
    return root if root in _ROOTS else "other"


class Counters:
    """Counters of one server."""

    def __init__(self) -> None:
        self._requests: Counter[Labels] = Counter()
        self._in_flight: Counter[Labels] = Counter()
        self._durations = HistogramOf(
            "kubelet_http_requests_duration_seconds",
            "Time from request to answer.",
            ("method", "path", "long_running", "server_type"),
            _BUCKETS,
        )
        self._web_sockets: Counter[str] = Counter()
        self._reviews: Counter[tuple[str, str]] = Counter()

    def begin(self, method: str, path: str) -> Labels:
        """A request has come."""
        labels = (method if method in _METHODS else "other", root_of(path))
        self._requests[labels] += 1
        self._in_flight[labels] += 1
        return labels

    def end(self, labels: Labels, seconds: float) -> None:
        """It has been answered."""
        self._in_flight[labels] -= 1
        self._durations.observe(seconds, *labels, _is_long(labels[1]), "readwrite")

    def web_socket(self, path: str) -> None:
        """A way into a container was opened by a WebSocket that ends here."""
        self._web_sockets[root_of(path)] += 1

    def reviewed(self, kind: str, code: str) -> None:
        """Count a review by the API server."""
        self._reviews[kind, code] += 1

    def lines(self) -> list[str]:
        """The exposition."""
        lines = head("kubelet_http_requests_total", "counter", "Requests that came.")
        lines += [f"kubelet_http_requests_total{{{_labels(key)}}} {n}" for key, n in sorted(self._requests.items())]
        lines += head("kubelet_http_inflight_requests", "gauge", "Requests that are being answered.")
        lines += [f"kubelet_http_inflight_requests{{{_labels(key)}}} {n}" for key, n in sorted(self._in_flight.items())]
        lines += self._durations.lines()
        name = "kubelet_websocket_streaming_requests_total"
        lines += head(name, "counter", "Ways into containers by WebSockets whose protocols runtimes do not have.")
        lines += [f'{name}{{subresource="{path.lower()}"}} {n}' for path, n in sorted(self._web_sockets.items())]
        for kind in ("authn", "authz"):
            name = f"apiserver_delegated_{kind}_request_total"
            lines += head(name, "counter", "Reviews that the API server was asked for.")
            lines += [f'{name}{{code="{code}"}} {n}' for (k, code), n in sorted(self._reviews.items()) if k == kind]
        return lines


def _labels(key: Labels) -> str:
    method, path = key
    return f'long_running="{_is_long(path)}",method="{method}",path="{path}",server_type="readwrite"'


def _is_long(path: str) -> str:
    return "true" if path in _LONG else "false"
