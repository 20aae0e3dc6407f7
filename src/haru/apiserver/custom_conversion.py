"""Custom resources in other versions, by the webhook that their definition names.

A webhook gets what is to be converted in one call, at most a page of a list. Records that are shown are exchanged for
records in the version that was asked for, so that nothing else need know; those that were converted last are kept, as
every watch of a version wants the same ones.
Source: apiextensions.k8s.io/v1 ConversionReview, as behaviour; the words are those of 1.36.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import orjson

from haru.apiserver.objects import decode, encode
from haru.apiserver.resources import Resource
from haru.apiserver.webhook_calls import Caller, WebhookError
from haru.kube.conversion import convert
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.validation.metadata import validate_annotations, validate_labels
from haru.storage import Event, Record

Obj = dict[str, Any]

CALL_SECONDS = 30.0
KEPT_RECORDS = 2048
KEPT_BYTES = 32 * 1024 * 1024
_GROUP = "apiextensions.k8s.io"
_HEAD_BYTES = 512


async def converted(obj: Obj, to: Kind) -> Obj:
    """An object in the version of a kind."""
    if to.custom is None or to.custom.converter is None or obj.get("apiVersion") == to.api_version:
        return convert(obj, to)
    converter: Converter = to.custom.converter
    (found,) = await converter.convert([obj], to)
    return found


async def in_version(records: Sequence[Record], resource: Resource) -> Sequence[Record]:
    """Records as they are shown of a resource: themselves, unless a webhook has to convert them."""
    custom = resource.kind.custom
    if custom is None or custom.converter is None:
        return records
    converter: Converter = custom.converter
    return await converter.records(records, resource.kind)


async def events_in_version(events: Sequence[Event], resource: Resource) -> Sequence[Event]:
    """Events as a watch of a resource shows them."""
    custom = resource.kind.custom
    if custom is None or custom.converter is None or not events:
        return events
    shown = await in_version([record for e in events if (record := e.new or e.old) is not None], resource)
    found = []
    for event, record in zip(events, shown, strict=True):
        new, old = (record, event.old) if event.new is not None else (None, record)
        found.append(Event(event.key, event.revision, old, new))
    return found


class Converter:
    """The webhook of one definition, as it stands in one generation."""

    def __init__(self, definition: Obj, caller: Caller) -> None:
        webhook = definition["spec"]["conversion"]["webhook"]
        self._config: Obj = webhook["clientConfig"]
        self._versions: list[str] = webhook["conversionReviewVersions"]
        self._caller = caller
        self._kept: OrderedDict[tuple[str, int, str], Record] = OrderedDict()
        self._bytes = 0

    async def records(self, records: Sequence[Record], kind: Kind) -> list[Record]:
        """The records with values in the version of a kind. Raises StatusError."""
        head = b'{"apiVersion":"%b",' % kind.api_version.encode()
        found: dict[int, Record] = {}
        missing: list[int] = []
        for place, record in enumerate(records):
            if record.head(_HEAD_BYTES).startswith(head):
                found[place] = record
            elif (kept := self._kept.get((record.key, record.revision, kind.api_version))) is not None:
                found[place] = kept
            else:
                missing.append(place)
        if missing:
            objs = await self.convert([decode(records[place]) for place in missing], kind)
            for place, obj in zip(missing, objs, strict=True):
                found[place] = self._keep(_record(obj, records[place]), kind)
        return [found[place] for place in range(len(records))]

    def _keep(self, record: Record, kind: Kind) -> Record:
        self._kept[record.key, record.revision, kind.api_version] = record
        self._bytes += len(record.value)
        while len(self._kept) > KEPT_RECORDS or self._bytes > KEPT_BYTES:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= len(gone.value)
        return record

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
        for place, (before, after) in enumerate(zip(objs, answers, strict=True)):
            try:
                found.append(_checked(before, after, to))
            except ValueError as error:
                why = f"{failed} returned invalid converted object at index {place}: {error}"
                raise StatusError(500, "", why) from None
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

    Raises ValueError.
    """
    if not isinstance(after, dict):
        raise ValueError("it is no object")
    if after.get("apiVersion") != to.api_version:
        raise ValueError(f"invalid groupVersion (expected {to.api_version}, received {after.get('apiVersion') or ''})")
    if after.get("kind") != before["kind"]:
        raise ValueError(f"invalid kind (expected {before['kind']}, received {after.get('kind') or ''})")
    given = after.get("metadata")
    if not isinstance(given, dict):
        raise ValueError("missing metadata in converted object")
    metadata = dict(before.get("metadata") or {})
    for name, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        left, right = metadata.get(name) or "", given.get(name) or ""
        if left != right:
            raise ValueError(f"must have the same {shown}: {left} != {right}")
    for name, check in (("labels", validate_labels), ("annotations", validate_annotations)):
        value = given.get(name)
        if not value:
            metadata.pop(name, None)
            continue
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise ValueError(f"metadata.{name} must be a map of strings in converted object")
        if value != metadata.get(name) and (errors := check(value, f"metadata.{name}")):
            raise ValueError(", ".join(map(str, errors)))
        metadata[name] = value
    assert to.custom is not None
    try:
        pruned, _ = to.custom.decode({**after, "metadata": metadata}, to)
    except StatusError as error:
        raise ValueError(error.message) from None
    return pruned


def _record(obj: Obj, of: Record) -> Record:
    """A record of another's moment, with another value."""
    value, place = encode(obj)
    return Record(of.key, b"%b%d%b" % (value[:place], of.revision, value[place:]), of.revision)
