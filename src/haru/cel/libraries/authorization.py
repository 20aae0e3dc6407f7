"""The authorizer of admission: `authorizer.group("apps").resource("deployments").check("create").allowed()`.

The value behind the variable `authorizer` brings a function that decides; everything else only collects what to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.overloads import Overload, member
from haru.cel.types import BOOL, STRING, struct

AUTHORIZER = struct("kubernetes.authorization.Authorizer")
PATH_CHECK = struct("kubernetes.authorization.PathCheck")
GROUP_CHECK = struct("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = struct("kubernetes.authorization.ResourceCheck")
DECISION = struct("kubernetes.authorization.Decision")


class Question(NamedTuple):
    """A question to the authorizer. `service_account` ("namespace", "name") takes the place of the requesting user."""

    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    verb: str = ""
    service_account: tuple[str, str] | None = None
    field_selector: str = ""
    label_selector: str = ""


class Decision:
    """The answer."""

    __slots__ = ("allowed", "error", "reason")
    cel_type = DECISION

    def __init__(self, allowed: bool, reason: str = "", error: str = "") -> None:
        self.allowed = allowed
        self.reason = reason
        self.error = error


Decide = Callable[[Question], Decision]


class _Asking:
    __slots__ = ("decide", "question")

    def __init__(self, decide: Decide, question: Question) -> None:
        self.decide = decide
        self.question = question


class Authorizer(_Asking):
    """The value of the variable `authorizer`."""

    __slots__ = ()
    cel_type = AUTHORIZER

    def __init__(self, decide: Decide, question: Question = Question()) -> None:  # noqa: B008 - immutable
        super().__init__(decide, question)


class PathCheck(_Asking):
    """About to ask for a path."""

    __slots__ = ()
    cel_type = PATH_CHECK


class GroupCheck(_Asking):
    """About to ask for something in an API group."""

    __slots__ = ()
    cel_type = GROUP_CHECK


class ResourceCheck(_Asking):
    """About to ask for a resource."""

    __slots__ = ()
    cel_type = RESOURCE_CHECK


def _path(asking: Authorizer, path: str) -> PathCheck:
    if not path:
        raise EvaluationError("path must not be empty")
    return PathCheck(asking.decide, asking.question._replace(path=path))


def _group(asking: Authorizer, group: str) -> GroupCheck:
    return GroupCheck(asking.decide, asking.question._replace(group=group))


def _service_account(asking: Authorizer, namespace: str, name: str) -> Authorizer:
    from haru.kube.names import is_dns1123_label, is_dns1123_subdomain  # imports slowly, and is needed rarely

    if is_dns1123_subdomain(name):
        raise EvaluationError("Invalid service account name")
    if is_dns1123_label(namespace):
        raise EvaluationError("Invalid service account namespace")
    return Authorizer(asking.decide, asking.question._replace(service_account=(namespace, name)))


def _resource(asking: GroupCheck, resource: str) -> ResourceCheck:
    if not resource:
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(asking.decide, asking.question._replace(resource=resource))


def _narrowing(overload: str, field: str) -> tuple[Overload]:
    def narrow(asking: ResourceCheck, value: str) -> ResourceCheck:
        values: dict[str, Any] = {field: value}
        return ResourceCheck(asking.decide, asking.question._replace(**values))

    return (member(overload, (RESOURCE_CHECK, STRING), RESOURCE_CHECK, narrow),)


def _check(asking: _Asking, verb: str) -> Decision:
    return asking.decide(asking.question._replace(verb=verb))


AUTHORIZATION = Library(
    "kubernetes.authz",
    {
        "path": (member("authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path),),
        "group": (member("authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, _group),),
        "serviceAccount": (
            member("authorizer_serviceaccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, _service_account),
        ),
        "resource": (member("groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource),),
        "subresource": _narrowing("resourcecheck_subresource", "subresource"),
        "namespace": _narrowing("resourcecheck_namespace", "namespace"),
        "name": _narrowing("resourcecheck_name", "name"),
        "fieldSelector": _narrowing("authorizer_fieldselector", "field_selector"),
        "labelSelector": _narrowing("authorizer_labelselector", "label_selector"),
        "check": (
            member("pathcheck_check", (PATH_CHECK, STRING), DECISION, _check),
            member("resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check),
        ),
        "errored": (member("decision_errored", (DECISION,), BOOL, lambda decision: bool(decision.error)),),
        "error": (member("decision_error", (DECISION,), STRING, lambda decision: decision.error),),
        "allowed": (member("decision_allowed", (DECISION,), BOOL, lambda decision: decision.allowed),),
        "reason": (member("decision_reason", (DECISION,), STRING, lambda decision: decision.reason),),
    },
    types=(AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION),
)
