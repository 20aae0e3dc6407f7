"""What a container prints that is told to end, in place of what its script would have printed from then on. Pure.

Source: kubelet `kuberuntime_container.go`: hooks first, sidecars after the others, the last first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from haru.kube.container_restarts import is_sidecar
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.simulated_containers import simulation
from haru.kube.simulated_containers.container_scripts import Script
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.pod_neighbours import ended_at
from haru.kube.simulated_containers.stop_traps import KILLED, hook_seconds, killed_after, run_on_stop, traps_of
from haru.kube.simulated_containers.text import shifted

_MOMENT: Final = timedelta(milliseconds=1)
"""So that what is printed last is printed before the end, however seconds are rounded."""


def stopped_script(
    pod: Obj,
    container: Mapping[str, Any],
    script: Script,
    began: datetime,
    ended: tuple[datetime, int] | None = None,
    sources: PodSources = NO_SOURCES,
    seen: datetime | None = None,
) -> Script:
    """The script of a run, with what its trap prints if it is told to end; `ended` is when it has, with which code.

    `seen` is when the caller has seen that the pod goes, of which its object tells whole seconds.
    """
    if traps_of(container) is None or simulation.setting(pod, container["name"], simulation.STOP_SECONDS) is not None:
        return script
    told = _told_at(pod, container, seen) or _told_before(pod, container, script, ended)
    after = math.inf if told is None else max(0.0, (told - began).total_seconds())
    ran = run_on_stop(pod, container, sources, after) if math.isfinite(after) else None
    if ran is None or (script.ends_after is not None and script.ends_after <= after):
        return script
    lines = (*script.printed(after), *((after + one.at, shifted(one.text, after)) for one in ran.lines))
    ends_after = None if ran.ends_after is None else after + ran.ends_after
    return replace(script, lines=lines, repeats=(), ends_after=ends_after, ends_line=ran.ends_line)


def _told_at(pod: Obj, container: Mapping[str, Any], seen: datetime | None) -> datetime | None:
    """When a container of a pod that is deleted is told to end; None for one that is not, or not yet."""
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    if text := pod["metadata"].get("deletionTimestamp"):
        asked = parse_time(text) - timedelta(seconds=grace)
        seen = asked if seen is None else max(asked, seen)
    if seen is None:
        return None
    ends = [ended_at(pod, name) for name in _served_by(pod, container)]
    known = [one for one in ends if one is not None]
    return max([seen, *known]) + timedelta(seconds=hook_seconds(pod, container, grace)) if known == ends else None


def _served_by(pod: Obj, container: Mapping[str, Any]) -> list[str]:
    """The containers that a sidecar is there for, which end before it."""
    spec = pod.get("spec") or {}
    init, main = ([one["name"] for one in spec.get(member) or ()] for member in ("initContainers", "containers"))
    if not is_sidecar(container) or container["name"] not in init:
        return []
    return [*init[init.index(container["name"]) + 1 :], *main]


def _told_before(
    pod: Obj, container: Mapping[str, Any], script: Script, ended: tuple[datetime, int] | None
) -> datetime | None:
    """When a run was told to end that ended as its trap does, or was killed in it; None for one that ended by itself.

    Such a script ends otherwise, or later.
    """
    ran = run_on_stop(pod, container) if ended is not None else None
    if ran is None or ended is None:
        return None
    lasts = math.inf if ran.ends_after is None else ran.ends_after
    patience = killed_after(pod, container, _restart_grace(pod, container))
    if ended[1] == KILLED and lasts > patience and (script.ends_after is None or script.exit_code != KILLED):
        return ended[0] - timedelta(seconds=patience) - _MOMENT
    return ended[0] - timedelta(seconds=lasts) - _MOMENT if ended[1] == ran.exit_code and lasts < math.inf else None


def _restart_grace(pod: Obj, container: Mapping[str, Any]) -> float:
    """The grace period of a container whose probe has failed."""
    probes = (container.get(name) or {} for name in ("livenessProbe", "startupProbe"))
    own = [one["terminationGracePeriodSeconds"] for one in probes if "terminationGracePeriodSeconds" in one]
    seconds = own[0] if own else (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return 30.0 if seconds is None else float(seconds)
