"""Pods that a workload's controller cannot create, because the API server refuses them: told by its events.

A webhook, a policy or a LimitRange says no; only the events of the owner say so. They count as long as no pod was made
after the last of them. What quotas have no room for is told by the quotas, where they can be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from haru.engine import Reason, Snapshot
from haru.explain.diagnosis.makers import MAKERS
from haru.kube.meta import Obj, controller_of
from haru.kube.workload_pods import BY_QUOTA, FAILED_CREATE

_COMBINED = "(combined from similar events): "


def refused_creation(snapshot: Snapshot, owner: Mapping[str, object]) -> Reason | None:
    """Why the pods of a workload are refused, with since when and how often; `owner` has its kind, name and uid."""
    uid = owner.get("uid")
    events = [e for e in snapshot.objects("Event").values() if e.get("reason") == FAILED_CREATE and _about(e, owner)]
    if not events:
        return None
    newest = max(events, key=_last)
    made = (
        str(pod.obj["metadata"].get("creationTimestamp") or "")
        for pod in snapshot.pods.values()
        if (controller_of(pod.obj) or {}).get("uid") == uid
    )
    by_quota = BY_QUOTA in str(newest.get("message")) and owner.get("kind") in MAKERS
    known_better = by_quota and snapshot.objects("ResourceQuota")
    if max(made, default="") > _last(newest) or known_better:
        return None
    return _told(newest)


def _about(event: Obj, owner: Mapping[str, object]) -> bool:
    about = event.get("involvedObject") or {}
    return about.get("uid") == owner.get("uid") if about.get("uid") else _named(about) == _named(owner)


def _named(reference: Mapping[str, object]) -> tuple[object, ...]:
    return reference.get("kind"), reference.get("namespace"), reference.get("name")


def _told(event: Obj) -> Reason:
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    first, last = _seconds(event.get("firstTimestamp") or event.get("eventTime")), _last(event)
    often = f"{count} times" if count > 1 else "once"
    since = f" since {first}, last {last}" if count > 1 and first else (f", {last}" if last else "")
    data: dict[str, object] = {"count": count}
    data |= {key: value for key, value in (("since", first), ("last", last)) if value}
    message = str(event.get("message")).removeprefix(_COMBINED)
    return Reason(FAILED_CREATE, f"{message} ({often}{since})", data)


def _last(event: Obj) -> str:
    """When an event was told the last time."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return _seconds(next((time for time in times if time), None))


def _seconds(time: object) -> str:
    """A time to the second, so that all of them compare as texts."""
    return f"{str(time)[:19]}Z" if time else ""
