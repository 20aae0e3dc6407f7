"""Reads what autoscalers follow: metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io.

Amounts are thousandths of a unit. Failures are `UncountableError`, worded as by kube-controller-manager: to an answer
that is no Status client-go adds what was asked for.
Source: Kubernetes 1.36, pkg/controller/podautoscaler/metrics and k8s.io/metrics `client`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import orjson

from haru.client.api import ApiClient
from haru.client.discovery import resources_of, served_group_versions
from haru.controllers.autoscaler_replicas import Sample, UncountableError
from haru.kube.durations import seconds_of
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, name_of
from haru.kube.names import parse_time
from haru.kube.quantity import parse_quantity

RESOURCE_METRICS: Final = "metrics.k8s.io"
CUSTOM_METRICS: Final = "custom.metrics.k8s.io"
EXTERNAL_METRICS: Final = "external.metrics.k8s.io"
_CUSTOM_VERSIONS: Final = ("v1beta2", "v1beta1")
_WINDOW_SECONDS: Final = 60
_MOST: Final = 2**63 - 1
_REMEMBERED_SECONDS: Final = 30.0
_MISSING: Final = "the server could not find the requested resource"
_UNAVAILABLE: Final = "the server is currently unable to handle the request"


class Resources:
    """Finds the resources of a group and kind by discovery, and remembers them for half a minute."""

    def __init__(self, client: ApiClient, monotonic: Callable[[], float]) -> None:
        self._client, self._monotonic = client, monotonic
        self._known: dict[str, tuple[float, list[Kind]]] = {}

    async def of_kind(self, group: str, kind: str) -> list[Kind]:
        """The resources, each in the preferred version that has it; UncountableError if there is none."""
        found: dict[str, Kind] = {}
        for one in await self._group(group):
            if one.kind == kind:
                found.setdefault(one.plural, one)
        if not found:
            raise UncountableError(f'no matches for kind "{kind}" in group "{group}"')
        return list(found.values())

    async def versions(self, group: str) -> list[str]:
        """The versions of a group that are served, the preferred one first."""
        return [version for name, version in await served_group_versions(self._client) if name == group]

    async def _group(self, group: str) -> list[Kind]:
        known = self._known.get(group)
        if known is None or self._monotonic() > known[0] + _REMEMBERED_SECONDS:
            versions = await self.versions(group)
            found = [kind for version in versions for kind in await resources_of(self._client, group, version)]
            known = self._known[group] = self._monotonic(), found
        return known[1]


class MetricsReader:
    """The metrics APIs, as far as they are served."""

    def __init__(self, client: ApiClient, resources: Resources) -> None:
        self._client, self._resources = client, resources

    async def of_resource(self, resource: str, namespace: str, pods: str, container: str) -> dict[str, Sample]:
        """What pods, by the text of their selector, or one container of each, use of a resource."""
        path = f"/apis/{RESOURCE_METRICS}/v1beta1/namespaces/{namespace}/pods"
        asked = f"get pods.{RESOURCE_METRICS}"
        items = await self._items("resource", path, [("labelSelector", pods)], asked)
        found = ((name_of(item), item, _usage(item, resource, container)) for item in items)
        return {
            name: Sample(amount, parse_time(item["timestamp"]), timedelta(seconds=seconds_of(item["window"])))
            for name, item, amount in found
            if amount is not None
        }

    async def of_pods(self, metric: str, namespace: str, pods: str, selector: str) -> dict[str, Sample]:
        """What a custom metric says of each of some pods."""
        query = [("labelSelector", pods), ("metricLabelSelector", selector)]
        path = f"{await self._custom_metrics()}/namespaces/{namespace}/pods/*/{metric}"
        items = await self._items("custom", path, query, f"get pods.{CUSTOM_METRICS} *")
        return {
            item["describedObject"]["name"]: Sample(
                parse_quantity(item["value"]).milli(),
                parse_time(item["timestamp"]),
                timedelta(seconds=_window(item)),
            )
            for item in items
        }

    async def of_object(self, metric: str, namespace: str, reference: Obj, selector: str) -> int:
        """What a custom metric says of one object, or of the namespace itself."""
        root = f"{await self._custom_metrics()}/namespaces/{namespace}"
        group = str(reference.get("apiVersion") or "").rpartition("/")[0]
        if not group and reference["kind"] == "Namespace":
            path, asked = f"{root}/metrics/{metric}", f"get metrics.{CUSTOM_METRICS} {metric}"
        else:
            resource = await self._resource(group, reference["kind"])
            path = f"{root}/{resource}/{reference['name']}/{metric}"
            asked = f"get {resource}.{CUSTOM_METRICS} {reference['name']}"
        items = await self._items("custom", path, [("metricLabelSelector", selector)], asked, empty=True)
        if len(items) != 1:
            why = f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
            raise _unread("custom", why)
        return parse_quantity(items[0]["value"]).milli()

    async def of_outside(self, metric: str, namespace: str, selector: str) -> int:
        """The sum of an external metric."""
        path = f"/apis/{EXTERNAL_METRICS}/v1beta1/namespaces/{namespace}/{metric}"
        asked = f"get {metric}.{EXTERNAL_METRICS}"
        items = await self._items("external", path, [("labelSelector", selector)], asked)
        return min(sum(parse_quantity(item["value"]).milli() for item in items), _MOST)

    async def _resource(self, group: str, kind: str) -> str:
        """The resource of a kind, with its group, as custom metrics name it."""
        try:
            (found, *_) = await self._resources.of_kind(group, kind)
        except (UncountableError, StatusError, OSError) as error:
            why = f"unable to map kind {kind}{'.' * bool(group)}{group} to resource: {error}"
            raise _unread("custom", why) from error
        return found.group_resource

    async def _custom_metrics(self) -> str:
        """The path of the version of custom metrics to read."""
        try:
            served = await self._resources.versions(CUSTOM_METRICS)
        except (StatusError, OSError) as error:
            raise _unread("custom", str(error)) from error
        if not served:
            raise _unread("custom", f"no custom metrics API ({CUSTOM_METRICS}) registered")
        version = next((version for version in served if version in _CUSTOM_VERSIONS), None)
        if version is None:
            raise _unread("custom", "no known available metric versions found")
        return f"/apis/{CUSTOM_METRICS}/{version}"

    async def _items(
        self, api: str, path: str, query: Sequence[tuple[str, str]], asked: str, *, empty: bool = False
    ) -> Sequence[Obj]:
        """The items of a list of metrics, of which there has to be one unless it may be `empty`."""
        try:
            status, _, body = await self._client.raw("GET", path, query=[one for one in query if one[1]])
        except OSError as error:
            raise _unread(api, str(error)) from error
        answer = _decoded(body)
        if status != 200 or answer is None:
            raise _unread(api, _complaint(status, answer, asked))
        items: Sequence[Obj] = answer.get("items") or ()
        if not items and not empty:
            raise UncountableError(f"no metrics returned from {api} metrics API")
        return items


def _unread(api: str, why: str) -> UncountableError:
    return UncountableError(f"unable to fetch metrics from {api} metrics API: {why}")


def _decoded(body: bytes) -> Obj | None:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None


def _complaint(status: int, answer: Mapping[str, Any] | None, asked: str) -> str:
    """What an error answer says, in client-go's words."""
    told = str((answer or {}).get("message") or "") if (answer or {}).get("kind") == "Status" else ""
    if told and told != _MISSING:
        return told
    generic = {404: _MISSING, 503: _UNAVAILABLE}
    return f"{generic.get(status, f'the server responded with the status code {status}')} ({asked})"


def _window(item: Obj) -> int:
    """The seconds that a custom metric is an average of; v1beta1 names them otherwise."""
    seconds = item.get("windowSeconds", item.get("window"))
    return _WINDOW_SECONDS if seconds is None else int(seconds)


def _usage(item: Obj, resource: str, container: str) -> int | None:
    """What PodMetrics say of a pod or of one container; None unless all of it is known."""
    containers = item.get("containers") or ()
    if container:
        containers = [one for one in containers if one["name"] == container][:1]
    amounts = [one.get("usage", {}).get(resource) for one in containers]
    if not amounts or None in amounts:
        return None
    return sum(parse_quantity(amount).milli() for amount in amounts)
