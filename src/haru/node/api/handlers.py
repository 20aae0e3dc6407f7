"""What the paths of the kubelet API answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from haru.clock import utc_now
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.pod_containers import containers_of
from haru.loop_lag import lag_lines
from haru.node.api import node_logs
from haru.node.api.metrics import Counters
from haru.node.api.options import ServerOptions
from haru.node.api.sources import ContainerRef, LogOptions, Logs, Pods, Statistics, Streams
from haru.node.api.streaming import Streaming
from haru.secure_serving.http import METRICS, Answer, HttpError, Request, json_answer, text_answer

Handler = Callable[[Request], Awaitable[Answer]]
_GET, _POST = frozenset({"GET"}), frozenset({"POST"})


def _nothing() -> str:
    return ""


@dataclass(slots=True)
class KubeletSources:
    """What the API of one node shows. `configuration` is KubeletConfiguration's fields, `flags` those of the command
    line; `health_problem` says why the main loop is not well, or nothing; `more` are expositions for /metrics."""

    pods: Pods
    statistics: Statistics
    logs: Logs
    streams: Streams
    configuration: Callable[[], Obj] = dict
    flags: Mapping[str, str] = field(default_factory=dict)
    version: str = "v1.36.0"
    gates: FeatureGates = field(default_factory=FeatureGates)
    health_problem: Callable[[], str] = _nothing
    probes: Callable[[], str] = _nothing
    more: Sequence[Callable[[], Sequence[str]]] = ()


class Handlers:
    """The handlers of one node."""

    def __init__(
        self,
        shown: KubeletSources,
        options: ServerOptions,
        counters: Counters,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._shown, self._options, self._counters, self._now = shown, options, counters, now
        self._started, self._began = now(), time.monotonic()
        self._streaming = Streaming(shown.streams, self.container, options.most_streams)

    def routes(self) -> dict[str, tuple[frozenset[str], Handler]]:
        """By first part of the path."""
        both = _GET | _POST
        found: dict[str, tuple[frozenset[str], Handler]] = {
            "pods": (_GET, self._pods),
            "runningpods": (_GET, self._running),
            "healthz": (frozenset({"GET", "HEAD"}), self.healthz),
            "configz": (_GET, self._configz),
            "statusz": (_GET, self._statusz),
            "stats": (_GET, self._stats),
            "metrics": (_GET, self._metrics),
            "containerLogs": (_GET, self._container_logs),
            "checkpoint": (_POST, self._streaming.checkpoint),
            "exec": (both, self._streaming.exec),
            "attach": (both, self._streaming.attach),
            "portForward": (both, self._streaming.port_forward),
            "run": (_POST, self._streaming.run),
        }
        if self._options.system_logs:
            found["logs"] = (_GET, self._logs)
        if self._options.flags_handler:
            found["flagz"] = (_GET, self._flagz)
        return found

    # -- pods ---------------------------------------------------------------------------------------------------------

    async def _pods(self, request: Request) -> Answer:
        _alone(request)
        return json_answer(_pod_list(self._shown.pods.all()))

    async def _running(self, request: Request) -> Answer:
        _alone(request)
        try:
            return json_answer(_pod_list(await self._shown.pods.running()))
        except OSError as error:
            raise HttpError(500, f"the runtime does not answer: {error}") from error

    def container(self, namespace: str, name: str, uid: str, container: str | None) -> ContainerRef:
        """Find a container, or with None a pod, of this node; 404 if there is none."""
        pod = self._shown.pods.find(namespace, name)
        if pod is None or (uid and pod["metadata"].get("uid") != uid):
            raise HttpError(404, "pod does not exist")
        if container is None:
            return ContainerRef(pod)
        if container not in {one["name"] for one in containers_of(pod.get("spec") or {})}:
            raise HttpError(404, f'container "{container}" not found in pod')
        return ContainerRef(pod, container)

    # -- logs ---------------------------------------------------------------------------------------------------------

    async def _container_logs(self, request: Request) -> Answer:
        parts = request.parts[1:]
        if len(parts) != 3 or not all(parts):
            raise HttpError(404, "404 page not found")
        options = log_options(request, self._now())
        found = self.container(parts[0], parts[1], "", parts[2])
        pieces = await self._shown.logs.read(found.pod, found.container, options)
        return Answer(pieces=pieces, content_type="text/plain")

    async def _logs(self, request: Request) -> Answer:
        if "query" in request.query:
            raise HttpError(403, "queries of system logs are not enabled")
        below = request.path.removeprefix("/logs").strip("/")
        return await node_logs.show(self._options.node_logs, below, request.path.endswith("/"))

    # -- how it is ----------------------------------------------------------------------------------------------------

    async def healthz(self, request: Request) -> Answer:
        """Whether the agent is well."""
        checks = {"ping": "", "log": "", "syncloop": self._shown.health_problem()}
        rest = request.parts[1:]
        if rest and (len(rest) > 1 or rest[0] not in checks):
            raise HttpError(404, "404 page not found")
        asked = {name: checks[name] for name in rest or checks}
        if any(asked.values()):
            lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in asked.items()]
            return text_answer("\n".join([*lines, "healthz check failed", ""]), 500)
        if "verbose" not in request.query:
            return text_answer("ok")
        return text_answer("\n".join([*(f"[+]{name} ok" for name in asked), "healthz check passed", ""]))

    async def _configz(self, request: Request) -> Answer:
        _alone(request)
        return json_answer({"kubeletconfig": self._shown.configuration()})

    async def _statusz(self, request: Request) -> Answer:
        _alone(request)
        hours, rest = divmod(int(time.monotonic() - self._began), 3600)
        version = self._shown.version.removeprefix("v")
        paths = " ".join(f"/{name}" for name in ("configz", "flagz", "healthz", "metrics"))
        lines = {
            "Started": self._started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            "Up": f"{hours} hr {rest // 60:02} min {rest % 60:02} sec",
            "Binary version": version,
            "Emulation version": version,
            "Paths": paths,
        }
        return _z_page(request, "statusz", [f"{name}: {value}" for name, value in lines.items()])

    async def _flagz(self, request: Request) -> Answer:
        _alone(request)
        return _z_page(request, "flagz", [f"{name}={value}" for name, value in sorted(self._shown.flags.items())])

    # -- figures ------------------------------------------------------------------------------------------------------

    async def _stats(self, request: Request) -> Answer:
        if request.parts != ["stats", "summary"]:
            raise HttpError(404, "404 page not found")
        only = request.flag("only_cpu_and_memory")
        return json_answer(await asyncio.to_thread(self._shown.statistics.summary, only))

    async def _metrics(self, request: Request) -> Answer:
        shown = self._shown
        match request.parts[1:]:
            case []:
                lines = [*self._counters.lines(), *shown.gates.exposition(), *lag_lines()]
                for counters in shown.more:
                    lines += counters()
                text = "\n".join([*lines, ""])
            case ["cadvisor"]:
                text = await asyncio.to_thread(shown.statistics.cadvisor)
            case ["resource"]:
                text = await asyncio.to_thread(shown.statistics.resource)
            case ["probes"]:
                text = shown.probes()
            case _:
                raise HttpError(404, "404 page not found")
        return text_answer(text, content_type=METRICS)


def _alone(request: Request) -> None:
    if len(request.parts) > 1:
        raise HttpError(404, "404 page not found")


def _pod_list(pods: Sequence[Obj]) -> Obj:
    items: list[Any] = [
        {"metadata": p["metadata"], "spec": p.get("spec") or {}, "status": p.get("status") or {}} for p in pods
    ]
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}


def _z_page(request: Request, name: str, lines: Sequence[str]) -> Answer:
    """A page for people. 406 for who wants another form."""
    accepted = request.header(b"accept") or "*/*"
    media = {part.partition(";")[0].strip() for part in accepted.split(",")}
    if not media & {"*/*", "text/*", "text/plain"}:
        raise HttpError(406, "only text/plain is served here")
    warning = (
        "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and "
        "is for debugging purposes only."
    )
    return text_answer("\n".join(["", f"kubelet {name}", warning, "", *lines, ""]))


def log_options(request: Request, now: datetime) -> LogOptions:
    """PodLogOptions of a query. 400 for what can not be read, 422 for what makes no sense."""
    tail, limit, seconds = request.whole("tailLines"), request.whole("limitBytes"), request.whole("sinceSeconds")
    stream = request.param("stream") or "All"
    for name, value, least in (("tailLines", tail, 0), ("limitBytes", limit, 1), ("sinceSeconds", seconds, 1)):
        if value is not None and value < least:
            raise HttpError(422, f"{name}: Invalid value: {value}: must be greater than or equal to {least}")
    since: datetime | None = None
    if text := request.param("sinceTime"):
        if seconds is not None:
            raise HttpError(422, "at most one of `sinceTime` or `sinceSeconds` may be specified")
        try:
            since = parse_time(text)
        except ValueError:
            raise HttpError(400, f'sinceTime: Invalid value: "{text[:40]}": write a time of RFC 3339') from None
    if seconds is not None:
        try:
            since = now - timedelta(seconds=seconds)
        except OverflowError:
            since = None
    if stream not in ("All", "Stdout", "Stderr"):
        raise HttpError(422, f'stream: Unsupported value: "{stream[:40]}": write All, Stdout or Stderr')
    if stream != "All" and tail is not None:
        raise HttpError(422, "tailLines: Forbidden: may only be given for the stream All")
    flags = {name: request.flag(name) for name in ("follow", "previous", "timestamps")}
    return LogOptions(**flags, since=since, tail_lines=tail, limit_bytes=limit, stream=stream)
