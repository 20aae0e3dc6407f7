"""A small API server for the client's own tests: enough of REST and watch, and faults on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from haru.kube import kinds
from haru.kube.errors import StatusError, already_exists_error, conflict_error, expired_error, not_found_error
from haru.kube.kinds import Kind

Obj = dict[str, Any]


class FakeApi:
    """An ASGI application over a dict; `log` holds what was asked, `faults` answer in place of the server once each."""

    def __init__(self) -> None:
        self.revision = 10
        self.oldest = 0
        self.objects: dict[tuple[str, str, str], Obj] = {}
        self.history: list[tuple[int, str, str, Obj]] = []
        self.changed = asyncio.Event()
        self.log: list[tuple[str, str, dict[str, str], bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[tuple[str, Callable[[], tuple[int, dict[str, str], bytes]]]] = []
        self.end_watches = asyncio.Event()
        self.open_watches = 0

    def fail(self, prefix: str, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Answer the next request `METHOD /path` that starts with `prefix` like this."""
        self.faults.append((prefix, lambda: (status, headers or {}, body)))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
        self.log.append((scope["method"], scope["path"], query, body))
        self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
        for index, (prefix, answer) in enumerate(self.faults):
            if f"{scope['method']} {scope['path']}".startswith(prefix):
                del self.faults[index]
                status, headers, data = answer()
                if status == 0:
                    raise RuntimeError("the server broke down")
                await _reply(send, status, data, headers)
                return
        try:
            if query.get("watch") == "true":
                await self._watch(scope["path"], query, receive, send)
                return
            status, result = await self._answer(scope["method"], scope["path"], query, body)
        except StatusError as error:
            status, result = error.code, error.to_status()
        await _reply(send, status, json.dumps(result).encode(), {})

    def _resolve(self, path: str) -> tuple[Kind, str, str, str]:
        parts = path.strip("/").split("/")
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and kinds.lookup(group, version, rest[2]):
            namespace, rest = rest[1], rest[2:]
        kind = kinds.lookup(group, version, rest[0])
        if kind is None:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        return kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""

    async def _answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Obj]:
        if path == "/version":
            return 200, {"major": "1", "minor": "36"}
        if path in ("/api", "/apis"):
            return 200, {"kind": "APIGroupDiscoveryList", "items": []}
        kind, namespace, name, subresource = self._resolve(path)
        key = (kind.plural, namespace, name)
        if method == "GET" and not name:
            return 200, self._list(kind, namespace, query)
        if method == "POST" and not name:
            return 201, await self._create(kind, namespace, json.loads(body))
        live = self.objects.get(key)
        if live is None:
            raise not_found_error(kind.group, kind.plural, name)
        if method == "PUT":
            new = json.loads(body)
            if new["metadata"].get("resourceVersion") not in (None, live["metadata"]["resourceVersion"]):
                raise conflict_error(kind.group, kind.plural, name)
            merged = {**live, "status": new.get("status", {})} if subresource == "status" else new
            return 200, await self._store(
                "MODIFIED", key, {**merged, "metadata": {**live["metadata"], **new["metadata"]}}
            )
        if method == "PATCH":
            return 200, await self._store("MODIFIED", key, _merge(live, json.loads(body)))
        if method == "DELETE":
            wanted = (json.loads(body or b"{}").get("preconditions") or {}).get("uid")
            if wanted and wanted != live["metadata"]["uid"]:
                raise conflict_error(kind.group, kind.plural, name)
            await self._store("DELETED", key, live)
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        return 200, live

    def _list(self, kind: Kind, namespace: str, query: dict[str, str]) -> Obj:
        items = [o for (p, n, _), o in sorted(self.objects.items()) if p == kind.plural and namespace in ("", n)]
        start = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0")) or len(items)
        metadata: Obj = {"resourceVersion": str(self.revision)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        stripped = [
            {k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in items[start : start + limit]
        ]
        return {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": stripped}

    async def _create(self, kind: Kind, namespace: str, obj: Obj) -> Obj:
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + uuid4().hex[:5]
        key = (kind.plural, namespace, metadata["name"])
        if key in self.objects:
            raise already_exists_error(kind.group, kind.plural, metadata["name"])
        metadata |= {"uid": str(uuid4()), **({"namespace": namespace} if namespace else {})}
        return await self._store("ADDED", key, obj)

    async def _store(self, type_: str, key: tuple[str, str, str], obj: Obj) -> Obj:
        self.revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        if type_ == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = obj
        self.history.append((self.revision, key[0], type_, obj))
        self.changed.set()
        self.changed = asyncio.Event()
        return obj

    async def _watch(self, path: str, query: dict[str, str], receive: Any, send: Any) -> None:
        kind, _, _, _ = self._resolve(path)
        since = int(query["resourceVersion"])
        if since < self.oldest:
            raise expired_error(f"too old resource version: {since} ({self.oldest})")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        self.open_watches += 1
        gone = asyncio.create_task(_disconnected(receive))
        try:
            while not gone.done() and not self.end_watches.is_set():
                changed = self.changed
                for revision, plural, type_, obj in list(self.history):
                    if plural == kind.plural and revision > since:
                        line = json.dumps({"type": type_, "object": obj}).encode() + b"\n"
                        # In two parts, as a network may cut it.
                        await send({"type": "http.response.body", "body": line[:7], "more_body": True})
                        await send({"type": "http.response.body", "body": line[7:], "more_body": True})
                        since = revision
                waiting = asyncio.create_task(changed.wait())
                ended = asyncio.create_task(self.end_watches.wait())
                await asyncio.wait({waiting, gone, ended}, return_when=asyncio.FIRST_COMPLETED)
                for task in (waiting, ended):
                    task.cancel()
                await asyncio.gather(waiting, ended, return_exceptions=True)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.open_watches -= 1
            gone.cancel()


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply(send: Any, status: int, body: bytes, headers: dict[str, str]) -> None:
    raw = [(k.encode(), v.encode()) for k, v in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
