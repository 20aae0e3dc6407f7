"""Which containers of a pod are started again after they ended.

Source: restart policies of pods and of containers (KEP-753 sidecars, KEP-5307 rules per container).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.kube.container_restarts import restarts_after
from haru.kube.meta import Obj
from haru.node.podworker.observed import EXITED, RUNNING, SeenContainer


def should_restart(pod: Obj, container: Mapping[str, Any], seen: SeenContainer | None, *, init: bool = False) -> bool:
    """Whether a container is (still) to be started, going by how it ended."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if seen is None:
        return True
    if seen.state == RUNNING:
        return False
    if seen.state != EXITED:
        return True
    return restarts_after(pod, container, seen.exit_code, init=init)
