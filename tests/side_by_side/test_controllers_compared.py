"""The comparison of controllers: what does not count, and that its cases can be played."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from controllers_compared import CASES, KINDS, Plane, outcome, plain
from manifests import Obj

VERBS = ["create", "patch", "set", "scale", "delete", "annotate", "rollout", "label", "taint", "cordon", "uncordon"]


def pod(suffix: str, hash_: str, node: str) -> Obj:
    owner = {"kind": "ReplicaSet", "name": f"d-{hash_}", "uid": f"{suffix}-uid"}
    metadata = {"name": f"d-{hash_}-{suffix}", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]}
    spec = {"nodeName": node, "volumes": [{"name": f"kube-api-access-{suffix}"}]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"podIP": "10.0.0.1", "phase": "Running"}}


def test_names_that_are_made_up_do_not_count() -> None:
    one, other = pod("bcd2f", "6575c5d64c", "cpu-1"), pod("xvz99", "q9qbzw62fq", "cpu-0")
    assert plain(one, {"6575c5d64c": "H1"}) == plain(other, {"q9qbzw62fq": "H1"})
    assert plain(one, {"6575c5d64c": "H1"}) != plain(other, {"q9qbzw62fq": "H2"})
    assert plain(one, {})["status"] == {"phase": "Running"}


class Recorded(Plane):
    """A plane whose objects are given."""

    def listed(self, *where: str, kinds: str = KINDS) -> list[Obj]:
        """The same whatever is asked, but for events."""
        if kinds == "events":
            about = {"kind": "Pod", "name": "d-6575c5d64c-bcd2f"}
            event = {"involvedObject": about, "type": "Normal", "message": "on cpu-1", "source": {}}
            return [{**event, "reason": "Started", "reportingComponent": "kubelet"}, {**event, "reason": "Deleted"}]
        owners = [{"kind": "Deployment", "name": "d", "uid": "u"}]
        metadata = {"name": "d-6575c5d64c", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners}
        metadata |= {"labels": {"pod-template-hash": "6575c5d64c"}}
        return [{"kind": "ReplicaSet", "metadata": metadata}, pod("bcd2f", "6575c5d64c", "cpu-1")]


def test_outcome_has_objects_and_events_of_controllers() -> None:
    found = outcome(Recorded("kube", Path("kubeconfig")), "default")
    assert sorted(text.split()[0] for text in found) == ["Event", "Pod", "ReplicaSet"]
    assert isinstance(found, Counter)
    assert found["Event None: Pod/d-H1-*: Normal Deleted: on NODE"] == 1
    assert all("6575c5d64c" not in text for text in found)


@pytest.mark.parametrize("name", CASES)
def test_steps_of_case_are_objects_or_words_of_kubectl(name: str) -> None:
    for change in (change for step in CASES[name] for change in step):
        if isinstance(change, dict):
            assert {"apiVersion", "kind", "metadata"} <= change.keys()
            continue
        assert change[0] in VERBS
        for word in change:
            if word.startswith("--patch="):
                assert json.loads(word.removeprefix("--patch="))
