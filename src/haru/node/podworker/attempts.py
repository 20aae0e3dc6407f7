"""The next start of a container: its number, and whose processes it sees. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from haru.kube.meta import Obj
from haru.node.agent.images import StartError
from haru.node.podworker.observed import CREATED, EXITED, SeenPod
from haru.node.status.container_status import has_run

RUN_ERROR: Final = "RunContainerError"


def next_attempt(pod: Obj, name: str, seen: SeenPod) -> int:
    """How often the container was started before.

    One that never ran is replaced under its own number: the runtime gives the name with that number only once, so
    who does not see that a start is still on its way is refused.
    """
    last = seen.newest(name)
    if last is not None:
        return last.attempt if last.state == CREATED else last.attempt + 1
    status = pod.get("status") or {}
    for member in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(member) or ():
            if one["name"] == name and one.get("containerID"):
                return int(one.get("restartCount", 0)) + has_run(one)
    return 0


def failed_to_run(reasons: Mapping[str, tuple[str, str]], seen: SeenPod) -> list[str]:
    """Containers whose failed start the runtime knows as an end: they wait as crashing ones do, and for no more."""
    newest = {name: seen.newest(name) for name, (reason, _) in reasons.items() if reason == RUN_ERROR}
    return [name for name, last in newest.items() if last is not None and last.state == EXITED]


def target_id(spec: Obj, seen: SeenPod) -> str:
    """The runtime's id of the container whose processes an ephemeral container sees; empty for its own only."""
    name = spec.get("targetContainerName")
    if not name:
        return ""
    if (target := seen.newest(name)) is None:
        raise StartError("CreateContainerConfigError", f"unable to find target container {name}")
    return target.id
