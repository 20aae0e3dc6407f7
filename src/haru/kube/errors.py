"""Errors as Kubernetes words them: field errors and the Status object.

A `FieldError` is one finding of validation (`field: Invalid value: ...`); a `StatusError` is an answer of the API
(`metav1.Status`) that travels as an exception, from the server's handlers or out of a client.
Source: k8s.io/apimachinery `util/validation/field` and `api/errors`, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from haru.kube.go_values import format_double

ErrorType = Literal[
    "FieldValueRequired",
    "FieldValueInvalid",
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueNotFound",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
    "InternalError",
]

_TEXT: dict[str, str] = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueNotFound": "Not found",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
    "InternalError": "Internal error",
}
_WITHOUT_VALUE = {
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "InternalError",
}


OMITTED: Any = object()
"""As the value of a finding: the message goes without it."""


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format_double(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class FieldError:
    """One finding of validation: a type, the field's path, the offending value and a detail."""

    type: ErrorType
    field: str
    value: Any = None
    detail: str = ""

    def body(self) -> str:
        """The message without the field: what `details.causes[].message` carries."""
        text = _TEXT[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            text = f"{text}: {_quoted(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"


def required(field: str, detail: str = "") -> FieldError:
    """A value must be given."""
    return FieldError("FieldValueRequired", field, None, detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """A value is malformed or contradicts another one."""
    return FieldError("FieldValueInvalid", field, value, detail)


def not_supported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    """A value is not one of a closed set."""
    listed = ", ".join(json.dumps(s) for s in supported)
    return FieldError("FieldValueNotSupported", field, value, f"supported values: {listed}" if supported else "")


def duplicate(field: str, value: Any) -> FieldError:
    """A value occurs twice where it must be unique."""
    return FieldError("FieldValueDuplicate", field, value)


def forbidden(field: str, detail: str) -> FieldError:
    """A value may not be given here."""
    return FieldError("FieldValueForbidden", field, None, detail)


def not_found(field: str, value: Any) -> FieldError:
    """A value refers to something that does not exist."""
    return FieldError("FieldValueNotFound", field, value)


def too_long(field: str, maximum: int) -> FieldError:
    """A text has more than `maximum` bytes."""
    return FieldError("FieldValueTooLong", field, None, f"may not be more than {maximum} byte{'s' * (maximum != 1)}")


def too_many(field: str, actual: int, maximum: int) -> FieldError:
    """A list has more than `maximum` items."""
    return FieldError(
        "FieldValueTooMany", field, actual, f"{actual}: must have at most {maximum} item{'s' * (maximum != 1)}"
    )


class StatusError(Exception):
    """An API answer that is a failure; `to_status()` is the `metav1.Status` object that is sent."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.reason, self.message, self.details)

    def to_status(self) -> dict[str, Any]:
        """The Status object, `code` equal to the HTTP status."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def has_cause(self, reason: str) -> bool:
        """Whether one of the details' causes has this reason."""
        return any(cause.get("reason") == reason for cause in self.details.get("causes") or ())

    @classmethod
    def from_status(cls, status: dict[str, Any]) -> StatusError:
        """The error that a server's Status object stands for."""
        return cls(
            int(status.get("code") or 500),
            str(status.get("reason") or "Unknown"),
            str(status.get("message") or ""),
            status.get("details") or {},
        )


@contextmanager
def suppress_status(*codes: int) -> Iterator[None]:
    """Ignore a StatusError with one of these codes, as 404 where the object may be gone by now."""
    try:
        yield
    except StatusError as error:
        if error.code not in codes:
            raise


def qualified(plural: str, group: str) -> str:
    """`pods`, or `deployments.apps` for a named group: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _named(group: str, plural: str, name: str) -> dict[str, Any]:
    return {member: text for member, text in (("name", name), ("group", group), ("kind", plural)) if text}


def not_found_error(group: str, plural: str, name: str) -> StatusError:
    """404: the object does not exist."""
    message = f'{qualified(plural, group)} "{name}" not found'
    return StatusError(404, "NotFound", message, _named(group, plural, name))


def already_exists_error(group: str, plural: str, name: str) -> StatusError:
    """409: the name is taken."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _named(group, plural, name))


def conflict_error(group: str, plural: str, name: str, why: str = "") -> StatusError:
    """409: the object has changed since the writer read it (or `why`)."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _named(group, plural, name))


def no_such_path() -> StatusError:
    """404 for what is no resource at all."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


class PageNotFound(StatusError):
    """404 for a path that belongs to no API: answered in plain words, without a Status."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def invalid_error(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422: validation found errors; each is a cause, and stands once in the message. `kind` is the CamelCase kind."""
    listed = aggregate(errors)
    details = _named(group, kind, name)
    details["causes"] = [{"reason": e.type, "message": e.body(), "field": e.field} for e in errors]
    return StatusError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {listed}', details)


def aggregate(errors: Iterable[object]) -> str:
    """Errors in one text, each once, as Go's Aggregate has them."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def bad_request_error(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def forbidden_error(group: str, plural: str, name: str, why: str) -> StatusError:
    """403: the caller may not do this; `why` is the part after `is forbidden: `."""
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", _named(group, plural, name))


def method_not_allowed_error(message: str) -> StatusError:
    """405: the resource does not serve this verb."""
    return StatusError(405, "MethodNotAllowed", message)


def unsupported_media_type_error(message: str) -> StatusError:
    """415: the body's content type is not taken here."""
    return StatusError(415, "UnsupportedMediaType", message)


def expired_error(message: str) -> StatusError:
    """410: the revision or continue token is older than the history."""
    return StatusError(410, "Expired", message)


def too_large_error(message: str) -> StatusError:
    """413: the request is larger than the server takes."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def too_many_requests_error(message: str, retry_after_seconds: int = 1) -> StatusError:
    """429: the caller should come back later; after 0 seconds: nobody knows when."""
    details = {"retryAfterSeconds": retry_after_seconds} if retry_after_seconds else {}
    return StatusError(429, "TooManyRequests", message, details)


def unauthorized_error() -> StatusError:
    """401: no valid identity was presented."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def internal_error(message: str) -> StatusError:
    """500: a fault of the server."""
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)
