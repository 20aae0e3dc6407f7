"""TokenRequest: a signed token for a service account (KEP 1205)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from haru.apiserver.auth.tokens.claims import Reference
from haru.apiserver.auth.tokens.issuer import AccountTokens
from haru.apiserver.auth.tokens.sources import SignerError
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, read_write_options
from haru.apiserver.request.http import Response, json_response
from haru.kube.errors import (
    FieldError,
    bad_request_error,
    conflict_error,
    internal_error,
    invalid,
    invalid_error,
    not_found_error,
)
from haru.kube.kinds import by_kind
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.kube.patch.apply import ManagedWrite, track_update
from haru.kube.patch.fieldset import FieldSet
from haru.kube.schema import type_of

_KIND = by_kind("authentication.k8s.io/v1", "TokenRequest")
DEFAULT_SECONDS = 3600
LEAST_SECONDS = 600
MOST_SECONDS = 1 << 32
_BOUND = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_ISSUED = "authentication.kubernetes.io/issued-credential-id"
_LOG = logging.getLogger("haru.apiserver")


async def issue_token(tokens: AccountTokens, call: Call) -> Response:
    """POST of a TokenRequest below its service account."""
    assert _KIND is not None
    read_write_options(call)
    request = await bodies.read_object(call.request, _KIND)
    _check_names(call, request.get("metadata") or {})
    request["spec"] = {"expirationSeconds": DEFAULT_SECONDS, **(request.get("spec") or {})}
    await call.admission.admit_posted(call, call.name)
    await call.admission.admit_token(call, request["spec"])
    if call.chain is not None:
        request = await call.chain.change_token(call, _posted(call, request))
        _check_names(call, request.get("metadata") or {})
    account = await call.objects.read("", "serviceaccounts", call.namespace, call.name)
    if account is None:
        raise call.not_found()
    spec, given = request.setdefault("spec", {}), request.get("metadata") or {}
    _check_uid(call, account, given.get("uid") or "")
    names = {"name": call.name, "namespace": call.namespace, "uid": account["metadata"]["uid"]}
    metadata = request["metadata"] = {**names, **_members(given), "creationTimestamp": call.now}
    owners = _owners(call, request)  # nobody's is what is filled in
    audiences = spec["audiences"] = spec.get("audiences") or list(tokens.audiences)
    seconds = _seconds(call, spec.get("expirationSeconds"), tokens.max_seconds)
    if call.chain is not None:
        await call.chain.judge_token(call, _whole(request))
    if not tokens.can_sign:
        raise bad_request_error("this server has no key to sign ServiceAccount tokens with")
    bound = await _bound(call, spec.get("boundObjectRef"))
    try:
        issued = await tokens.issue(account, audiences, seconds, bound)
    except SignerError as error:
        _LOG.error("no token for ServiceAccount %s/%s: %s", call.namespace, call.name, error)
        raise internal_error(f"failed to generate token: {error}") from None
    call.request.annotations[_ISSUED] = f"JTI={issued.token_id}"
    metadata["managedFields"] = owners
    spec.update(audiences=audiences, expirationSeconds=seconds)
    spec.setdefault("boundObjectRef", None)
    stamp = format_time(datetime.fromtimestamp(issued.expires, UTC))
    request["status"] = {"token": issued.token, "expirationTimestamp": stamp}
    return json_response(request, 201)


def _posted(call: Call, request: Obj) -> Obj:
    """A request as those see it who change it: with its namespace and its owners, and nothing filled in."""
    metadata = {"namespace": call.namespace, **_members(request.get("metadata") or {})}
    return _whole({**request, "metadata": {**metadata, "managedFields": _owners(call, request)}})


def _whole(request: Obj) -> Obj:
    """A request with all that is written of it without a value."""
    spec = {"audiences": None, "boundObjectRef": None, **request["spec"]}
    return {**request, "spec": spec, "status": {"token": "", "expirationTimestamp": None}}


def _owners(call: Call, request: Obj) -> list[Obj] | None:
    """Who set what of a request."""
    assert _KIND is not None
    asked = {**request, "spec": _members(request["spec"]), "status": _members(request.get("status") or {})}
    write = ManagedWrite(call.manager, _KIND.api_version, type_of(_KIND), "token", call.now, FieldSet())
    found: list[Obj] | None = track_update(None, asked, write)["metadata"].get("managedFields")
    return found


def _members(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if value not in (None, "")}


def _check_names(call: Call, metadata: Obj) -> None:
    """What the body says of the account must be what the path says."""
    if (metadata.get("namespace") or call.namespace) != call.namespace:
        raise bad_request_error("the namespace of the provided object does not match the namespace sent on the request")
    given = metadata.get("name")
    if given and given != call.name:
        errors = [invalid("metadata.name", given, "must match the service account name if specified")]
        raise invalid_error("authentication.k8s.io", "TokenRequest", call.name, errors)


def _check_uid(call: Call, account: Obj, given: str) -> None:
    uid = account["metadata"]["uid"]
    if given and given != uid:
        why = f"the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        raise conflict_error("authentication.k8s.io", "TokenRequest", call.name, why)


def _seconds(call: Call, given: int | None, most: int) -> int:
    """The lifetime of the token: as requested, shortened to the maximum (0: none)."""
    seconds = DEFAULT_SECONDS if given is None else given
    errors: list[FieldError] = []
    if seconds < LEAST_SECONDS:
        errors.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    elif seconds > MOST_SECONDS:
        errors.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds"))
    if errors:
        raise invalid_error("authentication.k8s.io", "TokenRequest", "", errors)
    if most and seconds > most:
        call.request.warnings.append(f"requested expiration of {seconds} seconds shortened to {most} seconds")
        return most
    return seconds


async def _bound(call: Call, reference: Obj | None) -> Mapping[str, Reference]:
    """The objects that the token is bound to: they must exist, with the given uid; a pod brings its node."""
    if reference is None:
        return {}
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    plural = _BOUND.get(kind)
    group, _, version = (reference.get("apiVersion") or "").rpartition("/")
    if plural is None or group:  # 1.36 does not look at the version
        raise bad_request_error(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    if not name:
        raise bad_request_error("Name parameter required.")
    found = await call.objects.read("", plural, "" if kind == "Node" else call.namespace, name)
    if found is None:
        raise not_found_error("", plural, name)
    uid = found["metadata"]["uid"]
    bound = {kind.lower(): Reference(name, uid)}
    if kind == "Pod":
        spec = found.get("spec") or {}
        if (spec.get("serviceAccountName") or "default") != call.name:
            why = "to pod running with different serviceaccount name."
            raise bad_request_error(f'cannot bind token for serviceaccount "{call.name}" {why}')
        if node := spec.get("nodeName"):
            there = await call.objects.peek("", "nodes", "", node)
            bound["node"] = Reference(node, there["metadata"]["uid"] if there else "")
    if reference.get("uid") and reference["uid"] != uid:
        why = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record"
        raise conflict_error("", kind, name, f"{why}. The object might have been deleted and then recreated")
    return bound
