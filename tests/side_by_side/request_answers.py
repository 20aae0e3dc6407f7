"""What a server answered, without what differs from run to run, and in what two answers differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from request_documents import about_custom
from request_parts import PROTOBUF, Request

from haru.kube import yaml
from haru.kube.kinds import by_kind
from haru.kube.wire import decode_protobuf
from protobuf_wire import chunk, fields

Obj = dict[str, Any]

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DAYS = "|".join(f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}" for days in (-1, 0, 1))
_TIME = re.compile(rf"({_DAYS})T\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_DRAWN = "5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11"
_TEXTS = [
    (UUID, lambda found: found.group() if found.group() == _DRAWN else "UID"),
    (_TIME, lambda found: "MICROTIME" if found.group(2) else "TIME"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), lambda _: "TOKEN"),
    (re.compile(r"\bselfType\d+"), lambda _: "selfType"),
    (re.compile(r"kube-api-access-[a-z0-9]{5}"), lambda _: "kube-api-access-*"),
    (re.compile(r"\bg-[a-z0-9]{5}\b"), lambda _: "g-*"),
    (re.compile(r"\bx{50,}[a-z0-9]{5}\b"), lambda _: "x-*"),
    (re.compile(r"Key: (/registry)?/"), lambda _: "Key: /"),
    (re.compile(r"(ResourceVersion in (the precondition|record) \()\d+"), lambda found: found.group(1) + "RV"),
    (re.compile(r"(ResourceVersion in (precondition|object meta): )\d+"), lambda found: found.group(1) + "RV"),
    (re.compile(r"(failed to allocate IP )[0-9.]+"), lambda found: found.group(1) + "IP"),
    (re.compile(r"^(\d+:)\d{5}(/(TCP|UDP|SCTP))"), lambda found: f"{found.group(1)}PORT{found.group(2)}"),
    (re.compile(r"(json parse error: ).*", re.DOTALL), lambda found: found.group(1) + "WORDS"),
    (re.compile(r"https://127\.0\.0\.1:\d+/"), lambda _: "https://127.0.0.1:PORT/"),
    (re.compile(r"(Too large resource version: \d+, current: )\d+"), lambda found: found.group(1) + "RV"),
]  # fmt: skip
_DECODER = re.compile(
    r"(^\S+ in version \S+ cannot be handled as a \S+:|strict decoding error:|error decoding patch:|"
    r"the object provided is unrecognized|error decoding JSON request body|"
    r"the server rejected our request due to an error in our request|"
    r"invalid character|yaml:|error converting YAML to JSON|couldn't get version/kind; json parse error:|"
    r"invalid continue token:).*",
    re.DOTALL,
)
"""Where a decoder says in its own words what it could not read."""
_CHANGES = re.compile(
    r"(\(allow it to be set to 1 if it was previously negative\)|immutable after creation).*", re.DOTALL
)
_SHOWN = re.compile(
    r"^((Invalid|Unsupported|Duplicate) value: )([\[{].*[\]}]|\"map\[.*\]\"|null|\"\")(?=: |$)", re.DOTALL
)
_INITIAL = "k8s.io/initial-events-end"
_AGE = re.compile(r"(\d+[smhd])+|<unknown>|<invalid>")
_ADDRESS = re.compile(r"(?!10\.0\.0\.5\b)10\.(0\.0|9\.0|96\.\d+)\.\d+")


@dataclass
class Answer:
    """A status, headers and a body as they came."""

    status: int
    headers: Mapping[str, str]
    warnings: list[str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body as an object; text where it is none."""
        if self.body.startswith(b"k8s\0"):
            try:
                return _decoded(self.body)
            except Exception as error:
                return f"protobuf that cannot be read: {error!r}"
        try:
            is_yaml = "yaml" in self.headers.get("content-type", "")
            value = yaml.load(self.body.decode()) if is_yaml else json.loads(self.body)
            return _events(self.body) if isinstance(value, dict) and value.keys() == {"type", "object"} else value
        except ValueError:
            return _events(self.body)


def _events(body: bytes) -> Any:
    """The events of a watch, but for most bookmarks; any other body as text."""
    try:
        events = [json.loads(line) for line in body.splitlines() if line.strip()]
        return [told(one) for one in events if counts(one)] if events else ""
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")


def counts(event: Obj) -> bool:
    """Whether an event of a watch is no bookmark, or the one after what was there at the beginning."""
    return event["type"] != "BOOKMARK" or _INITIAL in json.dumps(event)


