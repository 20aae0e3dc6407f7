"""Parse a path that this server does not serve, as Kubernetes parses any path below /api and /apis.

Nothing is known of the resource, so what is a name and what a subresource is told by the place in the path alone. Paths
that would be read otherwise elsewhere (empty, `.` and `..` segments, an escaped slash, a control character) name
nothing.
Source: apiserver RequestInfo, as behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from haru.apiserver.peers.counts import Gvr

_LOOSE = frozenset(("", ".", ".."))
_SAFE = ":@!$&'()*+,;=-._~"


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What a request is for: a resource in a version, and as much as the path says beyond that."""

    gvr: Gvr
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """The older form `…/watch/…`."""


def resource_request_of(path: str) -> ResourceRequest | None:
    """What a (decoded) path names; None: no resource."""
    segments = path.strip("/").split("/")
    if _LOOSE & set(segments) or not path.isprintable() or "%" in path or "\\" in path:
        return None
    if len(segments) >= 3 and segments[0] == "api":
        group, version, rest = "", segments[1], segments[2:]
    elif len(segments) >= 4 and segments[0] == "apis":
        group, version, rest = segments[1], segments[2], segments[3:]
    else:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    rest = rest[1:] if watch else rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    name, subresource = [*rest[1:3], "", ""][:2]
    return ResourceRequest((group, version, rest[0]), namespace, name, subresource, watch)


def target_of(path: str, query: bytes) -> str:
    """The path and query as they are sent on: encoded anew, the parameters in the order of their names."""
    encoded = quote(path, safe=f"/{_SAFE}")
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    if not pairs:
        return encoded
    pairs.sort(key=lambda pair: pair[0])
    return f"{encoded}?{urlencode(pairs, quote_via=quote, errors='surrogateescape')}"
