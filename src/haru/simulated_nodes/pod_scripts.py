"""Which containers of a simulated pod are gone through step by step, and by which scripts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of, statuses_of
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.simulated_containers.container_scripts import ENDS_AT_ONCE, RUNS_ON, Script, ends_for_others, script_of
from haru.kube.simulated_containers.container_shell import variables_of
from haru.kube.simulated_containers.files import NO_SOURCES, ContainerFiles, PodSources
from haru.simulated_nodes import pods as podlib
from haru.simulated_nodes import probes
from haru.simulated_nodes.images import pull_problem

CONFIG_ERROR: Final = "CreateContainerConfigError"
CRASH_LOOP: Final = "CrashLoopBackOff"


def scripts_of(pod: Obj, sources: PodSources = NO_SOURCES) -> Mapping[str, Script] | None:
    """The scripts of a pod's containers by name; None if all run on, or end once as its annotations say.

    A container whose environment can not be made has a script with the reason `CreateContainerConfigError`. Raises
    ValueError for a malformed annotation.
    """
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or ()
    ending = podlib.ending_of(pod)
    if ending is not None:
        if ending.phase == "Succeeded" or spec.get("restartPolicy", "Always") == "Never":
            return {} if _needs_steps(pod, list(containers_of(spec)), sources) else None
        failure = Script((), ending.after_seconds, ending.exit_code, ending.reason, ending.message)
        return {container["name"]: failure for container in containers}
    every = list(containers_of(spec))
    scripts = {one["name"]: script for one in every if (script := _script_of(pod, one, sources)) is not None}
    if not scripts and not _needs_steps(pod, every, sources):
        return None
    unknown = {one["name"]: ENDS_AT_ONCE for one in every if ends_for_others(pod, one)}
    return {**unknown, **scripts}


def script_of_run(pod: Obj, container: Obj, sources: PodSources = NO_SOURCES) -> Script:
    """What a container does in the run that its status tells of. Raises ValueError for a malformed annotation."""
    found = _script_of(pod, container, sources)
    return found or (ENDS_AT_ONCE if ends_for_others(pod, container) else RUNS_ON)


def _script_of(pod: Obj, container: Obj, sources: PodSources) -> Script | None:
    try:
        if _may_lack_something(container):
            ContainerFiles(pod, container, sources, variables_of(pod, container, sources))
        return script_of(pod, container, sources)
    except ConfigError as error:
        return Script(reason=CONFIG_ERROR, message=str(error))


def _may_lack_something(container: Obj) -> bool:
    """Whether its environment or its mounts depend on objects or variables."""
    return (
        "envFrom" in container
        or any("valueFrom" in one for one in container.get("env") or ())
        or any("subPathExpr" in one for one in container.get("volumeMounts") or ())
    )


def _needs_steps(pod: Obj, every: Sequence[Obj], sources: PodSources) -> bool:
    """Whether some image cannot be pulled, a probe or hook makes a difference, or a container changed while it ran."""
    if any(pull_problem(pod, one) or probes.has_effect(pod, one, sources) for one in every):
        return True
    statuses = statuses_of(pod)
    known = [(one, statuses[one["name"]]) for one in every if one["name"] in statuses]
    return any(podlib.restart_reason(one, status) or _waits_for_restart(status) for one, status in known)


def _waits_for_restart(status: Obj) -> bool:
    waiting = (status.get("state") or {}).get("waiting")
    return waiting is not None and waiting.get("reason") == CRASH_LOOP
