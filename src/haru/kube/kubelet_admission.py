"""Whether a node takes a pod that was bound to it, and who goes for a critical one. Pure.

Source: the kubelet's handlers of admission, in their order. Who goes is decided last here, so that nobody goes for a
pod that is refused all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haru.kube.meta import Obj
from haru.kube.node_admission import (
    Shortage,
    apparmor_problem,
    groups_problem,
    is_critical,
    os_problem,
    placement_problem,
    pressure_problem,
    sysctl_problem,
)
from haru.kube.node_features import features_problem
from haru.kube.node_preemption import NO_PREEMPTION, NoVictimsError, victims


@dataclass(frozen=True, slots=True)
class KubeletView:
    """What a kubelet knows when a pod comes."""

    node: Obj
    features: Collection[str]
    """Those that the node declares."""
    with_ports: Collection[Obj]
    """Other pods of the node; at least those that take ports of it."""
    short_of: Sequence[str] = ()
    """Conditions of pressure that hold."""
    has_apparmor: bool = True


class Admission(NamedTuple):
    """What becomes of a pod: a reason and a message if it is refused; otherwise who goes for it."""

    problem: tuple[str, str] | None = None
    victims: Sequence[Obj] = ()
    resource: str = ""
    """The first of which there is too little."""


def admission(
    pod: Obj, view: KubeletView, missing: Sequence[Shortage], others: Callable[[], Sequence[Obj]]
) -> Admission:
    """Decide about a pod for which the node has too little of this; `others` are the pods that may go."""
    problem = (
        pressure_problem(pod, view.short_of)
        or sysctl_problem(pod)
        or os_problem(pod)
        or groups_problem(pod, view.node)
        or (missing[0].problem if missing and not is_critical(pod) else None)
        or placement_problem(pod, view.with_ports, view.node)
        or apparmor_problem(pod, enabled=view.has_apparmor)
        or features_problem(pod, view.features)
    )
    if problem or not missing:
        return Admission(problem)
    try:
        return Admission(None, victims(pod, others(), missing), missing[0].resource)
    except NoVictimsError as error:
        return Admission((NO_PREEMPTION, str(error)))
