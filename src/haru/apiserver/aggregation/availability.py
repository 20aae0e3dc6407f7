"""Whether the extension API server behind an APIService can be used: its Service, its endpoints, its discovery.

`obstacle` decides by what is stored; `ask` asks the server for the document of its group version, which is kept for
discovery.
Source: kube-aggregator's remote availability controller, as behaviour: conditions, reasons and messages are its.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from haru.apiserver.aggregation.client import ExtensionClient, ServiceReference, reference_of
from haru.apiserver.upstream_session import unreached
from haru.event_loop import cancelled, imported
from haru.kube.api_services import AVAILABLE, group_version_of
from haru.kube.errors import StatusError
from haru.kube.meta import Obj

ATTEMPTS = 3
ASK_SECONDS = 5.0
DOCUMENT_BYTES = 4 * 1024 * 1024
_OPENAPI = "/openapi/v3"
_HEADERS = (
    ("Accept", "application/json"),
    ("User-Agent", "haru-apiserver"),
    ("X-Remote-User", "system:kube-aggregator"),
    ("X-Remote-Group", "system:masters"),
)


class DiscoveryFailed(Exception):
    """An extension API server gave no usable answer; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an extension API server serves: the resources of its document, and the URL of its OpenAPI, if it has one."""

    resources: list[Obj] = field(default_factory=list)
    openapi: str = ""


def condition(status: str, reason: str, message: str) -> Obj:
    """The condition Available."""
    return {"type": AVAILABLE, "status": status, "reason": reason, "message": message}


PASSED = condition("True", "Passed", "all checks passed")


def obstacle(reference: ServiceReference, service: Obj | None, slices: Iterable[Obj]) -> Obj | None:
    """The condition for what stored objects lack; None: the server can be queried. `slices`: the Service's."""
    named = f'service/{reference.name} in "{reference.namespace}"'
    if service is None:
        return condition("False", "ServiceNotFound", f"{named} is not present")
    spec = service.get("spec") or {}
    if (spec.get("type") or "ClusterIP") != "ClusterIP":
        return None
    port = next((each for each in spec.get("ports") or () if each.get("port") == reference.port), None)
    if port is None:
        return condition("False", "ServicePortError", f"{named} is not listening on port {reference.port}")
    found, name = list(slices), port.get("name") or ""
    if not found:
        return condition("False", "EndpointsNotFound", f"cannot find endpointslices for {named}")
    if not any(_is_active(each, name) for each in found):
        why = f'endpointslices for {named} have no addresses with port name "{name}"'
        return condition("False", "MissingEndpoints", why)
    return None


def _is_active(slice_: Obj, port: str) -> bool:
    endpoints, ports = slice_.get("endpoints") or (), slice_.get("ports") or ()
    ready = any((each.get("conditions") or {}).get("ready") is not False for each in endpoints)
    return ready and any((each.get("name") or "") == port and each.get("port") for each in ports)


async def ask(link: ExtensionClient, service: Obj) -> Offer:
    """What the server offers; tried at a few of its endpoints at once. Raises Unanswered."""
    group, version = group_version_of(service)
    path = f"/apis/{group}/{version}"
    url = f"{reference_of(service).url}{path}"
    attempts = {asyncio.create_task(_document(link, service, path)) for _ in range(ATTEMPTS)}
    why, waiting = "", attempts
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                # It is not raised here: an error that knows this frame, which knows the attempt, would be garbage.
                if (error := attempt.exception()) is None:
                    return Offer(_resources(attempt.result()), await _openapi(link, service, path))
                if not isinstance(error, DiscoveryFailed):
                    raise error
                why = f"failing or missing response from {url}: {error}"
    finally:
        await cancelled(*attempts)
    raise DiscoveryFailed(why)


async def _document(link: ExtensionClient, service: Obj, path: str) -> Any:
    """A JSON document of the server, asked for in its own name. Raises Unanswered."""
    await imported("aiohttp")
    import aiohttp

    try:
        async with asyncio.timeout(ASK_SECONDS):
            answer = await link.request(service, "GET", path, _HEADERS)
            try:
                if not 200 <= answer.status < 300:
                    raise DiscoveryFailed(f"bad status from {reference_of(service).url}{path}: {answer.status}")
                data = b""
                async for piece in answer.content.iter_any():
                    data += piece
                    if len(data) > DOCUMENT_BYTES:
                        raise DiscoveryFailed(f"the answer is larger than {DOCUMENT_BYTES} bytes")
            finally:
                answer.close()
        return orjson.loads(data)
    except TimeoutError:
        raise DiscoveryFailed(f"no answer within {ASK_SECONDS:g} s") from None
    except orjson.JSONDecodeError:
        raise DiscoveryFailed("the answer is no JSON") from None
    except (StatusError, aiohttp.ClientError, OSError, ValueError) as error:
        raise DiscoveryFailed(unreached(error)) from None


def _resources(document: Any) -> list[Obj]:
    """The well-formed entries of an APIResourceList; none for another value."""
    listed = document.get("resources") if isinstance(document, dict) else None
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return [each for each in found if isinstance(each.get("name"), str) and isinstance(each.get("kind"), str)]


async def _openapi(link: ExtensionClient, service: Obj, path: str) -> str:
    """Where the server says that the OpenAPI of the group version is; empty where it has none."""
    try:
        index = await _document(link, service, _OPENAPI)
        told = index["paths"][path.removeprefix("/")]["serverRelativeURL"]
    except (DiscoveryFailed, KeyError, TypeError):
        return ""
    return told if isinstance(told, str) and told.startswith(f"{_OPENAPI}{path}") and told.isprintable() else ""
