"""TokenRequest: a signed token for a service account (KEP 1205)."""

from __future__ import annotations

from datetime import UTC, datetime

from haru.apiserver import bodies
from haru.apiserver.admission import node_restriction
from haru.apiserver.call import Call, read_write_options
from haru.apiserver.core import Obj
from haru.apiserver.http import Response, json_response
from haru.apiserver.tokens import Bound, audiences_of, issue
from haru.kube.errors import FieldError, bad_request_error, conflict_error, invalid, invalid_error, not_found_error
from haru.kube.kinds import by_kind
from haru.kube.names import format_time

_KIND = by_kind("authentication.k8s.io/v1", "TokenRequest")
DEFAULT_SECONDS = 3600
LEAST_SECONDS = 600
MOST_SECONDS = 1 << 32
_BOUND = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


async def issue_token(call: Call) -> Response:
    """POST of a TokenRequest below its service account."""
    assert _KIND is not None
    read_write_options(call)
    request = await bodies.read_object(call.request, _KIND)
    if call.chain is not None:
        request = await call.chain.about_subresource(call, request)
    spec = request.setdefault("spec", {})
    account = await call.core.read("", "serviceaccounts", call.namespace, call.name)
    if account is None:
        raise call.not_found()
    if not call.core.config.service_account_key_pem:
        raise bad_request_error("this server has no key to sign ServiceAccount tokens with")
    seconds = spec.get("expirationSeconds")
    seconds = DEFAULT_SECONDS if seconds is None else seconds
    _check_seconds(seconds)
    audiences = spec.get("audiences") or audiences_of(call.core)
    await node_restriction.check_token(call, spec.get("boundObjectRef"))
    bound = await _bound(call, spec.get("boundObjectRef"))
    token, expires = issue(call.core, account, audiences, seconds, bound)
    metadata = request.setdefault("metadata", {})
    metadata.update(name=call.name, namespace=call.namespace, creationTimestamp=call.now)
    spec.update(audiences=audiences, expirationSeconds=seconds)
    spec.setdefault("boundObjectRef", None)
    stamp = format_time(datetime.fromtimestamp(expires, UTC))
    request["status"] = {"token": token, "expirationTimestamp": stamp}
    return json_response(request, 201)


def _check_seconds(seconds: int) -> None:
    errors: list[FieldError] = []
    if seconds < LEAST_SECONDS:
        errors.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    elif seconds > MOST_SECONDS:
        errors.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds"))
    if errors:
        raise invalid_error("authentication.k8s.io", "TokenRequest", "", errors)


async def _bound(call: Call, reference: Obj | None) -> Bound | None:
    """What the token is tied to: it must exist, with the uid that was given."""
    if not reference:
        return None
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    plural = _BOUND.get(kind)
    if plural is None or reference.get("apiVersion", "v1") != "v1":
        raise bad_request_error(f"cannot bind token for serviceaccount to a type {kind}")
    found = await call.core.read("", plural, "" if kind == "Node" else call.namespace, name)
    if found is None:
        raise not_found_error("", plural, name)
    uid = found["metadata"]["uid"]
    if reference.get("uid") and reference["uid"] != uid:
        why = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record ({uid})"
        raise conflict_error("", plural, name, why)
    return Bound(kind.lower(), name, uid)
