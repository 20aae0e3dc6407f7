"""Request bodies: JSON, YAML or protobuf to one object, checked against the resource and the wish for strictness."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from haru.apiserver.request.http import Request
from haru.kube import yaml
from haru.kube.decoding import strict_decode
from haru.kube.errors import (
    FieldError,
    StatusError,
    bad_request_error,
    invalid,
    invalid_error,
    unsupported_media_type_error,
)
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.repeated_names import duplicate_fields, in_order
from haru.kube.wire import decode_protobuf
from haru.serving import ENCODED_HERE

JSON_TYPES = ("", "application/json")
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
DEPTH_LIMIT = 200
"""Deeper values are refused: what encodes and walks them recurses."""
QUICK_DEPTH = 30
PROBLEMS_LIMIT = 100
WRITE_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
"""What the query of a write is called."""
_NO_TEXT = "yaml: invalid leading UTF-8 octet"
_OF_YAML, _LINE_BREAK = "yaml: unmarshal errors:", "\n  "
"""How a problem begins that has a line for each name that occurs twice."""
_STRICTNESS = ("Ignore", "Warn", "Strict")
_SUPPORTED = '"", "Ignore", "Strict", "Warn"'
_COLON_ESCAPED = rb"\u003"
"""How every escape begins that could stand for a colon."""
_INDEX = re.compile(r"\[(\d+)\]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def media_type(request: Request) -> str:
    """The Content-Type without its parameters."""
    return request.header(b"content-type").partition(";")[0].strip().lower()


def parse_json(data: bytes) -> Any:
    """A JSON value; 400 for what is none."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "surrogate" not in str(error):
            raise bad_request_error(f"error decoding JSON request body: {error}") from None
        value = _without_lone_surrogates(data)
    if _may_be_deep(data) and _depth(value) > DEPTH_LIMIT:
        raise _too_deep()
    return value


def _without_lone_surrogates(data: bytes) -> Any:
    """The value of a body with escapes of half a character, each of which Go takes for one that cannot be shown."""
    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
        return orjson.loads(_LONE_SURROGATE.sub("\ufffd", text))
    except (ValueError, RecursionError) as error:
        raise bad_request_error(f"error decoding JSON request body: {error}") from None


def _too_deep() -> StatusError:
    return bad_request_error(f"the request body is nested deeper than {DEPTH_LIMIT} levels")


def _may_be_deep(data: bytes) -> bool:
    """A quick look at the brackets alone: few of them make few levels.

    Of many, each round takes the innermost pairs away: few rounds mean few levels. Brackets inside of texts can leave a
    rest behind, or pairs that are none; then the value itself is measured.
    """
    if data.count(b"{") + data.count(b"[") <= DEPTH_LIMIT:
        return False
    brackets = data.translate(None, _NO_BRACKETS)
    for _ in range(QUICK_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return bool(brackets)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, dict | list)
        ]
    return depth


def parse_yaml(data: bytes) -> Obj:
    """One YAML document; 400 for what is none."""
    return read_yaml(data)[0]


def read_yaml(data: bytes, *, as_yaml: bool = False, kind: Kind | None = None) -> tuple[Obj, list[str]]:
    """One YAML document, and which names occur twice in it, told as one problem: the last counts.

    Those of JSON are told as such, unless it is to be taken `as_yaml`. An empty document says nothing. `kind`: of which
    kind the object must be, as refusals tell.
    """
    found: list[yaml.Repeated] = []
    try:
        text = data.decode("utf-8")
        # JSON is read by a reader of its own, which tells no lines, unless a document's mark stands before it.
        value = yaml.load(f"--- {text}" if as_yaml and text.lstrip().startswith("{") else text, found, empty={})
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        why = str(yaml.YamlError(_NO_TEXT) if isinstance(error, UnicodeDecodeError) else error)
        if kind is None:
            raise bad_request_error(f"error decoding YAML: {why}") from None
        raise _unrecognized(kind, why.removeprefix(yaml.NO_JSON)) from None
    _require_json(value)
    if text.lstrip().startswith("{") and not as_yaml:
        return value, repeated_fields(data, value)
    lines = [f"line {line}: {problem}" for line, problem in sorted(found)]
    return value, [_LINE_BREAK.join([_OF_YAML, *lines])] if lines else []


