"""The audit attributes of a request, read from its path alone: it may name what is not served, and may be refused.

Source: k8s.io/apiserver RequestInfo, as behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.apiserver.request.http import TRUE, Request

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class AuditAttributes:
    """A request for a resource, or (without `version`) for a path that is none."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def is_resource(self) -> bool:
        """Whether it is for a resource."""
        return bool(self.version)


def audit_attributes(request: Request) -> AuditAttributes:
    """Verb and object of a request."""
    parts = request.path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return AuditAttributes(request.method.lower(), request.path)
    watched = rest[0] == "watch" and len(rest) > 1
    rest = rest[1:] if watched else rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        # Below a namespace are its objects, but for its own two subresources.
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    resource, name, subresource = [*rest, "", ""][:3]
    verb = "watch" if watched else _verb(request, bool(name))
    return AuditAttributes(verb, request.path, group, version, resource, subresource, namespace, name)


def _verb(request: Request, named: bool) -> str:
    method = request.method
    if method in ("GET", "HEAD"):
        if named:
            return "get"
        wished = (request.query.get("watch") or ["false"])[0]
        return "watch" if wished in TRUE or wished == "" else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _VERBS.get(method, method.lower())
