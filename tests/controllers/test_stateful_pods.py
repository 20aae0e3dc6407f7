"""Who owns the volume claims of a StatefulSet's pods."""

from __future__ import annotations

import pytest

from haru.controllers.stateful_pods import claim_owners
from haru.kube.meta import Obj

SET: Obj = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s", "controller": True}
POD: Obj = {"apiVersion": "v1", "kind": "Pod", "name": "db-1", "uid": "p", "controller": True}
SET["blockOwnerDeletion"] = POD["blockOwnerDeletion"] = True
OTHER: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}


@pytest.mark.parametrize(
    ("scaled", "deleted", "surplus", "before", "after"),
    [
        ("Retain", "Retain", False, [], None),
        ("Retain", "Retain", True, [SET, OTHER], [OTHER]),
        ("Retain", "Delete", False, [], [SET]),
        ("Retain", "Delete", True, [SET], None),
        ("Delete", "Retain", False, [SET, POD], []),
        ("Delete", "Retain", True, [OTHER], [OTHER, POD]),
        ("Delete", "Delete", False, [POD], [SET]),
        ("Delete", "Delete", True, [SET], [POD]),
        # An owner that is no controller becomes one.
        ("Retain", "Delete", False, [{**SET, "controller": False}], [SET]),
        # Left by an earlier set or pod of that name, or controlled by somebody else: left alone.
        ("Delete", "Delete", False, [{**SET, "uid": "earlier"}], None),
        ("Delete", "Delete", False, [{**POD, "uid": "earlier"}], None),
        ("Delete", "Delete", False, [{**OTHER, "controller": True}], None),
        ("Delete", "Delete", False, [{**OTHER, "controller": True}, SET], [{**OTHER, "controller": True}]),
    ],
)
def test_owners_of_claim_follow_retention_policy(
    scaled: str, deleted: str, surplus: bool, before: list[Obj], after: list[Obj] | None
) -> None:
    policy = {"whenScaled": scaled, "whenDeleted": deleted}
    stateful_set = {"metadata": {"name": "db", "uid": "s"}, "spec": {"persistentVolumeClaimRetentionPolicy": policy}}
    pod, claim = {"metadata": {"name": "db-1", "uid": "p"}}, {"metadata": {"ownerReferences": before}}
    assert claim_owners(stateful_set, pod, claim, surplus=surplus) == after
