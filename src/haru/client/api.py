"""The API client: every verb of the Kubernetes API over a transport, objects as plain dicts.

How requests are sent, and sent again, is in `request_sender.py`. What fails for good surfaces: as `StatusError` for an
answer of the API, as `OSError` (`ConnectionError`, `TimeoutError`) for the way there.
Source: Kubernetes API concepts.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import Any, Literal

import orjson

from haru.client.asgi import AsgiApp, AsgiTransport
from haru.client.credentials import BearerToken, Certificate, ProgramToken, TokenSource
from haru.client.http import HttpTransport, tls_context
from haru.client.impersonation import Impersonation
from haru.client.kubeconfig import ClusterConfig, in_cluster, load_kubeconfig
from haru.client.request_sender import TIMEOUT_SECONDS, RequestSender
from haru.client.server_version import AS_WRITTEN
from haru.client.transforms import SharedObjects, without_managed_fields
from haru.client.transport import LineSplitter, Request, Response, Transport, WatchEvent, before, failure
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.proxy_settings import proxy_to

PatchType = Literal["merge", "json", "strategic", "apply"]

_PATCH_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_PAGE = 500
# The beginning of such an event up to its resourceVersion, without anything in between that quotes or nests.
_MODIFIED = re.compile(
    rb'\{"type":"MODIFIED","object":\{"kind":"\w+","apiVersion":"[\w./-]+","metadata":\{'
    rb'(?:"(?:name|generateName|namespace)":"[^"\\]*",)*"uid":"([^"\\]+)","resourceVersion":"(\d+)"'
).match
_WATCH_SECONDS = (300, 600)


def path_of(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The URL path of a collection, an object or a subresource."""
    path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace:
        path = f"{path}/namespaces/{namespace}"
    path = f"{path}/{kind.plural}/{name}" if name else f"{path}/{kind.plural}"
    return f"{path}/{subresource}" if subresource else path


def _address(kind: Kind, obj: Mapping[str, Any], namespace: str = "") -> tuple[str, str]:
    metadata = obj.get("metadata") or {}
    return (namespace or metadata.get("namespace", "")) if kind.namespaced else "", metadata.get("name", "")


