"""Pod affinity to pods that are on no node: to do without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine import Reason
from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.diagnosis.pod_affinity import without_terms
from haru.explain.explanation import Remedy
from haru.explain.remedies.node_openings import Openings
from haru.explain.remedies.pod_changes import changed_pods, pod_changes
from haru.kube.meta import Obj


def without_missing_targets(openings: Openings, reasons: Sequence[Reason]) -> Iterator[Remedy]:
    """The work without the terms that no pod on a node matches."""
    texts = list(dict.fromkeys(str(r.data["labels"]) for r in reasons if r.type == "AffinityPodMissing"))
    if not texts:
        return

    def change(spec: Obj) -> Obj:
        return without_terms(spec, texts)

    pods = changed_pods(openings.snapshot, openings.work, change)
    if openings.work.fits(hypothesis.with_pods(openings.snapshot, pods), openings.options):
        changes, costs = pod_changes(openings.snapshot, pods, change)
        text = f"leave out the pod affinity to {listed(texts)}: no pod on a node has it"
        costs = f"the work may be far from what it wants to be near; {costs}"
        yield Remedy("DropConstraint", text, changes, 12, True, costs)