def _decoded(body: bytes) -> Obj:
    """The object in an envelope of protobuf; of a list the items, each in an envelope of its own."""
    envelope = dict(fields(body[4:]))
    version, kind = (value.decode() for value in dict(fields(envelope[1])).values())  # type: ignore[arg-type,union-attr]
    if not kind.endswith("List") or by_kind(version, kind):
        return decode_protobuf(body)
    raw: bytes = envelope.get(2, b"")  # type: ignore[assignment]
    of = chunk(1, version.encode()) + chunk(2, kind.removesuffix("List").encode())
    items = [decode_protobuf(body[:4] + chunk(1, of) + chunk(2, value)) for n, value in fields(raw) if n == 2]  # type: ignore[arg-type]
    return {"kind": kind, "apiVersion": version, "items": items}


def told(event: Obj) -> Obj:
    """An event, of a bookmark what means something: all but its metadata is empty."""
    value = event["object"]
    if event["type"] != "BOOKMARK":
        return event
    if value.get("kind") == "Table":  # its row is that of an empty object
        return {**event, "object": {**value, "rows": [{**row, "cells": []} for row in value.get("rows") or ()]}}
    return {**event, "object": {name: value[name] for name in ("kind", "apiVersion", "metadata")}}


@dataclass
class Versions:
    """The versions of each object that a server was seen to give, in order."""

    seen: dict[str, list[str]] = field(default_factory=dict)

    def of(self, metadata: Obj) -> str:
        """Which version of the object it is: `RV0` is the first one seen."""
        versions = self.seen.setdefault(str(metadata.get("uid")), [])
        if metadata["resourceVersion"] not in versions:
            versions.append(metadata["resourceVersion"])
        return f"RV{versions.index(metadata['resourceVersion'])}"


def _text(value: str) -> str:
    for pattern, stands in _TEXTS:
        value = pattern.sub(stands, value)
    return value


def plain(value: Any, versions: Versions) -> Any:
    """A value without what a server chose itself."""
    if isinstance(value, list):
        return [plain(one, versions) for one in value]
    if isinstance(value, str):
        return _text(value)
    if not isinstance(value, dict):
        return value
    made = {_text(key): plain(_without_ours(key, one), versions) for key, one in value.items()}
    if isinstance(made.get("managedFields"), list):  # they stand by the second of their time
        made["managedFields"].sort(key=_by_owner)
    if value.get("resourceVersion") and "resourceVersion" in value:
        made["resourceVersion"] = versions.of(value) if UUID.fullmatch(str(value.get("uid"))) else "RV"
    if value.get("continue"):
        made["continue"] = "CONTINUE"
    if "cells" in value:
        made["cells"] = [_ADDRESS.sub("IP", one) if isinstance(one, str) else one for one in made["cells"]]
        made["cells"] = ["AGE" if isinstance(one, str) and _AGE.fullmatch(one) else one for one in made["cells"]]
        ((made.get("object") or {}).get("metadata") or {}).pop("managedFields", None)
    if "token" in value and "expirationTimestamp" in value:
        made["token"] = "TOKEN"
    for column in made.get("columnDefinitions") or ():
        column.pop("description", None)
    if made.get("kind") == "SelfSubjectRulesReview" and "status" in made:
        for key in ("nonResourceRules", "resourceRules"):
            made["status"][key] = sorted(made["status"].get(key) or [], key=_in_order)
    if made.get("kind") == "Status" and made.get("status") == "Failure":
        _plain_failure(made)
    _forget_allocated(made)
    return made


def _without_ours(key: str, value: Any) -> Any:
    """The items of a list, or rows, without roles and bindings of Haru's own components."""
    if key not in ("items", "rows") or not isinstance(value, list):
        return value
    return [one for one in value if not re.search(r"'name': 'haru:", str(one)[:2000])]


def _by_owner(entry: Any) -> list[str]:
    owner = entry if isinstance(entry, dict) else {}
    return [str(owner.get(name)) for name in ("operation", "manager", "apiVersion", "subresource")]


def _in_order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _plain_failure(made: Obj) -> None:
    """Leave out what is said twice, or in the words of a decoder."""
    details = made.get("details") or {}
    causes = [(one.get("field"), one.get("reason"), _in_short(one)) for one in details.get("causes") or ()]
    if causes:
        details["causes"] = sorted({json.dumps(one) for one in causes})
        made.pop("message", None)
    elif isinstance(made.get("message"), str):
        made["message"] = _sorted_errors(_DECODER.sub("WORDS", made["message"]))
    if not details:
        made.pop("details", None)


def _sorted_errors(message: str) -> str:
    """A message in which errors of an applied configuration stand in any order."""
    head, found, errors = message.partition(": errors:\n")
    return head + found + "\n".join(sorted(errors.split("\n")))