def _unrecognized(kind: Kind, why: str) -> StatusError:
    return bad_request_error(f"the object provided is unrecognized (must be of type {kind.kind}): {why}")


def _require_json(value: Any) -> None:
    """YAML and protobuf can say what JSON can not: numbers, texts and depths that could not be encoded again."""
    if _depth(value) > DEPTH_LIMIT:
        raise _too_deep()
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise bad_request_error(f"the request body has no form in JSON: {error}") from None


def parse_body(data: bytes, content_type: str) -> Any:
    """The value of a request body by its media type."""
    if content_type in JSON_TYPES:
        return parse_json(data)
    if content_type == PROTOBUF_TYPE:
        value = decode_protobuf(data)
        _require_json(value)
        return value
    if content_type in YAML_TYPES:
        return parse_yaml(data)
    raise _unknown_type()


def check_media_type(request: Request) -> None:
    """415 for a body that nobody can read."""
    if media_type(request) not in (*JSON_TYPES, PROTOBUF_TYPE, *YAML_TYPES):
        raise _unknown_type()


def _unknown_type() -> StatusError:
    return unsupported_media_type_error(
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )


def strictness(request: Request) -> str:
    """The `fieldValidation` parameter, which `read_write_options` has checked; `Warn` where there is none."""
    return request.param("fieldValidation") or "Warn"


def field_validation_errors(request: Request) -> list[FieldError]:
    """What is wrong with the `fieldValidation` parameter."""
    value = request.param("fieldValidation")
    if value in ("", *_STRICTNESS):
        return []
    return [FieldError("FieldValueNotSupported", "fieldValidation", value, f"supported values: {_SUPPORTED}")]


async def read_object(request: Request, kind: Kind, also: Sequence[str] = ()) -> Obj:
    """The object of a POST or PUT in the version of `kind`: known fields only, no nulls, JSON types as they must be.

    `also`: other versions that say the same and are taken for it.
    """
    data = await request.body()
    content_type = media_type(request)
    wish = strictness(request)
    repeated: list[str] = []
    if content_type in YAML_TYPES:
        value, repeated = read_yaml(data, kind=kind)
    else:
        value = parse_body(data, content_type)
    if value is None and content_type in JSON_TYPES:
        value = {}
    if not isinstance(value, dict):
        raise bad_request_error(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: the body is no object'
        )
    if wish != "Ignore" and content_type in JSON_TYPES:
        repeated = repeated_in(request, data, value)
    if value.get("apiVersion") in also:
        value["apiVersion"] = kind.api_version
    if kind.custom is not None and repeated:
        _tell_of_another_kind(request, value, kind, wish, repeated)
    check_kind(value, kind)
    return decode_checked(value, kind, wish, repeated, request, text=data if content_type in JSON_TYPES else None)


def _tell_of_another_kind(request: Request, value: Obj, kind: Kind, wish: str, repeated: list[str]) -> None:
    """Refuse what occurs twice in an object of another kind or version, or warn of it, before its kind is looked at."""
    said, version = value.get("kind"), value.get("apiVersion")
    if not said or not isinstance(said, str) or (said, version) == (kind.kind, kind.api_version):
        return
    if wish == "Strict":
        raise _strict(said, str(version).rpartition("/")[2], repeated)
    if wish == "Warn":
        warn(request, repeated)


def repeated_in(request: Request, data: bytes, value: Any) -> list[str]:
    """Names that occur twice in a body; in none that a client in this process encoded from an object."""
    return [] if ENCODED_HERE in (request.scope.get("extensions") or ()) else repeated_fields(data, value)


def repeated_fields(data: bytes, value: Any) -> list[str]:
    """Names that occur twice in the text that `value` was read from.

    Each member has a colon, which goes with the member that is dropped; one that stands in a text stays, and none comes
    from elsewhere unless it was written as an escape. So as many colons as before mean that nothing was dropped.
    """
    if _COLON_ESCAPED not in data and orjson.dumps(value).count(b":") == data.count(b":"):
        return []
    try:
        return duplicate_fields(data)
    except ValueError:  # a flow mapping of YAML, which its own reader has judged
        return []


