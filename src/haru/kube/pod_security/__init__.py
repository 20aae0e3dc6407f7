"""Pod Security Standards: what pods may ask of their node at the levels privileged, baseline and restricted. Pure.

levels      levels, versions, and what the labels of a namespace say
checks      what a check is, and what several of them find together
baseline    the checks of the level baseline
restricted  those that restricted adds, some in place of weaker ones
templates   the pods inside workloads
Source: k8s.io/pod-security-admission, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

from functools import lru_cache

from haru.kube.meta import Obj
from haru.kube.pod_security.baseline import BASELINE
from haru.kube.pod_security.checks import Look, Verdict
from haru.kube.pod_security.levels import Standard
from haru.kube.pod_security.restricted import RESTRICTED


def evaluate(standard: Standard, metadata: Obj, spec: Obj) -> Verdict:
    """Check a pod, or a template of one, against a standard."""
    found = (look(metadata, spec) for look in _looks(standard))
    return Verdict(tuple(finding for finding in found if finding is not None))


@lru_cache(maxsize=256)
def _looks(standard: Standard) -> tuple[Look, ...]:
    """The checks of a standard: those of baseline first, without those that a restricted one stands for."""
    if standard.level == "privileged":
        return ()
    more = RESTRICTED if standard.level == "restricted" else ()
    overridden = {name for check in more if check.at(standard.minor) for name in check.overrides}
    chosen = [check for check in BASELINE if check.name not in overridden]
    looks = (check.at(standard.minor) for check in (*chosen, *more))
    return tuple(look for look in looks if look is not None)
