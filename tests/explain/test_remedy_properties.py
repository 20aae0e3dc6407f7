"""What holds for the remedies of every situation: which labels they name, and that whatever is offered was tried."""

from __future__ import annotations

import re

import pytest
from situations import Situation
from test_situations import EVERY

from haru.explain import Explanation, Remedy
from haru.kube.node_labels import KUBELET_LABELS, is_found_out

UNTRIED = frozenset(
    {"CorrectName", "RemoveGates", "AddMembers", "UseScheduler", "Resume", "CreateClaim", "CreateClaimTemplate"}
    | {"CreateDeviceClass", "CreatePodGroup", "CreateVolumeClaim", "TurnOnGates", "LowerMinCount", "AddNodes"}
    | {"RaiseMemoryLimit", "CorrectCommand", "RestartPod", "ProvideImage", "InspectDriver", "ScaleUp"}
)
"""Kinds that may be offered although they are not enough, or cannot be tried; the text says so."""


_WELL_KNOWN = re.compile(
    r"(?<![\w.-])(?<!taint )(?:(?:node|topology|kubelet|(?:failure-domain\.)?beta)\.)?kubernetes\.io/"
)
"""Labels that a kubelet, a cloud or a component writes."""


def labels_set(remedy: Remedy) -> set[str]:
    """The labels that a remedy sets on nodes that exist."""
    patches = [change["patch"] for change in remedy.changes if change["action"] == "patch"]
    return {key for patch in patches for key in (patch.get("metadata") or {}).get("labels") or {}}


@pytest.mark.parametrize("one", [one for _, one in EVERY], ids=lambda one: one.name)
def test_remedies_name_no_well_known_label_are_confirmed_and_have_commands(one: Situation) -> None:
    told = one.explanation()
    if not isinstance(told, Explanation):
        return
    waits = any(reason.type in ("SchedulerUnknown", "FailedCreate", "QuotaExceeded") for reason in told.reasons)
    for remedy in told.remedies:
        assert not any(is_found_out(label) for label in labels_set(remedy)), remedy
        if "topology key" not in remedy.summary:
            assert not any(label in remedy.summary for label in KUBELET_LABELS), remedy
            assert not _WELL_KNOWN.search(remedy.summary), remedy
        assert "kubectl label" not in remedy.command or not _WELL_KNOWN.search(remedy.command), remedy
        remade = remedy.kind == "Evict" and remedy.costs.endswith("unless it is scaled down first")
        assert remedy.confirmed or remedy.kind in UNTRIED or waits or remade, remedy
        assert remedy.command or all(change["action"] == "create" for change in remedy.changes), remedy


def whole_cards(told: Explanation) -> int:
    """How many whole cards work needs together."""
    return max((request.needed or 0 for request in told.requests if "mig" not in request.asked.device_class), default=0)


@pytest.mark.parametrize("one", [one for _, one in EVERY], ids=lambda one: one.name)
def test_no_partition_for_several_cards_and_no_gate_of_a_queue_taken_off_by_hand(one: Situation) -> None:
    told = one.explanation()
    gates = {gate["name"] for obj in one.objects for gate in (obj.get("spec") or {}).get("schedulingGates") or ()}
    queued = any(gate.startswith("kueue.x-k8s.io/") for gate in gates)
    for remedy in told.remedies:
        text = f"{remedy.summary} {remedy.command} {remedy.changes}"
        for name in ("dgx-a100-80gb-mig", "nvidia.com/mig.capable"):
            text = text.replace(name, "")
        assert whole_cards(told) < 2 or "mig" not in text, remedy
        assert not queued or "schedulingGates" not in text, remedy
        assert "schedulingGates" not in text or "remove the scheduling gates" in remedy.summary, remedy


def test_situations_have_several_whole_cards_beside_partitions_and_gates_of_a_queue() -> None:
    told = {one.name: one.explanation() for _, one in EVERY}
    assert sum(whole_cards(each) > 1 for each in told.values()) >= 20
    beside = [name for name, each in told.items() if whole_cards(each) > 1 and "mig" in str(each)]
    assert beside, "a gang of 8 x 8 beside partitions"
    assert sum("Kueue" in name for name in told) >= 3
