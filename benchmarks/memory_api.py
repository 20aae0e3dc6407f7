"""An API server for benchmarks of `haru scheduler`: objects in memory, lists, watches and the writes of a scheduler.

It checks nothing and keeps no history, so that it is never what is waited for. POST to /load with `pods`, `cards` (of
each pod) and `first` makes pods that wait; GET /wait with `bound` and `events` answers once so many are bound and told.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import orjson

from benchmarks.decision_objects import Obj, member
from haru.kube import kinds
from haru.kube.kinds import Kind

_JSON = [(b"content-type", b"application/json")]
GROUPS = {
    "": ("v1",),
    "apps": ("v1",),
    "batch": ("v1",),
    "policy": ("v1",),
    "storage.k8s.io": ("v1",),
    "resource.k8s.io": ("v1",),
    "scheduling.k8s.io": ("v1", "v1alpha2"),
}
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


def _resources(group: str, version: str) -> bytes:
    listed = [
        {"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced, "verbs": ["list", "watch"]}
        for kind in kinds.all_kinds()
        if (kind.group, kind.version) == (group, version)
    ]
    return orjson.dumps({"kind": "APIResourceList", "resources": listed})


def _discovery() -> Iterator[tuple[str, bytes]]:
    versions = {name: [{"version": version} for version in found] for name, found in GROUPS.items() if name}
    groups = [{"name": name, "versions": found, "preferredVersion": found[0]} for name, found in versions.items()]
    yield "/api", orjson.dumps({"kind": "APIVersions", "versions": ["v1"]})
    yield "/apis", orjson.dumps({"kind": "APIGroupList", "groups": groups})
    for group, found in GROUPS.items():
        for version in found:
            yield f"/apis/{group}/{version}" if group else f"/api/{version}", _resources(group, version)
    yield "/version", b'{"major":"1","minor":"36","gitVersion":"v1.36.2"}'


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    return {**old, **{key: _merged(old.get(key), value) for key, value in patch.items()}}


class MemoryApi:
    """The ASGI application."""

    def __init__(self, objects: Iterable[Obj]) -> None:
        self._revisions = itertools.count(2)
        self._stored: dict[str, dict[tuple[str, str], Obj]] = {}
        self._watchers: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._fixed = dict(_discovery())
        self.bound = self.events = 0
        self._progress = asyncio.Condition()
        for obj in objects:
            obj["metadata"].setdefault("resourceVersion", "1")
            self._stored.setdefault(obj["kind"], {})[_key(obj)] = obj

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        path, query = scope["path"].rstrip("/"), dict(parse_qsl(scope["query_string"].decode()))
        if query.get("watch") == "true":
            await self._watch(_address(path)[0].kind, query, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if path == "/wait":
            async with self._progress:
                bound, events = int(query["bound"]), int(query["events"])
                await self._progress.wait_for(lambda: self.bound >= bound and self.events >= events)
        status, answer = await self._answer(scope["method"], path, query, body)
        await send({"type": "http.response.start", "status": status, "headers": _JSON})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        if path == "/load":
            self.load(int(query["pods"]), int(query["cards"]), int(query["first"]))
        if path in ("/load", "/wait"):
            return 200, b"{}"
        if path in self._fixed:
            return 200, self._fixed[path]
        kind, namespace, name, subresource = _address(path)
        if method == "GET" and not name:
            return 200, self._list(kind, query)
        if method == "POST":
            return 201, await self._create(kind, (namespace, name), subresource, orjson.loads(body))
        old = self._stored.get(kind.kind, {}).get((namespace, name))
        if old is None:
            return 404, b'{"kind":"Status","status":"Failure","code":404,"message":"not found"}'
        if method == "GET":
            return 200, orjson.dumps(old)
        given = orjson.loads(body)
        new = _merged(old, given) if method == "PATCH" else {**old, **given}
        return 200, orjson.dumps(self._store("MODIFIED", new))

    def _list(self, kind: Kind, query: Mapping[str, str]) -> bytes:
        found = list(self._stored.get(kind.kind, {}).values())
        begin, size = int(query.get("continue") or 0), int(query.get("limit") or len(found) or 1)
        if kind.kind == "Pod" and query.get("fieldSelector") != _RUNNING:
            found = []
        metadata = {"resourceVersion": str(next(self._revisions))}
        if begin + size < len(found):
            metadata["continue"] = str(begin + size)
        page = found[begin : begin + size]
        return orjson.dumps({"kind": f"{kind.kind}List", "metadata": metadata, "items": page})

    async def _create(self, kind: Kind, key: tuple[str, str], subresource: str, body: Obj) -> bytes:
        if subresource == "binding":
            pod = self._stored["Pod"][key]
            self._store("MODIFIED", {**pod, "spec": {**pod["spec"], "nodeName": body["target"]["name"]}})
            self.bound += 1
        elif kind.kind == "Event":
            self.events += 1
        async with self._progress:
            self._progress.notify_all()
        return orjson.dumps(body)

    def _store(self, change: str, obj: Obj) -> Obj:
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._revisions))}}
        self._stored.setdefault(obj["kind"], {})[_key(obj)] = obj
        event = orjson.dumps({"type": change, "object": obj}) + b"\n"
        for watcher in self._watchers.get(obj["kind"], ()):
            watcher.put_nowait(event)
        return obj

    def load(self, pods: int, cards: int, first: int) -> None:
        """Make pods that wait, each with a claim for so many devices."""
        made = [member(f"pod-{number:06}", "", cards, cpu="100m") for number in range(first, first + pods)]
        for objects in made:
            for obj in reversed(objects):
                if obj["kind"] == "Pod":
                    obj["spec"]["containers"][0]["resources"]["requests"]["memory"] = "64Mi"
                self._store("ADDED", obj)

    async def _watch(self, kind: str, query: Mapping[str, str], send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _JSON})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if kind != "Pod" or query.get("fieldSelector") == _RUNNING:
            self._watchers.setdefault(kind, []).append(queue)
        while True:
            events = [await queue.get()]
            while not queue.empty():
                events.append(queue.get_nowait())
            await send({"type": "http.response.body", "body": b"".join(events), "more_body": True})


def _key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _address(path: str) -> tuple[Kind, str, str, str]:
    """The kind, namespace, name and subresource that a path names."""
    parts = path.strip("/").split("/")
    group, version, *rest = ("", *parts[1:]) if parts[0] == "api" else parts[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    kind = kinds.lookup(group, version, rest[0])
    assert kind is not None, path
    name, subresource = (*rest[1:], "", "")[:2]
    return kind, namespace, name, subresource


def serve(objects: Iterable[Obj]) -> None:
    """Serve until killed; the port is printed."""
    from haru.serving import listening_socket, server_class, settings

    app = MemoryApi(objects)
    listener = listening_socket("127.0.0.1", 0, "port")
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    asyncio.run(server_class()(settings(app)).serve([listener]))
