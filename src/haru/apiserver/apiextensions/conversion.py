"""Custom resources in other versions, by the webhook that their definition names.

A webhook gets what is to be converted in one call, at most a page of a list.
Source: apiextensions.k8s.io/v1 ConversionReview, as behaviour; the words are those of 1.36.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from haru.apiserver.webhook_client import WebhookClient, WebhookError
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.validation.metadata import validate_annotations, validate_labels

CALL_SECONDS = 30.0
_GROUP = "apiextensions.k8s.io"


class Converter:
    """The webhook of one definition, as it stands in one generation."""

    def __init__(self, definition: Obj, caller: WebhookClient) -> None:
        webhook = definition["spec"]["conversion"]["webhook"]
        self._config: Obj = webhook["clientConfig"]
        self._versions: list[str] = webhook["conversionReviewVersions"]
        self._caller = caller

    async def convert(self, objs: Sequence[Obj], to: Kind) -> list[Obj]:
        """Objects in the version of a kind. Raises StatusError."""
        source = f"{objs[0]['apiVersion']}, Kind={objs[0]['kind']}"
        failed = f"conversion webhook for {source}"
        try:
            answers = await self._ask(objs, to.api_version)
        except (WebhookError, ValueError) as error:
            raise StatusError(500, "", f"{failed} failed: {error}") from None
        if len(answers) != len(objs):
            raise StatusError(500, "", f"{failed} returned {len(answers)} objects, expected {len(objs)}")
        found = []
        for before, after in zip(objs, answers, strict=True):
            try:
                found.append(_checked(before, after, to))
            except ValueError as error:
                of = f"{before['apiVersion']}, Kind={before['kind']}"
                raise StatusError(500, "", f"conversion webhook for {of} returned invalid {error}") from None
        return found

    async def _ask(self, objs: Sequence[Obj], version: str) -> list[Any]:
        known = next((each for each in self._versions if each in ("v1", "v1beta1")), None)
        if known is None:
            raise ValueError("no supported conversion review versions")
        uid = str(uuid.uuid4())
        request = {"uid": uid, "desiredAPIVersion": version, "objects": list(objs)}
        review = {"kind": "ConversionReview", "apiVersion": f"{_GROUP}/{known}", "request": request}
        data = await self._caller.post(self._config, orjson.dumps(review), CALL_SECONDS)
        try:
            answer = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"couldn't get version/kind; json parse error: {error}") from None
        return _objects(answer if isinstance(answer, dict) else {}, known, uid)


def _objects(answer: Obj, version: str, uid: str) -> list[Any]:
    """The converted objects of a ConversionReview. Raises ValueError."""
    response = answer.get("response")
    if version == "v1":
        given = f"{answer.get('apiVersion') or ''}, Kind={answer.get('kind') or ''}"
        wanted = f"{_GROUP}/v1, Kind=ConversionReview"
        if given != wanted:
            raise ValueError(f"expected webhook response of {wanted}, got {given}")
    if not isinstance(response, dict):
        raise ValueError("no response provided")
    if version == "v1" and response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result") or {}
    status = result.get("status") if isinstance(result, dict) else None
    if status != "Success":
        raise ValueError(
            str(result.get("message") or "") or f"response.result.status was '{status or ''}', not 'Success'"
        )
    found = response.get("convertedObjects")
    return found if isinstance(found, list) else []


def _checked(before: Obj, after: Any, to: Kind) -> Obj:
    """A converted object: what it is is kept but for labels and annotations, and what the schema lacks is dropped.

    Raises ValueError that says what is invalid; it tells of each object by itself, as 1.36 has them converted.
    """
    if not isinstance(after, dict):
        raise ValueError("object at index 0: it is no object")
    for member, what, wanted in (
        ("apiVersion", "groupVersion", to.api_version),
        ("kind", "kind", before["kind"]),
    ):
        if (got := after.get(member)) != wanted:
            raise ValueError(f"object at index 0: invalid {what} (expected {wanted}, received {got or ''})")
    given = after.get("metadata")
    given = given if isinstance(given, dict) else {}
    metadata = dict(before.get("metadata") or {})
    for name, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        left, right = metadata.get(name) or "", given.get(name) or ""
        if left != right:
            raise ValueError(f"object: must have the same {shown}: {left} != {right}")
    for name, check in (("labels", validate_labels), ("annotations", validate_annotations)):
        value = given.get(name)
        if not value:
            metadata.pop(name, None)
            continue
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise ValueError(f"metadata: metadata.{name} must be a map of strings in converted object")
        if value != metadata.get(name) and (errors := check(value, f"metadata.{name}")):
            raise ValueError(f"metadata: {', '.join(map(str, errors))}")
        metadata[name] = value
    assert to.custom is not None
    try:
        pruned, _ = to.custom.decode({**after, "metadata": metadata}, to)
    except StatusError as error:
        raise ValueError(f"object: {error.message}") from None
    return pruned
