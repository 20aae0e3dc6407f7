"""What holds for the remedies of every situation: which labels they name, and that whatever is offered was tried."""

from __future__ import annotations

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
        assert remedy.confirmed or remedy.kind in UNTRIED or waits, remedy
        assert remedy.command or all(change["action"] == "create" for change in remedy.changes), remedy
