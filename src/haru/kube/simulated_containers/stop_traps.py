"""What a simulated container does that is stopped: its hook `preStop`, and the trap of its shell. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.simulated_containers.container_shell import run_beside
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.kubelet_files import TERMINATION_LOG
from haru.kube.simulated_containers.shell_output import Change, Ran
from haru.kube.simulated_containers.shell_traps import handler_of
from haru.kube.simulated_containers.test_images import image_argv
from haru.kube.simulated_containers.trivial_shell import SHELLS

_OF_CHILDREN: Final = re.compile(r"\b(?:kill(?:\s+-\w+|\s+-s\s+\w+)?|wait)\s+\"?\$(?:!|\w+|\{\w+\})\"?")
_OTHER_BESIDE: Final = re.compile(r"(?:^|[;\n])(?!\s*sleep\b)[^;&|\n]*[^&>\s]\s*&(?![&>\d])")
"""A command beside the shell that is no `sleep`."""
STOPPED: Final = 143
"""The exit code of who is ended by SIGTERM, and of a shell that was told so and says no other."""
KILLED: Final = 137
LEAST_SECONDS: Final = 2.0
"""Which a container has after its hook, however long that took."""


def traps_of(container: Mapping[str, Any]) -> str | None:
    """The commands that a container's shell runs when it is stopped; None if it traps nothing of the kind."""
    argv = image_argv(container)
    if len(argv) < 3 or argv[0].rpartition("/")[2] not in SHELLS or "trap" not in argv[-1]:
        return None
    signal = str((container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM")
    names = {signal, signal.removeprefix("SIG"), *(["15"] if signal == "SIGTERM" else [])}
    text = handler_of(argv[-1], names)
    # A `sleep` that it has begun takes no time to end.
    return text if text is None or _OTHER_BESIDE.search(argv[-1]) else _OF_CHILDREN.sub(":", text)


def run_on_stop(
    pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES, elapsed: float = math.inf
) -> Ran | None:
    """How a container that traps its stop comes to its end; None for one that ends by the signal, or nobody knows how.

    It does not end by itself where it takes no notice. A script that goes on after its trap is taken to end.
    """
    text = traps_of(container)
    if text is None:
        return None
    if not text:
        return Ran()
    ran = run_beside(pod, container, ["sh", "-c", f"{text}\nexit {STOPPED}"], sources, elapsed, has_clock=True)
    return None if ran.unknown else ran


def changed_on_stop(
    pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES, elapsed: float = math.inf
) -> list[Change]:
    """The files that a container changes that is stopped after so long: by its hook `preStop`, then by its trap."""
    command = (((container.get("lifecycle") or {}).get("preStop") or {}).get("exec") or {}).get("command")
    hook = run_beside(pod, container, command, sources, elapsed).changes if command else []
    ran = run_on_stop(pod, container, sources, elapsed)
    return [*hook, *(() if ran is None else ran.changes)]


def hook_fails(pod: Obj, container: Mapping[str, Any]) -> bool:
    """Whether the hook `preStop` of a container is known to fail."""
    command = (((container.get("lifecycle") or {}).get("preStop") or {}).get("exec") or {}).get("command")
    ran = run_beside(pod, container, command) if command else None
    return ran is not None and ran.ends_after is not None and ran.exit_code != 0


def stop_message(pod: Obj, container: Mapping[str, Any]) -> str:
    """What a container that is stopped leaves as its message: what its hook or trap writes into it last."""
    path = container.get("terminationMessagePath") or TERMINATION_LOG
    texts = [one.text for one in changed_on_stop(pod, container) if one.path == path and one.text]
    return texts[-1] if texts else ""


def killed_after(pod: Obj, container: Mapping[str, Any], grace: float) -> float:
    """How long a container has at most once it is told to end: what its hook leaves of the grace period."""
    return max(grace - hook_seconds(pod, container, grace), LEAST_SECONDS)


def hook_seconds(pod: Obj, container: Mapping[str, Any], grace: float) -> float:
    """How long the hook `preStop` of a container takes, before which it is not told to end."""
    hook = (container.get("lifecycle") or {}).get("preStop") or {}
    if "sleep" in hook:
        return min(float(hook["sleep"].get("seconds") or 0), grace)
    command = (hook.get("exec") or {}).get("command")
    if not command:
        return 0.0
    ran = run_beside(pod, container, command)
    if ran.ends_after is None:
        return 0.0 if ran.unknown else grace
    return min(ran.ends_after, grace)
