"""Kinds that are answered, not stored: reviews, and `bindings`.

Sources: authentication.k8s.io/v1 and authorization.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from haru.apiserver.auth.authentication import Authenticator
from haru.apiserver.auth.authorization import Authorizer, Decision
from haru.apiserver.auth.node_authorizer import Attributes, node_of
from haru.apiserver.auth.tokens.validation import InvalidToken
from haru.apiserver.auth.user import UserInfo, user_object
from haru.apiserver.encoding.rendering import render_object
from haru.apiserver.registry.object_metadata import drop_empty, drop_repeated_owners, place_in_namespace
from haru.apiserver.registry.subresources.binding import bind
from haru.apiserver.registry.write import managed_write
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, read_write_options
from haru.apiserver.request.http import Response
from haru.kube.errors import StatusError, aggregate, bad_request_error
from haru.kube.json_form import json_form
from haru.kube.meta import Obj
from haru.kube.patch.apply import track_update
from haru.kube.patch.fieldset import FieldSet
from haru.kube.selectors import FieldSelector, label_selector_text, parse_field_selector, parse_label_selector
from haru.kube.validation.reviews import validate_access_review


async def _read(call: Call) -> Obj:
    read_write_options(call)
    obj = await bodies.read_object(call.request, call.resource.kind)
    metadata = obj.setdefault("metadata", {})
    place_in_namespace(call, metadata)
    drop_repeated_owners(call, metadata)
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "uid", "selfLink"):
        metadata.pop(name, None)
    drop_empty(metadata)
    return json_form(obj, call.resource.kind)


def _tracked(call: Call, obj: Obj) -> Obj:
    """A review with the owner of its fields, of the status as well: nothing resets it before it is answered."""
    return track_update(None, obj, replace(managed_write(call), reset=FieldSet()))


async def review_token(authenticator: Authenticator, call: Call) -> Response:
    """TokenReview: whose token is this."""
    obj = _tracked(call, await _read(call))
    spec = obj.get("spec") or {}
    token, audiences = spec.get("token") or "", spec.get("audiences") or []
    if not token:
        raise bad_request_error("token is required for TokenReview in authentication")
    error = "invalid bearer token"
    found: tuple[UserInfo, Sequence[str]] | None = None
    try:
        found = await authenticator.review(token, audiences)
    except InvalidToken as reason:
        error = f"[{error}, {reason}]"
    if found is None:
        given = {name: value for name, value in (obj.get("status") or {}).items() if name != "authenticated"}
        obj["status"] = {"user": {}, **given, "error": error}
    else:
        obj["status"] = {"authenticated": True, "user": user_object(found[0]), "audiences": list(found[1])}
    return render_object(call, None, obj, 201)


async def review_self(call: Call) -> Response:
    """SelfSubjectReview: who am I."""
    obj = await _read(call)
    metadata, status = {"creationTimestamp": call.now}, {"userInfo": user_object(call.request.user)}
    return render_object(call, None, {**_type_of(obj), "metadata": metadata, "status": status}, 201)


async def _decide(authorizer: Authorizer, user: UserInfo, spec: Mapping[str, Any]) -> Obj:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if path:
        return _answer(authorizer.decide_path(user, path.get("verb") or "", path.get("path") or ""))
    wanted = resource or {}
    node, errors = _selected(wanted)
    asked = Attributes(
        wanted.get("verb") or "",
        wanted.get("group") or "",
        wanted.get("resource") or "",
        wanted.get("subresource") or "",
        wanted.get("namespace") or "",
        wanted.get("name") or "",
        node,
    )
    await authorizer.prepare(user, asked)
    return _answer(authorizer.decide(user, asked)) | ({"evaluationError": "; ".join(errors)} if errors else {})


def _answer(decision: Decision) -> Obj:
    return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _selected(wanted: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The node that a field selector demands, and which selectors cannot be read, or not as a whole."""
    node, errors = "", []
    for name, parse in (("fieldSelector", parse_field_selector), ("labelSelector", parse_label_selector)):
        selector = wanted.get(name) or {}
        requirements = selector.get("requirements") or ()
        good = [one for one in requirements if _is_readable(one, name)]
        how = "" if len(good) == len(requirements) else "partially ignored" if good else "ignored"
        try:
            raw = parse(selector.get("rawSelector") or "")
        except StatusError:
            how = "ignored"
        else:
            if isinstance(raw, FieldSelector):
                node = raw.exact("spec.nodeName") or ""
        if how:
            errors.append(f"spec.resourceAttributes.{name} {how} due to parse error")
        for one in good if name == "fieldSelector" else ():
            if one.get("operator") == "In" and one.get("key") == "spec.nodeName":
                node = one["values"][0]
    return node, errors


def _is_readable(requirement: Obj, name: str) -> bool:
    """Whether the authorizer can look at a requirement of a selector."""
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if name == "fieldSelector":
        return operator in ("In", "NotIn") and len(values) == 1
    try:
        parse_label_selector(label_selector_text({"matchExpressions": [requirement]}))
    except (StatusError, KeyError):
        return False
    return True


async def review_own_access(authorizer: Authorizer, call: Call) -> Response:
    """SelfSubjectAccessReview: may I."""
    obj = await _read_access_review(call)
    obj["status"] = await _decide(authorizer, call.request.user, obj["spec"])
    return render_object(call, None, obj, 201)


async def review_access(authorizer: Authorizer, call: Call) -> Response:
    """SubjectAccessReview and LocalSubjectAccessReview: may they."""
    obj = await _read_access_review(call)
    spec = obj["spec"]
    user = UserInfo(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "")
    obj["status"] = await _decide(authorizer, user, spec)
    return render_object(call, None, obj, 201)


async def _read_access_review(call: Call) -> Obj:
    obj = await _read(call)
    if errors := validate_access_review(obj, call.resource.kind):
        raise call.invalid("", errors)
    return _tracked(call, obj)


async def review_own_rules(authorizer: Authorizer, call: Call) -> Response:
    """SelfSubjectRulesReview: what may I do here."""
    obj = await _read(call)
    namespace = (obj.get("spec") or {}).get("namespace") or ""
    if not namespace:
        raise bad_request_error("no namespace on request")
    rules = authorizer.rules(call.request.user, namespace)
    status: Obj = {
        "resourceRules": [r for r in rules if r.get("resources")],
        "nonResourceRules": [
            {"verbs": r["verbs"], "nonResourceURLs": r["nonResourceURLs"]} for r in rules if r.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
    errors = authorizer.missing_roles(call.request.user, namespace)
    if node_of(call.request.user) is not None:
        status["incomplete"] = True
        errors.insert(0, "node authorizer does not support user rule resolution")
    if errors:
        status["evaluationError"] = aggregate(errors)
    return render_object(call, None, {**_type_of(obj), "metadata": {}, "spec": {}, "status": status}, 201)


def _type_of(obj: Obj) -> Obj:
    """What an answer has of a question that it does not repeat."""
    return {member: obj[member] for member in ("kind", "apiVersion")}


def review_handlers(
    authenticator: Authenticator, authorizer: Authorizer
) -> Mapping[str, Callable[[Call], Awaitable[Response]]]:
    """Return the handlers of the kinds that are answered and not stored, by plural name."""
    access = partial(review_access, authorizer)
    return {
        "bindings": bind,
        "localsubjectaccessreviews": access,
        "selfsubjectaccessreviews": partial(review_own_access, authorizer),
        "selfsubjectreviews": review_self,
        "selfsubjectrulesreviews": partial(review_own_rules, authorizer),
        "subjectaccessreviews": access,
        "tokenreviews": partial(review_token, authenticator),
    }
