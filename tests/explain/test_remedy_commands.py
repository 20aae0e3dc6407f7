"""The command of a remedy: what it says, word by word, and that its patches make of an object what they are to make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from explain_world import Obj, gang, pod, template, told, workload
from hypothesis import given
from hypothesis import strategies as st
from kubectl_shell import json_patched, merged
from test_remedy_order import cordoned, hoppers, running, tainted

from haru.api.changes import Apply
from haru.api.snapshot import Snapshot
from haru.explain import Explanation
from haru.explain.remedies.json_diff import json_patch, merge_patch

values = st.recursive(
    st.integers(0, 2) | st.sampled_from(["", "a", "a/b", "~"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "l/m", "n~o"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values, values)
def test_json_patch_makes_second_value_of_first(before: object, after: object) -> None:
    assert json_patched(before, json_patch(before, after)) == after


@given(st.dictionaries(st.text(max_size=1), values), st.dictionaries(st.text(max_size=1), values))
def test_merge_patch_makes_second_object_of_first(before: Obj, after: Obj) -> None:
    assert merged(before, merge_patch(before, after)) == after


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [{"op": "remove", "path": "/a/1"}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"op": "add", "path": "/a/-", "value": 2}]),
        ({"a": {"b/c": "x"}}, {"a": {"b/c": "y"}}, [{"op": "replace", "path": "/a/b~1c", "value": "y"}]),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
    ],
)
def test_json_patch_is_short(before: Obj, after: Obj, operations: list[Obj]) -> None:
    assert json_patch(before, after) == operations


@dataclass
class Case:
    """A cluster, what is put into it, the kind of a remedy, and its command."""

    name: str
    snapshot: Callable[[], Snapshot]
    objects: list[Obj]
    kind: str
    command: str
    about: str = "pod/p"


def on(label: str, value: str) -> Obj:
    """The affinity to nodes with a label."""
    term = {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


CASES = [
    Case("uncordon", lambda: cordoned("dgx-h100-0"), [template(), pod("p", "gpu")], "Uncordon",
         "kubectl uncordon dgx-h100-0"),
    Case("a taint", lambda: tainted("maintenance"), [template(), pod("p", "gpu")], "Untaint",
         "kubectl taint nodes dgx-h100-0 maintenance:NoSchedule-"),
    Case("a toleration", lambda: tainted("maintenance"), [template(), pod("p", "gpu")], "Tolerate",
         "kubectl patch pod p -n default --type=merge -p '{\"spec\":{\"tolerations\":[{\"key\":\"maintenance\","
         "\"operator\":\"Equal\",\"value\":\"\",\"effect\":\"NoSchedule\"}]}}'"),
    Case("a label", hoppers, [template(), pod("p", "gpu", nodeSelector={"pool": "x"})], "LabelNodes",
         "kubectl label node dgx-h100-0 pool=x"),
    Case("a pod made again", hoppers, [template(), pod("p", "gpu", schedulerName="default-schedular")], "CorrectName",
         "kubectl patch pod p -n default --dry-run=client -o json --type=json -p "
         "'[{\"op\":\"replace\",\"path\":\"/spec/schedulerName\",\"value\":\"default-scheduler\"}]'"
         " | kubectl replace --force -f -"),
    Case("work to end", hoppers, [*running(220), pod("p", cpu="210")], "Evict", "kubectl delete pod work -n default"),
    Case("more nodes", hoppers, [*running(220, priority=9), pod("p", cpu="210")], "AddNodes",
         "kubectl patch node dgx-h100-0 --dry-run=client -o json --type=json -p "
         '\'[{"op":"replace","path":"/metadata/name","value":"dgx-h100-0-copy-1"},'
         '{"op":"replace","path":"/metadata/labels/kubernetes.io~1hostname","value":"dgx-h100-0-copy-1"}]\''
         " | kubectl create -f -"),
    Case("a node of another name", hoppers, [pod("p", affinity=on("kubernetes.io/hostname", "x"))], "AddNodes",
         "kubectl patch node cpu-0 --dry-run=client -o json --type=json -p "
         '\'[{"op":"replace","path":"/metadata/name","value":"cpu-0-copy-1"},'
         '{"op":"replace","path":"/metadata/labels/kubernetes.io~1hostname","value":"x"}]\''
         " | kubectl create -f -"),
    Case("a node of another zone", hoppers, [pod("p", affinity=on("topology.kubernetes.io/zone", "mars"))], "AddNodes",
         "kubectl patch node cpu-0 --dry-run=client -o json --type=json -p "
         '\'[{"op":"replace","path":"/metadata/name","value":"cpu-0-copy-1"},'
         '{"op":"replace","path":"/metadata/labels/kubernetes.io~1hostname","value":"cpu-0-copy-1"},'
         '{"op":"replace","path":"/metadata/labels/topology.kubernetes.io~1zone","value":"mars"}]\''
         " | kubectl create -f -"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_command_of_remedy(case: Case) -> None:
    found = told(case.snapshot(), *case.objects, about=case.about)
    assert next(r.command for r in found.remedies if r.kind == case.kind) == case.command


def test_claim_from_template_is_made_again_after_its_template() -> None:
    first = told(hoppers(), template(of="gpu.nvidia.co"), pod("p", "gpu")).remedies[0]
    template_step, claim_step = first.command.split(" && ")
    assert template_step == (
        "kubectl patch resourceclaimtemplate gpu -n default --dry-run=client -o json --type=json -p "
        '\'[{"op":"replace","path":"/spec/spec/devices/requests/0/exactly/deviceClassName","value":"gpu.nvidia.com"}]\''
        " | kubectl replace --force -f -"
    )
    assert claim_step == "kubectl delete resourceclaim p-gpu -n default"


def test_claim_of_a_template_that_was_mended_since_is_made_again_alone() -> None:
    snapshot = hoppers().changed(Apply([template(of="gpu.nvidia.co"), pod("p", "gpu")]))
    mended = Snapshot.of([*(obj for obj in snapshot if obj["kind"] != "ResourceClaimTemplate"), template()])
    found = mended.explain("pod/p")
    assert isinstance(found, Explanation)
    assert found.remedies[0].command == "kubectl delete resourceclaim p-gpu -n default"


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "Job"])
def test_claims_of_all_waiting_pods_of_a_workload_are_made_again_after_their_template(kind: str) -> None:
    works = [workload(kind, name, 3, template="gpu") for name in ("web", "other")]
    first = told(hoppers(), template(of="gpu.nvidia.co"), *works, about=f"{kind.lower()}/web").remedies[0]
    assert first.command.split(" && ")[1:] == [
        "kubectl delete resourceclaim web-0-gpu web-1-gpu web-2-gpu -n default"
    ], "those of another workload are none of its own"


def test_gang_members_are_gone_while_their_group_is_made_again() -> None:
    found = told(hoppers(), template(count=8), *gang("g", 2, template="gpu"), about="podgroup/g")
    lower = next(remedy for remedy in found.remedies if remedy.kind == "LowerMinCount")
    assert lower.command.split(" && ") == [
        "kubectl patch pod g-0 g-1 -n default --dry-run=client -o json --type=merge -p "
        '\'{"spec":{"nodeName":null}}\' >remade.json',
        "kubectl delete -f remade.json",
        "kubectl patch podgroups.scheduling.k8s.io g -n default --dry-run=client -o json --type=json -p "
        '\'[{"op":"replace","path":"/spec/schedulingPolicy/gang/minCount","value":1}]\' | kubectl replace --force -f -',
        "kubectl create -f remade.json",
    ]