def decode_checked(
    value: Obj,
    kind: Kind,
    wish: str,
    repeated: list[str],
    request: Request,
    known: Obj | None = None,
    text: bytes | None = None,
) -> Obj:
    """Drop unknown fields, and refuse, warn or say nothing about them as the client wishes.

    `known` is an object of the kind whose parts may be in this one. They are told in the order of a `text` in JSON; of
    what was read or made otherwise, or is custom, those by name, after what is repeated.
    """
    obj, unknown = strict_decode(value, kind, known)
    if text is None or (repeated and kind.custom is not None):
        problems = repeated + sorted(unknown, key=_place)
    else:
        problems = in_order(text, unknown, kind.message_type) if repeated and wish != "Ignore" else unknown
    problems = problems[:PROBLEMS_LIMIT]
    if problems and wish == "Strict":
        raise strict_error(kind, problems)
    if wish == "Warn":
        warn(request, problems)
    return obj


def warn(request: Request, problems: Iterable[str]) -> None:
    """Warn of unknown and repeated fields; of those that YAML tells as one problem, of each."""
    for problem in problems:
        head, *lines = problem.split(_LINE_BREAK)
        request.warnings.extend(lines if head == _OF_YAML else [problem])


def _place(problem: str) -> list[str]:
    """Where a problem stands in JSON whose members are sorted by name."""
    return _INDEX.sub(lambda found: f".{found[1]:>9}", problem).split(".")


def strict_error(kind: Kind, problems: list[str]) -> StatusError:
    """400 with every unknown or repeated field."""
    return _strict(kind.kind, kind.version, problems)


def _strict(kind: str, version: str, problems: list[str]) -> StatusError:
    why = f"strict decoding error: {', '.join(problems)}"
    return bad_request_error(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def check_kind(value: Obj, kind: Kind) -> None:
    """The body must be of the resource's kind; a body that does not say is taken for one."""
    given_version, given_kind = value.get("apiVersion"), value.get("kind")
    if given_version == kind.api_version and given_kind == kind.kind:
        return
    if kind.custom is not None:
        _check_custom_kind(value, kind)
        return
    if not given_version and not given_kind:
        value["apiVersion"], value["kind"] = kind.api_version, kind.kind
        return
    if not isinstance(given_version, str | None) or not isinstance(given_kind, str | None):
        raise bad_request_error("apiVersion and kind must be strings")
    version = (given_version or "").rpartition("/")[2]
    if given_kind and given_kind != kind.kind:
        raise bad_request_error(
            f"{given_kind} in version {json_text(version)} cannot be handled as a {kind.kind}: "
            f"the body is a {given_version or 'object'} {given_kind}, the path takes {kind.api_version} {kind.kind}"
        )
    if given_version and given_version != kind.api_version:
        raise bad_request_error(
            f"the API version in the data ({given_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    value["apiVersion"], value["kind"] = kind.api_version, kind.kind


def _check_custom_kind(value: Obj, kind: Kind) -> None:
    """A custom resource says of what kind it is: it is read before anybody knows."""
    given_version, given_kind = value.get("apiVersion"), value.get("kind")
    if not given_kind or not isinstance(given_kind, str):
        raise _unrecognized(kind, "Object 'Kind' is missing")
    if given_version != kind.api_version:
        raise bad_request_error(
            f"the API version in the data ({given_version or ''}) does not match the expected API version "
            f"({kind.api_version})"
        )
    raise wrong_custom_type(value, kind)


def wrong_custom_type(value: Obj, kind: Kind) -> StatusError:
    """422 for a custom resource that says that it is of another kind or version than the one that it is written as."""
    errors = [
        invalid(member, value.get(member), f"must be {wanted}")
        for member, wanted in (("kind", kind.kind), ("apiVersion", kind.api_version))
        if value.get(member) != wanted
    ]
    group = str(value.get("apiVersion") or "").rpartition("/")[0]
    return invalid_error(group, str(value.get("kind")), (value.get("metadata") or {}).get("name") or "", errors)


def json_text(text: str) -> str:
    """A text in JSON's quotes."""
    return orjson.dumps(text).decode()
