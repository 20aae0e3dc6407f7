"""The attributes of a request that webhooks and policies are evaluated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from haru.apiserver.apiextensions.reader import converted
from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.auth.user import user_object
from haru.apiserver.registry.resources import Resource
from haru.apiserver.request.call import Call
from haru.cel.admission import SMALL
from haru.cel.libraries import Decide, Question
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.kinds import Kind, subresources_of, ways_of
from haru.kube.meta import Obj, told_name

Id = TypeVar("Id")


@dataclass
class Reinvocation(Generic[Id]):
    """What is remembered of one request between the passes of webhooks or policies over it."""

    willing: set[Id] = field(default_factory=set)
    """Who has run and may run again."""
    again: set[Id] = field(default_factory=set)
    """Who must, since something has changed after it."""
    left: Obj | None = None
    """The object at the end of the last pass."""

    def changed(self) -> None:
        """Let whoever ran before, and wishes to, run again: somebody has changed the object."""
        self.again |= self.willing
        self.willing.clear()


class GroupVersionName(NamedTuple):
    """A kind or a resource: group, version, and the kind's or the resource's name."""

    group: str
    version: str
    name: str

    def of_kind(self) -> Obj:
        """As a GroupVersionKind."""
        return {"group": self.group, "version": self.version, "kind": self.name}

    def of_resource(self) -> Obj:
        """As a GroupVersionResource."""
        return {"group": self.group, "version": self.version, "resource": self.name}


@lru_cache(maxsize=1024)
def _named(group: str, version: str, name: str) -> GroupVersionName:
    return GroupVersionName(group, version, name)


def named(kind: Kind) -> GroupVersionName:
    """The resource of a kind."""
    return _named(kind.group, kind.version, kind.plural)


def kind_named(kind: Kind, subresource: str) -> GroupVersionName:
    """The kind of what is sent to a resource, or to a subresource of it."""
    for each in (*subresources_of(kind), *ways_of(kind)) if subresource else ():
        if each.name == subresource:
            return GroupVersionName(each.group, each.version, each.kind)
    return _named(kind.group, kind.version, kind.kind)


@dataclass
class Attributes:
    """One write, as webhooks and policies are told of it.

    `obj` is what is to be stored (None for a deletion), `old` what is stored (None for a creation), both in the
    version of the request. `name` is empty while the server has yet to make one up.
    """

    authorizer: Authorizer
    call: Call
    operation: str
    name: str
    obj: Obj | None
    old: Obj | None = None
    options: Obj = field(default_factory=dict)
    shown_namespace: Obj | None = None
    """The object's Namespace as expressions see it, once one has asked."""
    asking: tuple[Decide, Question] | None = None
    """What answers for the authorizer, and the request's own resource, once an expression has been evaluated."""
    named: GroupVersionName = field(init=False)
    """The resource's group, version and plural."""
    kind: GroupVersionName = field(init=False)
    """The kind of what is sent."""
    original: Obj | None = field(init=False)
    """The object before any webhook or policy changed it."""
    unread: Obj | None = field(default=None, init=False)
    """The object, where nothing was changed but what the server's own changing plugins do not read."""
    is_small: bool = field(init=False)
    """Whether a new object came in so few bytes that expressions over it are cheap."""
    _requests: dict[tuple[GroupVersionName, GroupVersionName], Obj] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.options = self.options or options_of(self.call, self.operation)
        self.original = self.obj
        self.is_small = self.operation == "CREATE" and 0 < len(self.call.request.read) <= SMALL
        self.named = named(self.resource.kind)
        self.kind = kind_named(self.resource.kind, self.subresource)

    @property
    def resource(self) -> Resource:
        """The resource that is written to."""
        return self.call.resource

    @property
    def subresource(self) -> str:
        """Its subresource; empty for the object itself."""
        return self.call.subresource

    @property
    def is_whole(self) -> bool:
        """Whether objects of the resource's own kind are sent, not bodies of a subresource."""
        return self.kind.name == self.call.resource.kind.kind

    @property
    def is_namespace(self) -> bool:
        """Whether the request is about a Namespace itself."""
        return not self.named.group and self.named.name == "namespaces"

    @property
    def namespace(self) -> str:
        """The request's namespace; a Namespace lies in itself."""
        return self.name if self.is_namespace else self.call.namespace

    def forbidden(self, why: str) -> StatusError:
        """403 for the object of the request."""
        kind = self.call.resource.kind
        return forbidden_error(kind.group, kind.plural, self.name or told_name(self.obj or {}), why)

    def request(self, seen: RequestView) -> Obj:
        """The parts of an AdmissionRequest that webhooks and expressions share. Not to be changed."""
        key = (seen.kind, seen.resource)
        if key not in self._requests:
            self._requests[key] = self._request(seen)
        return self._requests[key]

    def _request(self, seen: RequestView) -> Obj:
        kind, resource = self.kind.of_kind(), self.named.of_resource()
        found: Obj = {
            "kind": kind if seen.kind is self.kind else seen.kind.of_kind(),
            "resource": resource if seen.resource is self.named else seen.resource.of_resource(),
            "requestKind": kind,
            "requestResource": resource,
            "operation": self.operation,
            "userInfo": user_object(self.call.request.user),
            "dryRun": self.call.dry_run,
            "options": self.options or None,
        }
        if self.subresource:
            found["subResource"] = found["requestSubResource"] = self.subresource
        if self.name:
            found["name"] = self.name
        if self.namespace:
            found["namespace"] = self.namespace
        return found


class RequestView(NamedTuple):
    """A request in the version that a webhook or policy matched: its own, or that of an equivalent resource."""

    resource: GroupVersionName
    kind: GroupVersionName
    target: Resource
    obj: Obj | None
    old: Obj | None


def original_view(attributes: Attributes) -> RequestView:
    """A request in the form of its own resource."""
    return RequestView(attributes.named, attributes.kind, attributes.resource, attributes.obj, attributes.old)


async def request_view_as(target: Resource, attributes: Attributes) -> RequestView:
    """A request in the form of a resource."""
    kind, obj, old = target.kind, attributes.obj, attributes.old
    if target is attributes.resource:
        return original_view(attributes)
    if attributes.is_whole:
        obj = None if obj is None else await converted(obj, kind)
        old = None if old is None else await converted(old, kind)
    return RequestView(named(kind), kind_named(kind, attributes.subresource), target, obj, old)


_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


def options_of(call: Call, operation: str, more: Mapping[str, Any] | None = None) -> Obj:
    """The options of a request as an object of meta.k8s.io/v1; a connection has none."""
    if operation == "CONNECT":
        return {}
    found: Obj = {"kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1", **(more or {})}
    if not found.get("dryRun"):
        found.pop("dryRun", None)
    if call.dry_run:
        found["dryRun"] = ["All"]
    if operation != "DELETE" and call.request.query:
        for name in ("fieldManager", "fieldValidation"):
            given = call.request.param(name)
            if given:
                found[name] = given
    return found
