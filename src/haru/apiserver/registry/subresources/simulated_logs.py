"""The log of a simulated container: what its commands print, read off its spec and status. Pure.

Simulated kubelets serve no logs, and need to keep none: a script and the start of a container say every line.
Source of the messages: kubelet `kubelet_pods.go`, `validateContainerLogStatus`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from haru.kube.container_scripts import script_of
from haru.kube.errors import StatusError, bad_request_error
from haru.kube.meta import Obj, name_of
from haru.kube.names import parse_time

_NOT_PULLED = {"ImagePullBackOff": "image can't be pulled", "ErrImagePull": "trying and failing to pull image"}
_STREAM = {"Stderr"}


def simulated_log(pod: Obj, container: str, option: Callable[[str], str], now: datetime) -> str:
    """The lines as `kubectl logs` gets them; `option` reads PodLogOptions by name. Raises StatusError."""
    spec = next((one for one in _containers(pod) if one["name"] == container), None)
    status = next((one for one in _statuses(pod) if one["name"] == container), None)
    if spec is None or status is None:
        return ""
    began, ended = _instance(pod, status, previous=option("previous") in ("true", "1"))
    script = script_of(pod, spec)
    if script is None or began is None or option("stream") in _STREAM:
        return ""
    lines = [(began + timedelta(seconds=at), text) for at, text in script.lines]
    since = _since(option, now)
    shown = [(at, text) for at, text in lines if at <= (ended or now) and (since is None or at >= since)]
    if (tail := _whole(option, "tailLines")) is not None:
        shown = shown[len(shown) - min(tail, len(shown)) :]
    stamped = option("timestamps") in ("true", "1")
    text = "".join(f"{_stamp(at)} {line}\n" if stamped else f"{line}\n" for at, line in shown)
    limit = _whole(option, "limitBytes")
    return text if limit is None else text.encode()[:limit].decode(errors="ignore")


def _instance(pod: Obj, status: Obj, *, previous: bool) -> tuple[datetime | None, datetime | None]:
    """When the container began that is asked for, and when it ended."""
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    where = f'container "{status["name"]}" in pod "{name_of(pod)}"'
    if previous:
        if last is None:
            raise bad_request_error(f"previous terminated {where} not found")
        return _ended(last)
    if "running" in state:
        return parse_time(state["running"]["startedAt"]), None
    ended = state.get("terminated") or last
    if ended is None:
        reason = (state.get("waiting") or {}).get("reason") or ""
        why = _NOT_PULLED.get(reason, reason)
        raise bad_request_error(f"{where} is waiting to start: {why}" if why else f"{where} is waiting to start")
    return _ended(ended)


def _ended(terminated: Obj) -> tuple[datetime, datetime]:
    return parse_time(terminated["startedAt"]), parse_time(terminated["finishedAt"])


def _since(option: Callable[[str], str], now: datetime) -> datetime | None:
    if option("sinceTime"):
        try:
            return parse_time(option("sinceTime"))
        except ValueError as error:
            raise bad_request_error(f"sinceTime: {error}") from error
    seconds = _whole(option, "sinceSeconds")
    return None if seconds is None else now - timedelta(seconds=seconds)


def _whole(option: Callable[[str], str], name: str) -> int | None:
    text = option(name)
    if text and not (text.isascii() and text.isdigit()):
        raise StatusError(422, "Invalid", f"{name}: Invalid value: {text!r}: must be a whole number")
    return int(text) if text else None


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}000Z"


def _containers(pod: Obj) -> list[Obj]:
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _statuses(pod: Obj) -> list[Obj]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