def _in_short(cause: Obj) -> str:
    """The message of a cause without an object that it shows, and without a decoder's words."""
    message = str(cause.get("message")).partition("\n@@")[0]
    if cause.get("field") == "patch":
        return "WORDS"
    if "x-kubernetes-validations" in str(cause.get("field")):
        message = re.sub(
            r"^(Invalid value: ).*?(?=: (messageExpression |compilation |cel |program |oldSelf))", r"\1OBJECT", message
        )
    message = _ADDRESS.sub("IP", _CHANGES.sub(r"\1", message))
    return _SHOWN.sub(r"\1OBJECT", message)


def _forget_allocated(made: Obj) -> None:
    """Addresses and ports that a server picked itself."""
    for key in ("clusterIP", "clusterIPs"):
        if key in made:
            made[key] = _ADDRESS.sub("IP", json.dumps(made[key]))
    for key in ("nodePort", "healthCheckNodePort"):
        if isinstance(made.get(key), int) and 30000 <= made[key] < 33000:
            made[key] = "PORT"


def differences(request: Request, kube: Answer, haru: Answer, versions: tuple[Versions, Versions]) -> list[str]:
    """In what two answers differ, each as `where: value of kube-apiserver | value of Haru`."""
    found = []
    if kube.status != haru.status:
        told = [one.value.get("message", "") if isinstance(one.value, dict) else "" for one in (kube, haru)]
        return [f"code: {kube.status} {told[0]} | {haru.status} {told[1]}"]
    if request.resource in ("discovery", "openapi"):
        return unequal(about_custom(kube.value), about_custom(haru.value))
    one, other = (plain(each.value, seen) for each, seen in zip((kube, haru), versions, strict=True))
    types = [each.headers.get("content-type", "").partition(";stream")[0] for each in (kube, haru)]
    if types[0] != types[1]:
        one, other = (_without_zeroes(_as_read(each)) for each in (one, other))
    if request.method != "HEAD":
        found += unequal(one, other)
    if types[0] != types[1] and kube.body:
        found.append(f"content type: {types[0]} | {types[1]}")
    warned = [[plain(text, Versions()) for text in each.warnings] for each in (kube, haru)]
    if sorted(warned[0]) != sorted(warned[1]):
        found.append(f"warnings: {warned[0]} | {warned[1]}")
    return found


def _as_read(value: Any) -> Any:
    """A list without what is not read of one in protobuf: its metadata, and what each item is."""
    if not isinstance(value, dict) or "items" not in value:
        return value
    items = [{name: one for name, one in item.items() if name not in ("apiVersion", "kind")} for item in value["items"]]
    return {**value, "items": items, "metadata": None}


def _without_zeroes(value: Any) -> Any:
    """A value without members that protobuf does not tell from absent ones."""
    if isinstance(value, list):
        return [_without_zeroes(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: _without_zeroes(one) for key, one in value.items()}
    return {key: one for key, one in made.items() if one not in (None, "", 0, [], {}) or one is False}


def unequal(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two values differ."""
    if type(one) is type(other) and isinstance(one, dict):
        return [
            line
            for key in sorted(one.keys() | other.keys())
            for line in (
                unequal(one[key], other[key], f"{where}.{key}") if key in one and key in other
                else [f"{where}.{key}: {_short(one, key)} | {_short(other, key)}"]
            )
        ]  # fmt: skip
    if isinstance(one, list) and isinstance(other, list):
        if len(one) == len(other):
            if where.endswith(".causes"):  # in no order: of those that both tell, the place means nothing
                one, other = ([each for each in a if each not in b] for a, b in ((one, other), (other, one)))
            pairs = zip(one, other, strict=True)
            return [line for n, (each, its) in enumerate(pairs) for line in unequal(each, its, f"{where}[{n}]")]
        both = [json.dumps([each for each in a if each not in b])[:3000] for a, b in ((one, other), (other, one))]
        return [f"{where}#: {len(one)} {both[0]} | {len(other)} {both[1]}"]
    is_large = all(type(each) in (int, float) and abs(each) >= 2**63 for each in (one, other))
    if is_large and float(one) == float(other):
        return []  # a number as digits, or with an exponent
    return [] if one == other and type(one) is type(other) else [f"{where}: {json.dumps(one)} | {json.dumps(other)}"]


def _short(value: Obj, key: str) -> str:
    return json.dumps(value[key])[:3000] if key in value else "-"


__all__ = ["PROTOBUF", "UUID", "Answer", "Versions", "counts", "differences", "plain", "told", "unequal"]
