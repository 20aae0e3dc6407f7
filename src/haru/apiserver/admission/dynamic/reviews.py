"""AdmissionReview, both ways: what a webhook is told, and what it may answer.

Source: admission.k8s.io/v1 and v1beta1, as behaviour.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

import orjson

from haru.apiserver.admission.dynamic.attributes import Attributes, RequestView
from haru.kube.errors import StatusError, internal_error
from haru.kube.meta import Obj

_GROUP = "admission.k8s.io"
_KNOWN = ("v1", "v1beta1")


class CallFailed(Exception):
    """A webhook could not be asked, or answered something else; `str()` is the reason.

    `failurePolicy` decides what follows.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook answered. `result` is the Status of a refusal, `patch` a JSON patch."""

    allowed: bool
    result: Obj = field(default_factory=dict)
    patch: list[Any] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)


def review_version(hook: Obj) -> str:
    """The first version of AdmissionReview that a webhook and this server know."""
    for version in hook.get("admissionReviewVersions") or ():
        if version in _KNOWN:
            return str(version)
    why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
    raise CallFailed(f"could not create admission objects: {why}")


def review_of(attributes: Attributes, seen: RequestView, version: str, uid: str) -> Obj:
    """The AdmissionReview that is sent."""
    request: Obj = {
        "uid": uid,
        **attributes.request(seen),
        "object": seen.obj,
        "oldObject": seen.old,
    }
    return {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{version}", "request": request}


def read_answer(data: bytes, version: str, uid: str, *, mutating: bool) -> Answer:
    """The answer in a response's body. Raises CallFailed."""
    try:
        review = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        why = f"couldn't get version/kind; json parse error: {error}"
        raise CallFailed(f"failed to call webhook: {why}") from None
    if not isinstance(review, dict):
        raise CallFailed("failed to call webhook: couldn't get version/kind; json parse error: no object")
    try:
        return _answer(review, version, uid, mutating)
    except ValueError as error:
        raise CallFailed(f"received invalid webhook response: {error}") from None


def _answer(review: Obj, version: str, uid: str, mutating: bool) -> Answer:
    response = review.get("response")
    if not isinstance(response, dict):
        raise ValueError("webhook response was absent")
    if version == "v1":
        _check_head(review, response, uid)
    patch, kind = response.get("patch") or "", response.get("patchType")
    if version == "v1":
        _check_patch(patch, kind, mutating)
    if patch and mutating and kind not in (None, "JSONPatch"):
        raise CallFailed(f'unsupported patch type "{kind}"')
    warnings, annotations = response.get("warnings") or [], response.get("auditAnnotations") or {}
    if not isinstance(warnings, list) or not isinstance(annotations, dict):
        raise ValueError("response.warnings must be a list, response.auditAnnotations a map")
    status = response.get("status") or {}
    return Answer(
        bool(response.get("allowed")),
        status if isinstance(status, dict) else {},
        _operations(patch) if patch and mutating and response.get("allowed") else [],
        tuple(map(str, warnings)),
        {str(key): str(value) for key, value in annotations.items()},
    )


def _check_head(review: Obj, response: Obj, uid: str) -> None:
    if response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    given = f"{review.get('apiVersion') or ''}, Kind={review.get('kind') or ''}"
    wanted = f"{_GROUP}/v1, Kind=AdmissionReview"
    if given != wanted:
        raise ValueError(f"expected webhook response of {wanted}, got {given}")


def _check_patch(patch: Any, kind: Any, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise ValueError("validating webhook may not return response.patch")
        if kind is not None:
            raise ValueError("validating webhook may not return response.patchType")
    elif patch and kind is None:
        raise ValueError("webhook returned response.patch but not response.patchType")
    elif kind is not None and not patch:
        raise ValueError("webhook returned response.patchType but not response.patch")
    elif kind == "":
        raise ValueError('webhook returned invalid response.patchType of ""')


def _operations(patch: Any) -> list[Any]:
    """The operations of a patch in base64; a null is none, as webhooks in Go write a list that they never began."""
    try:
        found = orjson.loads(base64.b64decode(patch, validate=True))
    except (TypeError, binascii.Error, orjson.JSONDecodeError) as error:
        raise CallFailed(f"received undecodable patch in webhook response: {error}") from None
    if found is None:
        return []
    if not isinstance(found, list):
        raise CallFailed("received undecodable patch in webhook response: a patch is a list of operations")
    return found


def refusal(name: str, result: Obj) -> StatusError:
    """The answer to the client whose request a webhook refused: its code, reason and message, marked as its own."""
    denied = f'admission webhook "{name}" denied the request'
    message, reason = str(result.get("message") or ""), str(result.get("reason") or "")
    given = result.get("code")
    code = given if isinstance(given, int) and 400 <= given < 600 else 400
    if message or reason:
        text = f"{denied}: {message or reason}"
    else:
        text = f"{denied} without explanation"
    details = result.get("details")
    return StatusError(code, reason, text, details if isinstance(details, dict) else None)


def no_dry_run(name: str) -> StatusError:
    """400: a webhook has side effects, and nothing is to happen."""
    return StatusError(400, "BadRequest", f'admission webhook "{name}" does not support dry run')


def failing_closed(name: str, why: Exception) -> StatusError:
    """500: a webhook that must be asked can not be."""
    return internal_error(f'failed calling webhook "{name}": {why}')