class ApiClient(RequestSender):
    """A client of one API server as one user."""

    def __init__(
        self,
        transport: Transport,
        *,
        token: TokenSource | None = None,
        user_agent: str = "haru",
        timeout: float = TIMEOUT_SECONDS,
        namespace: str = "default",
        server: str = "",
        authority: bytes = b"",
        rng: random.Random | None = None,
        sleep: Callable[[float], Any] = asyncio.sleep,
        shared: SharedObjects | None = None,
        impersonated: Impersonation | None = None,
    ) -> None:
        """`shared`: nobody changes the objects that come back; others in this process who share it may have them, too.

        It does not concern lists; of watches each says so itself.
        """
        rng = rng or random.Random()
        super().__init__(transport, token, user_agent, timeout, rng, sleep, shared=shared, impersonated=impersonated)
        self.authority = authority
        """The certificates, as PEM, by which the server is known; empty: by those that the machine trusts."""
        self.namespace = namespace
        self.server = server
        self.version = AS_WRITTEN
        """What the server is and serves, as far as this client was told."""

    # -- ways to make one ---------------------------------------------------------------------------------------------

    @classmethod
    def in_process(cls, app: AsgiApp, token: str = "", user_agent: str = "haru", **options: Any) -> ApiClient:
        """A client of an ASGI application in this process."""
        return cls(AsgiTransport(app), token=BearerToken.of(token), user_agent=user_agent, **options)

    @classmethod
    def http(
        cls,
        base_url: str,
        *,
        token: str = "",
        token_file: Path | None = None,
        ca_pem: bytes | None = None,
        cert: tuple[bytes, bytes] | None = None,
        insecure: bool = False,
        user_agent: str = "haru",
        **options: Any,
    ) -> ApiClient:
        """A client over HTTP(S); `cert` is a client certificate and its key, both PEM."""
        config = ClusterConfig(
            server=base_url,
            token=token,
            token_file=token_file,
            ca_pem=ca_pem,
            insecure=insecure,
            cert_pem=cert[0] if cert else None,
            key_pem=cert[1] if cert else None,
        )
        return cls.from_config(config, user_agent=user_agent, **options)

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | Path | Sequence[str | Path] | None = None,
        context: str | None = None,
        user_agent: str = "haru",
        **options: Any,
    ) -> ApiClient:
        """A client for a context of a kubeconfig file (default: as kubectl finds it)."""
        return cls.from_config(load_kubeconfig(path, context), user_agent=user_agent, **options)

    @classmethod
    def from_environment(cls, user_agent: str = "haru", **options: Any) -> ApiClient:
        """A client for the cluster this process runs in, else for the current kubeconfig."""
        return cls.from_config(in_cluster() or load_kubeconfig(), user_agent=user_agent, **options)

    @classmethod
    def from_config(
        cls, config: ClusterConfig, user_agent: str = "haru", *, multiplexed: bool = False, **options: Any
    ) -> ApiClient:
        """A client for what a kubeconfig says; a `multiplexed` one is for bursts of writes (`MultiplexedWrites`)."""
        cert = (config.cert_pem, config.key_pem) if config.cert_pem and config.key_pem else None
        is_secure = config.server.startswith("https:")

        def contexts(presented: Certificate | None) -> tuple[SSLContext, SSLContext | None]:
            trust = config.ca_pem, presented, config.insecure
            return tls_context(*trust), tls_context(*trust, http2=True) if multiplexed else None

        async def present(presented: Certificate | None) -> None:
            if is_secure:
                await transport.use(*contexts(presented))

        tls, multiplexing = contexts(cert) if is_secure else (None, None)
        transport = HttpTransport(
            config.server,
            tls=tls,
            server_hostname=config.tls_server_name,
            proxy=proxy_to(config.server, config.proxy, os.environ),
            multiplexing=multiplexing,
            compression=config.compression,
        )
        token: TokenSource | None = BearerToken.of(config.token, config.token_file)
        if token is None and cert is None and config.program is not None:
            token = ProgramToken(config.program, present=present)
        options.setdefault("namespace", config.namespace)
        options.setdefault("authority", config.ca_pem or b"")
        options.setdefault("impersonated", config.impersonated)
        return cls(transport, token=token, user_agent=user_agent, server=config.server, **options)

    # -- verbs --------------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str, namespace: str = "", subresource: str = "") -> Obj:
        """One object; 404 is a `StatusError`."""
        return self._read(kind, await self._json("GET", self._path(kind, namespace, name, subresource)))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        resource_version: str = "",
    ) -> Obj:
        """All objects as one list, of one revision."""
        selection = (namespace, label_selector, field_selector)
        items: list[Obj] = []
        page: Obj = {}
        async with aclosing(self.pages(kind, *selection, limit, resource_version)) as pages:
            async for page, is_first in pages:
                if is_first:
                    items.clear()
                items += page.get("items") or ()
        metadata = dict(page.get("metadata") or {})
        metadata.pop("continue", None)
        metadata.pop("remainingItemCount", None)
        return {**page, "metadata": metadata, "items": items}

    async def pages(
        self,
        kind: Kind,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        resource_version: str = "",
        *,
        shared: bool = False,
    ) -> AsyncGenerator[tuple[Obj, bool], None]:
        """Yield a list in pages of `limit` (default 500) of one revision, and whether a page is the first.

        When the pages' revision is compacted under way the list is read again in one piece, which is then the first.
        `shared`: the caller changes no object, as for `watch`.
        """
        query = _selection(label_selector, field_selector, resource_version)
        path, shared = self._path(kind, namespace), shared and self.shared is not None
        # A list "from any cached state" is answered whole, never in pages.
        paging = [] if resource_version == "0" else [("limit", str(limit or _PAGE))]

        async def read(query: Sequence[tuple[str, str]]) -> Obj:
            answer = await self._json("GET", path, query, of_list=True, shared=shared)
            return self.version.incoming_list(kind, answer)

        page = await read([*query, *paging])
        yield page, True
        while token := (page.get("metadata") or {}).get("continue"):
            following = [(k, v) for k, v in query if k != "resourceVersion"]
            is_first = False
            try:
                page = await read([*following, *paging, ("continue", token)])
            except StatusError as error:
                if error.code != 410:
                    raise
                page, is_first = await read(query), True
            yield page, is_first

    async def create(
        self, kind: Kind, obj: Obj, namespace: str = "", dry_run: bool = False, field_manager: str = ""
    ) -> Obj:
        """Create; the stored object."""
        namespace, _ = _address(kind, obj, namespace)
        query = _write_query(dry_run, field_manager)
        body = self.version.outgoing(kind, _typed(kind, obj))
        return self._read(kind, await self._json("POST", self._path(kind, namespace), query, body))

    async def update(self, kind: Kind, obj: Obj, subresource: str = "", field_manager: str = "") -> Obj:
        """Replace; with `metadata.resourceVersion` only if nobody wrote in between (409 otherwise)."""
        namespace, name = _address(kind, obj)
        path = self._path(kind, namespace, name, subresource)
        body = self.version.outgoing(kind, _typed(kind, obj))
        return self._read(kind, await self._json("PUT", path, _write_query(False, field_manager), body))

    async def update_status(self, kind: Kind, obj: Obj) -> Obj:
        """Replace the status."""
        return await self.update(kind, obj, "status")

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Obj | Sequence[Any],
        namespace: str = "",
        type: PatchType = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Patch an object or a subresource; `apply` needs a field manager."""
        query = _write_query(dry_run, field_manager)
        if force:
            query.append(("force", "true"))
        path = self._path(kind, namespace, name, subresource)
        body = self.version.outgoing(kind, patch)
        return self._read(kind, await self._json("PATCH", path, query, body, _PATCH_TYPES[type]))

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation_policy: str = "",
    ) -> Obj:
        """Delete; with `uid` only that very object. The answer is the object (if it still stands) or a Status."""
        options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation_policy:
            options["propagationPolicy"] = propagation_policy
        return self._read(kind, await self._json("DELETE", self._path(kind, namespace, name), (), options))

    async def delete_collection(
        self, kind: Kind, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> None:
        """Delete all objects that the selectors choose, a page of them with each request.

        A kube-apiserver gives a request a minute, and then answers 504 or closes the connection.
        """
        query = [*_selection(label_selector, field_selector), ("limit", str(_PAGE))]
        path, options = self._path(kind, namespace), {"kind": "DeleteOptions", "apiVersion": "v1"}
        following: list[tuple[str, str]] | None = []
        while following is not None:
            try:
                page = await self._json("DELETE", path, [*query, *following], options)
            except StatusError as error:
                if error.code != 410 or not following:
                    raise
                following = []  # the revision is compacted: what is left is found in the newest one
                continue
            token = (page.get("metadata") or {}).get("continue")
            following = [("continue", token)] if token else None

    async def create_subresource(self, kind: Kind, name: str, subresource: str, obj: Obj, namespace: str = "") -> Obj:
        """POST to a subresource: binding, eviction, token."""
        return await self._json("POST", self._path(kind, namespace, name, subresource), (), obj)

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        timeout_seconds: int = 0,
        opened: Callable[[], None] = lambda: None,
        shared: bool = False,
        is_known: Callable[[str, str, Callable[[], WatchEvent]], bool] = lambda uid, version, event: False,
        managed_fields: bool = True,
    ) -> AsyncGenerator[tuple[str, Obj], None]:
        """Events `(type, object)` from after `resource_version` until the server ends the watch.

        `opened` is called once the server has begun to answer, which may be long before there is an event.
        An ERROR event is raised as `StatusError` (410: the revision is too old, list again). Close the iterator when
        leaving it early (`contextlib.aclosing`), so that the connection is given back at once. `shared`: the caller
        changes no object, and takes those that others in this process have. `is_known` is asked by UID and
        resourceVersion whether an object that was modified is known already: its event is neither decoded nor yielded.
        It is also given what decodes the event, should it be wanted later.
        Without `managed_fields` objects may lack them: the caller drops them.
        """
        seconds = timeout_seconds or self._rng.randint(*_WATCH_SECONDS)
        query = [("watch", "true"), ("timeoutSeconds", str(seconds))]
        query += [("allowWatchBookmarks", "true")] if bookmarks else []
        query += _selection(label_selector, field_selector, resource_version)
        request = Request("GET", self._path(kind, namespace), query, self._headers(self._accept()), shared=shared)
        # A server that neither speaks nor ends is given up a while after it should have ended.
        deadline = asyncio.get_running_loop().time() + seconds + self._timeout
        request, number = await self._authorized(request)
        async with self._transport.stream(request, self._timeout) as stream:
            if stream.status != 200:
                self._refused(stream.status, number)
                raise failure(Response(stream.status, stream.headers, await stream.read()), request)
            opened()
            if stream.events is not None:
                async with aclosing(before(deadline, stream.events)) as batches:
                    async for batch in batches:
                        for type_, obj in batch:
                            if type_ == "ERROR":
                                raise StatusError.from_status(obj)
                            yield type_, self._read(kind, obj)
                return
            splitter = LineSplitter()
            async with aclosing(before(deadline, stream.chunks)) as chunks:
                async for chunk in chunks:
                    for line in splitter.feed(chunk):
                        event = partial(self._event, kind, line, managed_fields)
                        found = _MODIFIED(line)
                        if found is None or not is_known(found[1].decode(), found[2].decode(), event):
                            yield event()

    def _event(self, kind: Kind, line: bytes, managed_fields: bool) -> WatchEvent:
        event = orjson.loads(line if managed_fields else without_managed_fields(line))
        if event["type"] == "ERROR":
            raise StatusError.from_status(event["object"])
        return event["type"], self._read(kind, event["object"])

    def _path(self, kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
        return path_of(self.version.kind_for(kind), namespace, name, subresource)

    def _read(self, kind: Kind, obj: Obj) -> Obj:
        return self.version.incoming(kind, obj)


def _selection(label_selector: str, field_selector: str, resource_version: str = "") -> list[tuple[str, str]]:
    query = (
        ("labelSelector", label_selector), ("fieldSelector", field_selector), ("resourceVersion", resource_version)
    )  # fmt: skip
    return [(name, value) for name, value in query if value]


def _write_query(dry_run: bool, field_manager: str) -> list[tuple[str, str]]:
    query = [("dryRun", "All")] if dry_run else []
    return [*query, ("fieldManager", field_manager)] if field_manager else query


def _typed(kind: Kind, obj: Obj) -> Obj:
    """The object with apiVersion and kind: items of a list come without."""
    if obj.get("kind") and obj.get("apiVersion"):
        return obj
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
