"""Events of both APIs: core/v1 takes what old clients write, events.k8s.io/v1 asks for who, what and when (KEP 383).

Both are one kind in Kubernetes: findings have the names of core/v1, but for who reports.
Source: the validation of core Events, as behaviour.
"""

from __future__ import annotations

from haru.kube.equality import same_members
from haru.kube.errors import FieldError, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import IMMUTABLE, label_key, part

_TYPE = "core.v1.Event"
_MAX_TEXT = 128
_MAX_NOTE = 1024
_IN_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_SERIES_ONLY = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)


def validate_core_event(event: Obj) -> list[FieldError]:
    """A core/v1 Event; only one with an eventTime is held to the newer rules."""
    return _legacy(event, "reportingComponent")


def validate_event(event: Obj) -> list[FieldError]:
    """An events.k8s.io/v1 Event when it is created."""
    event = _as_core(event)
    found = _legacy(event, "reportingController") + _series(event)
    found += [] if event.get("eventTime") else [required("eventTime")]
    if event.get("type") not in ("Normal", "Warning"):
        found.append(invalid("type", "", "has invalid value: " + str(event.get("type") or "")))
    unset = {name: event.get(name) for name in ("firstTimestamp", "lastTimestamp", "count")}
    unset["source"] = any(part(event, "source").get(name) for name in ("component", "host"))
    return found + [invalid(name, "", "needs to be unset") for name, value in unset.items() if value]


def validate_event_update(new: Obj, old: Obj) -> list[FieldError]:
    """An events.k8s.io/v1 Event changes its series only."""
    new, old = _as_core(new), _as_core(old)
    found = _legacy(new, "reportingController")
    if not same_members(new, old, "series", _TYPE):
        found += _series(new)
    for name in _SERIES_ONLY:
        if not same_members(new, old, name, _TYPE):
            shown = "reportingController" if name == "reportingComponent" else name
            found.append(invalid(shown, new.get(name), IMMUTABLE))
    return found


def _as_core(event: Obj) -> Obj:
    return {_IN_CORE.get(name, name): value for name, value in event.items()}


def _legacy(event: Obj, controller: str) -> list[FieldError]:
    """What every Event is held to; `controller`: what the API calls who reports."""
    namespace = part(event, "metadata").get("namespace") or ""
    about = part(event, "involvedObject").get("namespace") or ""
    is_new = bool(event.get("eventTime"))
    homes = ("default", "kube-system") if is_new else ("default",)
    strays = (not about and namespace not in homes) or bool(about and not is_new and about != namespace)
    found = [invalid("involvedObject.namespace", about, "does not match event.namespace")] if strays else []
    return found + _who_and_what(event, controller) if is_new else found


def _who_and_what(event: Obj, controller: str) -> list[FieldError]:
    who = event.get("reportingComponent") or ""
    found = [] if who else [required(controller)]
    found += label_key(controller, who)
    for name in ("reportingInstance", "action", "reason"):
        text = event.get(name) or ""
        if not text:
            found.append(required(name))
        if len(text.encode()) > _MAX_TEXT:
            found.append(invalid(name, "", f"can have at most {_MAX_TEXT} characters"))
    if len((event.get("message") or "").encode()) > _MAX_NOTE:
        found.append(invalid("message", "", f"can have at most {_MAX_NOTE} characters"))
    return found


def _series(event: Obj) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    found = [] if (series.get("count") or 0) >= 2 else [invalid("series.count", "", "should be at least 2")]
    return found if series.get("lastObservedTime") else [*found, required("series.lastObservedTime")]
