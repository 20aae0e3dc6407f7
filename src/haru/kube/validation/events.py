"""Events of both APIs: core/v1 takes what old clients write, events.k8s.io/v1 asks for who, what and when (KEP 383)."""

from __future__ import annotations

from collections.abc import Mapping

from haru.kube.errors import FieldError, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import immutable, label_key, part

_MAX_TEXT = 128
_MAX_NOTE = 1024
_CORE_NAMES = {"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent"}
_SERIES_ONLY = (
    "action",
    "deprecatedCount",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedSource",
    "eventTime",
    "note",
    "reason",
    "regarding",
    "related",
    "reportingController",
    "reportingInstance",
    "type",
)


def validate_core_event(event: Obj) -> list[FieldError]:
    """A core/v1 Event; only one with an eventTime is held to the newer rules."""
    if event.get("eventTime"):
        return _namespaces(event, "involvedObject", ("default", "kube-system")) + _who_and_what(event, _CORE_NAMES)
    about = part(event, "involvedObject").get("namespace") or ""
    if about and about != _namespace(event):
        return [_mismatch("involvedObject", about)]
    return _namespaces(event, "involvedObject", ("default",))


def validate_event(event: Obj) -> list[FieldError]:
    """An events.k8s.io/v1 Event when it is created."""
    found = _namespaces(event, "regarding", ("default", "kube-system"))
    found += [] if event.get("eventTime") else [required("eventTime")]
    found += _who_and_what(event, {})
    if event.get("type") not in ("Normal", "Warning"):
        found.append(invalid("type", event.get("type") or "", "has invalid value: " + str(event.get("type") or "")))
    for name in ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount"):
        if event.get(name):
            found.append(invalid(name, event[name], "needs to be unset"))
    return found


def validate_event_update(new: Obj, old: Obj) -> list[FieldError]:
    """An events.k8s.io/v1 Event changes its series only."""
    found: list[FieldError] = []
    for name in _SERIES_ONLY:
        found += immutable(name, new.get(name), old.get(name))
    return found


def _namespace(event: Obj) -> str:
    return part(event, "metadata").get("namespace") or ""


def _namespaces(event: Obj, subject: str, homes: tuple[str, ...]) -> list[FieldError]:
    """Events about cluster-scoped objects live in one of a few namespaces."""
    about = part(event, subject).get("namespace") or ""
    return [] if about or _namespace(event) in homes else [_mismatch(subject, about)]


def _mismatch(subject: str, about: str) -> FieldError:
    return invalid(f"{subject}.namespace", about, "does not match event.namespace")


def _who_and_what(event: Obj, renamed: Mapping[str, str]) -> list[FieldError]:
    controller = renamed.get("reportingController", "reportingController")
    found = label_key(controller, event[controller]) if event.get(controller) else [required(controller)]
    for name in ("reportingInstance", "action", "reason"):
        text = event.get(name) or ""
        if not text:
            found.append(required(name))
        if len(text.encode()) > _MAX_TEXT:
            found.append(invalid(name, "", f"can have at most {_MAX_TEXT} characters"))
    note = renamed.get("note", "note")
    if len((event.get(note) or "").encode()) > _MAX_NOTE:
        found.append(invalid(note, "", f"can have at most {_MAX_NOTE} characters"))
    return found
