"""The entries of a journal. Each has one key that names what it is:

apply, remove           an object that appeared, changed or went
assume, forget          a pod placed by a decision [pod, node, claimed], and that taken back
assumeClaim             a claim as a decision leaves it [claim, written]; forgetClaim: its path
assumeVolume            a volume or volume claim as a decision leaves it; forgetVolume: [kind, path]
nominate, unnominate    a place kept for a pod, and that given up
reserve                 the places kept for the head of the queue, or null
partition               the part of the cluster in which work is placed; before any object
profile                 a profile, under the name by which decisions mention it
decide                  the pods (paths), their group (path or null), options, profile; and `decision`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.framework.options import Options
from haru.engine.journal.values import decision_value, nomination_from, options_value, reservation_from
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision, PodKey, namespaced_name
from haru.engine.state.partition import partition_from
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """What a decision was made from besides the snapshot; `share` seeds its identifiers of device shares."""

    pods: Sequence[Obj]
    group: Obj | None
    options: Options
    share: str


def decided_entry(given: DecisionInput, profile: str, decision: Decision) -> Obj:
    """Return the entry of a decision; `profile` is the name under which its profile was written."""
    value = {
        "pods": [namespaced_name(pod) for pod in given.pods],
        "group": namespaced_name(given.group) if given.group is not None else None,
        "options": options_value(given.options),
        "profile": profile,
        "share": given.share,
    }
    return {"decide": value, "decision": decision_value(decision)}


def entry_kinds() -> frozenset[str]:
    """What an entry may be."""
    return frozenset(_CHANGES) | {"profile", "decide"}


def change(cluster: SchedulerCache, kind: str, value: object) -> None:
    """Tell a cluster of a change."""
    _CHANGES[kind](cluster, value)


_CHANGES = {
    "apply": lambda cluster, value: cluster.apply(value),
    "remove": lambda cluster, value: cluster.remove(value),
    "assume": lambda cluster, value: cluster.assume_pod(PodKey(*value[0]), value[1], tuple(value[2]), *value[3:]),
    "forget": lambda cluster, value: cluster.forget_pod(PodKey(*value)),
    "assumeClaim": lambda cluster, value: cluster.assume_claim(value[0], written=value[1]),
    "forgetClaim": lambda cluster, value: cluster.forget_claim(value),
    "assumeVolume": lambda cluster, value: cluster.assume_volume(value),
    "forgetVolume": lambda cluster, value: cluster.forget_volume(*value),
    "nominate": lambda cluster, value: cluster.nominate([nomination_from(value)]),
    "unnominate": lambda cluster, value: cluster.forget_nomination(PodKey(*value)),
    "partition": lambda cluster, value: cluster.confine(partition_from(value)),
    "reserve": lambda cluster, value: cluster.reserve(reservation_from(value) if value else None),
}
