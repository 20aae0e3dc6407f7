"""The documents that describe what a server serves: discovery and OpenAPI."""

from __future__ import annotations

import asyncio
import hashlib
import operator
from collections.abc import Sequence
from functools import cached_property, lru_cache

import orjson

from haru.apiserver.aggregation.server import Aggregator
from haru.apiserver.encoding.negotiation import negotiate, parse_accept
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.peers.server import Peers, etag_of
from haru.apiserver.request.http import Request, Response, json_response
from haru.apiserver.serving_address import ServingAddress
from haru.kube import discovery
from haru.kube.discovery_merge import Groups
from haru.kube.discovery_remote import with_versions
from haru.kube.errors import PageNotFound, no_such_path
from haru.kube.kinds import Kind

NO_PEER = "nopeer"
_OPENAPI_V2 = tuple(f"application/com.github.proto-openapi.spec.v2{dot}v1.0+protobuf" for dot in "@.")


class _OfVersion:
    """What OpenAPI v3 tells of a group version, as long as its kinds are these."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._document: tuple[bytes, str] | None = None

    def has(self, kinds: Sequence[Kind]) -> bool:
        """Whether these very kinds are its own."""
        return len(kinds) == len(self._kinds) and all(map(operator.is_, kinds, self._kinds))

    @cached_property
    def hash(self) -> str:
        """Another one whenever the document may be."""
        from haru.kube.openapi import openapi_hash

        return openapi_hash(self._kinds[0].group, self._kinds[0].version, self._kinds)

    async def document(self) -> tuple[bytes, str]:
        """The document and its ETag."""
        if self._document is None:
            self._document = await asyncio.to_thread(self._made)
        return self._document

    def _made(self) -> tuple[bytes, str]:
        from haru.kube.openapi import openapi_v3_document

        body = orjson.dumps(openapi_v3_document(self._kinds[0].group, self._kinds[0].version, self._kinds))
        return body, f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'


class Documents:
    """Build the documents of one server when they are asked for, and keep them until what it serves changes."""

    def __init__(
        self, objects: ObjectStore, aggregator: Aggregator, peers: Peers | None, address: ServingAddress
    ) -> None:
        self._served = objects.served
        self._aggregator = aggregator
        self._peers = peers
        self._address = address
        self._documents: dict[str, tuple[bytes, str]] = {}
        self._groups: dict[str, Groups] = {}
        self._versions: dict[tuple[str, ...], _OfVersion] = {}
        self._generation = (-1, -1)

    def refresh(self) -> None:
        """Drop the documents if what is served has changed; those of OpenAPI v3 where it is their group version."""
        generation = (self._served.generation, self._aggregator.generation)
        if self._generation == generation:
            return
        self._generation = generation
        self._documents.clear()
        kinds: dict[tuple[str, str], list[Kind]] = {version: [] for version in self._served.group_versions}
        for kind in self._served.kinds:
            kinds[kind.group, kind.version].append(kind)
        before = self._versions
        self._versions = {
            version: known if (known := before.get(version)) is not None and known.has(found) else _OfVersion(found)
            for version, found in kinds.items()
        }

    async def discovery(self, request: Request, path: str, rest: list[str]) -> Response:
        """Answer a request below /api or /apis that names no resource."""
        served = self._served
        if path in ("/api", "/apis"):
            profile = aggregated_profile(request.header(b"accept"))
            if profile is not None:
                return await self._aggregated(request, path, profile)
            negotiate(request.header(b"accept"))
            return Response(200, self._kept(path)[0], "application/json")
        if path.startswith("/api/"):
            rest = ["", *rest]
        if len(rest) == 1:
            known = (*served.group_versions, *self._aggregator.versions())
            versions = list(dict.fromkeys(version for group, version in known if group == rest[0]))
            if not versions:
                raise PageNotFound
            negotiate(request.header(b"accept"))
            return json_response(discovery.api_group(rest[0], versions))
        if (rest[0], rest[1]) not in served.group_versions:
            raise no_such_path()
        negotiate(request.header(b"accept"))
        return json_response(discovery.api_resource_list(rest[0], rest[1], served.kinds))

    async def _aggregated(self, request: Request, path: str, profile: str) -> Response:
        """The aggregated document: of all servers below /apis, if this one knows others, unless it alone is meant."""
        name, peers = f"aggregated {path}", self._peers
        own = self._kept(name)
        found = None
        if path == "/apis" and peers is not None and profile == NO_PEER:
            peers.counts.nopeer += 1
        elif path == "/apis" and peers is not None and peers.proxies:
            found = await peers.discovery(self._groups[name], self._generation)
        response = with_etag(request, *(found or own), discovery.AGGREGATED_CONTENT_TYPE)
        response.headers.append((b"cache-control", b"public"))
        return response

    def _build(self, name: str) -> object:
        served = self._served
        if name == "aggregated /api":
            return discovery.aggregated(served.group_versions, served.kinds, root="/api")
        if name == "aggregated /apis":
            own = discovery.aggregated(self._own(served.group_versions), served.kinds, root="/apis")
            return {**own, "items": with_versions(own["items"], self._aggregator.documents())}
        if name == "/api":
            return discovery.api_versions(self._address.external())
        return discovery.api_group_list([*self._own(served.listed_versions), *self._aggregator.versions()])

    def _own(self, versions: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those group versions that nobody else serves."""
        elsewhere = set(self._aggregator.versions())
        return [version for version in versions if version not in elsewhere]

    def _kept(self, name: str) -> tuple[bytes, str]:
        """A document that changes with what is served only, and its ETag."""
        found = self._documents.get(name)
        if found is None:
            document = self._build(name)
            if isinstance(document, dict):
                self._groups[name] = document.get("items") or []
            body = orjson.dumps(document)
            found = self._documents[name] = (body, etag_of(body))
        return found

    async def openapi(self, request: Request, rest: list[str]) -> Response:
        """Version 3 a document for each group version, version 2 one for all, in JSON or as Go clients ask for it."""
        from haru.kube import openapi

        if rest == ["v2"]:
            return await self._openapi_v2(request)
        served = self._served
        if rest == ["v3"]:
            index = openapi.openapi_v3_index(served.group_versions, lambda *version: self._versions[version].hash)
            index["paths"] |= self._aggregator.openapi_paths()
            return json_response(index)
        if rest[:2] == ["v3", "apis"] and len(rest) == 4:
            found_elsewhere = await self._aggregator.openapi(request, (rest[2], rest[3]))
            if found_elsewhere is not None:
                return found_elsewhere
        if rest[:1] == ["v3"] and rest[1:2] in (["api"], ["apis"]):
            group_version = ("", rest[2]) if rest[1] == "api" and len(rest) == 3 else tuple(rest[2:])
            found = self._versions.get(group_version)
            if found is not None:
                return with_etag(request, *await found.document(), "application/json")
        raise no_such_path()

    async def _openapi_v2(self, request: Request) -> Response:
        accepted = request.headers.get(b"accept", b"").decode("latin-1")
        wants_protobuf = any(name in accepted for name in _OPENAPI_V2)
        name = "openapi v2 protobuf" if wants_protobuf else "openapi v2"
        found = self._documents.get(name)
        if found is None:
            found = self._documents[name] = await asyncio.to_thread(self._openapi_v2_document, wants_protobuf)
        # Asked for with an "@", which is no media type: it is answered with a ".".
        return with_etag(request, *found, _OPENAPI_V2[-1] if wants_protobuf else "application/json")

    def _openapi_v2_document(self, protobuf: bool) -> tuple[bytes, str]:
        from haru.kube import openapi
        from haru.kube.openapi_v2 import openapi_v2_document
        from haru.kube.openapi_wire import encode_document

        served = self._served
        whole = openapi_v2_document(
            openapi.openapi_v3_document(group, version, served.kinds) for group, version in served.group_versions
        )
        body = encode_document(whole) if protobuf else orjson.dumps(whole)
        return body, f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'

    def paths(self) -> list[str]:
        """Return the paths of all group versions."""
        roots = ["/api", "/apis"]
        for group, version in (*self._own(self._served.group_versions), *self._aggregator.versions()):
            roots.append(f"/apis/{group}/{version}" if group else f"/api/{version}")
        return roots


def with_etag(request: Request, body: bytes, etag: str, content_type: str) -> Response:
    """The document, or 304 for a client that has it."""
    headers = [(b"etag", etag.encode()), (b"vary", b"Accept")]
    if etag in request.header(b"if-none-match"):
        return Response(304, b"", content_type, headers)
    return Response(200, body, content_type, headers)


@lru_cache(maxsize=64)
def aggregated_profile(accept: str) -> str | None:
    """The profile (mostly none: "") of the aggregated document; None for a client that prefers the legacy ones."""
    for media, parameters in parse_accept(accept):
        if media == "application/json":
            if parameters.get("as") == "APIGroupDiscoveryList":
                if parameters.get("v") == "v2" and parameters.get("g") == "apidiscovery.k8s.io":
                    return parameters.get("profile", "")
                continue
            return None
    return None
