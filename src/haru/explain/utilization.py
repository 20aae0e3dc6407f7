"""How busy devices are, where somebody says so: a driver or a node agent, or the pods of simulated nodes.

It stands in the claim's status (`status.devices[].data`, KEP-4817) under `haru.dev/utilization-percent`; on simulated
nodes in the annotation `simulated.haru.dev/utilization` of a pod. Everywhere else it is unknown, and stays so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.engine import Snapshot
from haru.engine.dra import DeviceId
from haru.engine.state import PodInfo
from haru.kube.device_usage import UTILIZATION_KEY
from haru.kube.meta import annotations_of

IDLE_BELOW_PERCENT = 5.0
UTILIZATION_ANNOTATION = "simulated.haru.dev/utilization"
_SIMULATED = "simulated.haru.dev/profile"


def utilization(snapshot: Snapshot, claim: str, users: Sequence[PodInfo], device: DeviceId) -> float | None:
    """The percentage to which a claim uses a device, by its path and users; None if it is unknown."""
    found = _reported(snapshot, claim, device)
    return _simulated(snapshot, users) if found is None else found


def _reported(snapshot: Snapshot, claim: str, device: DeviceId) -> float | None:
    known = snapshot.claims.get(claim) or {}
    for entry in (known.get("status") or {}).get("devices") or ():
        if (entry.get("driver"), entry.get("pool"), entry.get("device")) == device:
            data = entry.get("data")
            return percentage(data.get(UTILIZATION_KEY)) if isinstance(data, Mapping) else None
    return None


def _simulated(snapshot: Snapshot, users: Sequence[PodInfo]) -> float | None:
    """What the annotations of pods on simulated nodes say; the busiest pod counts."""
    said = [percentage(annotations_of(p.obj).get(UTILIZATION_ANNOTATION)) for p in users if _plays(snapshot, p)]
    return max((percent for percent in said if percent is not None), default=None)


def _plays(snapshot: Snapshot, pod: PodInfo) -> bool:
    node = snapshot.nodes.get(pod.node)
    return node is not None and _SIMULATED in node.labels


def percentage(value: object) -> float | None:
    """A number from 0 to 100, or a text of one; None for anything else: it is then unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number <= 100 else None


def idle_devices(snapshot: Snapshot, claims: Sequence[str], users: Sequence[PodInfo]) -> int | None:
    """How many devices of claims are known to idle; None if it is known of none."""
    said: list[float] = []
    for path in claims:
        status = (snapshot.claims.get(path) or {}).get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        mine = [pod for pod in users if path in pod.claim_paths]
        found = (utilization(snapshot, path, mine, DeviceId(r["driver"], r["pool"], r["device"])) for r in results)
        said += [percent for percent in found if percent is not None]
    return sum(percent < IDLE_BELOW_PERCENT for percent in said) if said else None
