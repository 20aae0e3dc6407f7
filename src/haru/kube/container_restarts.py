"""Which containers are started again after they ended, and after what pause.

Source: restart policies of pods and of containers (KEP-753 sidecars, KEP-5307 and KEP-5532 rules per container); the
crash loop's pause of the kubelet: none for the first restart, then 10 s, doubled up to 5 minutes, forgotten after
twice that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from haru.kube.go_values import go_duration
from haru.kube.meta import Obj

FIRST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 300.0
RESTART_ALL: Final = "RestartAllContainers"
RESTART_ALL_FEATURE: Final = "RestartAllContainersOnContainerExits"
"""What nodes declare that carry it out."""
ALL_RESTARTING: Final = "AllContainersRestarting"
"""The condition of a pod whose containers are being removed to be started again."""
REMOVED: Final = {
    "reason": "RestartingAllContainers",
    "message": "The container is removed because RestartAllContainers in place",
}
"""Why a container waits that was removed to start again with all others."""


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """An init container that runs beside the containers after it."""
    return container.get("restartPolicy") == "Always"


def restarts_after(pod: Obj, container: Mapping[str, Any], exit_code: int, *, init: bool = False) -> bool:
    """Whether a container that ended with this code is started again."""
    if matching_action(container, exit_code) in ("Restart", RESTART_ALL):
        return True
    policy = container.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    if policy == "Always":
        # An init container that succeeded is done, unless it says of itself that it runs on.
        return not (init and exit_code == 0 and not is_sidecar(container))
    return bool(policy == "OnFailure" and exit_code != 0)


def matching_action(container: Mapping[str, Any], exit_code: int) -> str | None:
    """What the first of a container's rules that takes its exit code says is to be done."""
    rules = container.get("restartPolicyRules") or ()
    return next((rule.get("action") for rule in rules if _matches(rule, exit_code)), None)


def restartable_containers(spec: Mapping[str, Any]) -> list[Obj]:
    """The containers that start again together; ephemeral ones run on."""
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def may_restart_all(spec: Mapping[str, Any]) -> bool:
    """Whether a container has such a rule, whatever its exit codes."""
    rules = (rule for one in restartable_containers(spec) for rule in one.get("restartPolicyRules") or ())
    return any(rule.get("action") == RESTART_ALL for rule in rules)


def was_removed(end: Mapping[str, Any]) -> bool:
    """Whether a container ended since all were restarted, by the terminated state in its status."""
    return bool(end.get("reason") == REMOVED["reason"])


def removed_state() -> Obj:
    """The terminated state of a container that was removed to start again with all others."""
    return {"terminated": {**REMOVED, "exitCode": 137}}


def _matches(rule: Mapping[str, Any], exit_code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    values = codes.get("values") or ()
    return exit_code in values if codes.get("operator") == "In" else exit_code not in values


class CrashLoop:
    """Pauses of one pod's containers or images; times in seconds of one clock."""

    def __init__(self, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._first, self._longest = first, longest
        self._entries: dict[str, tuple[float, float]] = {}

    def wait(self, key: str, ended: float, now: float) -> tuple[float, float]:
        """How long a container that ended then still waits, and its whole pause; zeros if it may start."""
        pause, noted = self._entries.get(key, (0.0, 0.0))
        if not pause or ended - noted > 2 * self._longest or now - ended >= pause:
            return 0.0, 0.0
        return pause - (now - ended), pause

    def forget(self, key: str) -> None:
        """Its next start waits for nothing: what is started is another image."""
        self._entries.pop(key, None)

    def started(self, key: str, ended: float, now: float) -> None:
        """It is started again now: the next pause is longer."""
        pause, noted = self._entries.get(key, (0.0, 0.0))
        known = pause > 0 and ended - noted <= 2 * self._longest
        self._entries[key] = (min(2 * pause, self._longest) if known else self._first, now)


def crash_message(pod: Obj, container: str, pause: float) -> str:
    """As kubelets word it."""
    meta = pod["metadata"]
    where = f"{meta['name']}_{meta.get('namespace', '')}({meta.get('uid', '')})"
    return f"back-off {go_duration(round(pause * 10**9))} restarting failed container={container} pod={where}"
