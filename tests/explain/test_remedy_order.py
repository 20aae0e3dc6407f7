"""The first remedy is what an experienced platform engineer would try first: situations and their first remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from explain_world import Obj, cluster, gang, pod, template, told

from haru.api.snapshot import Snapshot
from haru.explain import Explanation


def kinds(explanation: Explanation) -> list[str]:
    return [remedy.kind for remedy in explanation.remedies]


def test_gang_gets_add_nodes_remedy_with_missing_count() -> None:
    found = told(cluster(dgx_h100=2, cpu=1), template(count=8), *gang("g", 8, template="gpu"), about="podgroup/g")
    added = next(remedy for remedy in found.remedies if remedy.kind == "AddNodes")
    assert added.confirmed and added.summary == "add 6 nodes like dgx-h100-0, with its devices"


def test_simulated_nodes_with_devices_of_another_driver_are_offered_in_words() -> None:
    """A copy of the Node has what its profile has: whoever published the other devices has to publish more."""
    objects = [obj for obj in cluster(dgx_h100=1) if obj["kind"] != "ResourceSlice"]
    for number, item in enumerate(obj for obj in cluster(dgx_h100=1) if obj["kind"] == "ResourceSlice"):
        name = f"dgx-h100-0-{item['spec']['driver']}-x{number}z5k"
        objects.append({**item, "metadata": {**item["metadata"], "name": name}})
    found = told(Snapshot.of(objects), template(count=8), *gang("g", 2, template="gpu"), about="podgroup/g")
    added = next(remedy for remedy in found.remedies if remedy.kind == "AddNodes")
    text = "add 1 node like dgx-h100-0, with its devices; gpu.nvidia.com has to publish devices there"
    assert (added.summary, added.command) == (text, "")
    assert added.costs.endswith("a copy of the Node alone has none of those")
    found = told(Snapshot.of(objects), *gang("g", 2, cpu="200"), about="podgroup/g")
    assert next(remedy for remedy in found.remedies if remedy.kind == "AddNodes").command


def test_nodes_to_order_are_named_by_type_group_devices_and_label() -> None:
    order = {"node.kubernetes.io/instance-type": "p5.48xlarge", "eks.amazonaws.com/nodegroup": "h100", "pool": "train"}
    nodes = [
        {**obj, "metadata": {**obj["metadata"], "labels": {"kubernetes.io/hostname": obj["metadata"]["name"], **order}}}
        if obj["kind"] == "Node"
        else obj
        for obj in cluster(dgx_h100=1)
    ]
    members = gang("g", 3, template="gpu", nodeSelector={"pool": "train"})
    found = told(Snapshot.of(nodes), template(count=8), *members, about="podgroup/g")
    added = next(remedy for remedy in found.remedies if remedy.kind == "AddNodes")
    what = "instance type p5.48xlarge, node group h100, 8 NVIDIA H100 80GB HBM3, pool=train"
    assert (added.summary, added.command) == (f"add 2 nodes like dgx-h100-0 ({what}), with its devices", "")


@pytest.mark.parametrize(
    "label",
    [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/arch",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/rack",
        "failure-domain.beta.kubernetes.io/region",
        "nvidia.com/gpu.product",
        "cloud.google.com/gke-accelerator",
    ],
)
def test_well_known_node_label_is_not_offered_as_remedy(label: str) -> None:
    found = told(cluster(dgx_h100=1), template(), pod("p", "gpu", nodeSelector={label: "another"}))
    assert "LabelNodes" not in kinds(found)


def test_label_nodes_remedy_changes_only_settable_label() -> None:
    selector = {"kubernetes.io/arch": "amd64", "pool": "training"}
    found = told(cluster(dgx_h100=1), template(), pod("p", "gpu", nodeSelector=selector))
    assert found.remedies[0].summary == "label dgx-h100-0 with pool=training"


def test_multi_card_gang_is_not_offered_partitions() -> None:
    snapshot = cluster(dgx_h100=2, dgx_a100_80gb_mig=2)
    found = told(snapshot, template(count=8), *gang("g", 8, template="gpu"), about="podgroup/g")
    assert found.remedies[0].kind == "LowerCount" and "AcceptAlternative" not in kinds(found)


def test_single_card_request_may_accept_partition() -> None:
    found = told(cluster(dgx_h100_mig_balanced=1), template(), pod("p", "gpu"))
    assert kinds(found) == ["AcceptAlternative"]


def test_selector_excluding_partitions_is_not_relaxed_for_several_cards() -> None:
    whole = {"cel": {"expression": 'device.attributes["gpu.nvidia.com"].type == "gpu"'}}
    asked = template(count=2, of="any", selectors=[whole])
    every = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "any"}, "spec": {}}
    found = told(cluster(dgx_h100_mig_balanced=1), every, asked, pod("p", "gpu"))
    assert "RelaxSelector" not in kinds(found)


@dataclass
class Situation:
    """A cluster and what is put into it; the first remedy's kind, words of it, and whether it is enough."""

    name: str
    snapshot: Callable[[], Snapshot]
    objects: list[Obj]
    kind: str
    words: str
    confirmed: bool = True
    about: str = "pod/p"
    then: list[str] = field(default_factory=list)
    """The kinds of the remedies after it."""


def hoppers() -> Snapshot:
    return cluster(dgx_h100=1, cpu=1)


def plugins() -> Snapshot:
    return cluster(dgx_h100_plugin=1)


def tainted(*keys: str) -> Snapshot:
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    return changed_nodes(hoppers(), {"dgx-h100-0": {"taints": taints}})


def cordoned(name: str) -> Snapshot:
    return changed_nodes(hoppers(), {name: {"unschedulable": True}})


def changed_nodes(snapshot: Snapshot, specs: dict[str, Obj]) -> Snapshot:
    nodes = {o["metadata"]["name"]: o for o in snapshot if o["kind"] == "Node"}
    changed = [{**nodes[name], "spec": spec} for name, spec in specs.items()]
    return Snapshot([*(o for o in snapshot if o["metadata"]["name"] not in specs or o["kind"] != "Node"), *changed])


def running(cpu: int, priority: int = 0, owner: str = "") -> list[Obj]:
    """A pod that has so much of the large node."""
    found = pod("work", cpu=str(cpu), nodeName="dgx-h100-0", priority=priority)
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "agent", "uid": "u", "controller": True}
        found["metadata"]["ownerReferences"] = [reference]
    return [{**found, "status": {"phase": "Running"}}]


SITUATIONS = [
    Situation("a class with a typing error", hoppers, [template(of="gpu.nvidia.co"), pod("p", "gpu")],
              "CorrectName", "DeviceClass gpu.nvidia.com in place of gpu.nvidia.co", then=["CreateDeviceClass"]),
    Situation("a class with a typing error, for too much", hoppers,
              [template(of="gpu.nvidia.co", count=9), pod("p", "gpu")], "CorrectName",
              "gpu.nvidia.com", confirmed=False, then=["CreateDeviceClass"]),
    Situation("a class of another vendor", hoppers, [template(of="gpu.intel.com"), pod("p", "gpu")],
              "CreateDeviceClass", "gpu.intel.com", confirmed=False),
    Situation("a template with a typing error", hoppers, [template("one-gpu"), pod("p", "one-gpus")],
              "CorrectName", "ResourceClaimTemplate one-gpu in place of one-gpus", then=["CreateClaimTemplate"]),
    Situation("a template that is nowhere", hoppers, [pod("p", "one-gpu")],
              "CreateClaimTemplate", "one-gpu", confirmed=False),
    Situation("a group with a typing error", hoppers, [*gang("training", 2)[:2], pod("p", group="trainign")],
              "CorrectName", "PodGroup training in place of trainign", then=["CreatePodGroup"]),
    Situation("a group that is nowhere", hoppers, [pod("p", group="training")], "CreatePodGroup", "training"),
    Situation("a resource with a typing error", plugins, [pod("p", limits={"nvidia.com/gpus": "1"})],
              "CorrectName", "resource nvidia.com/gpu in place of nvidia.com/gpus"),
    Situation("a resource that DeviceClasses serve, with a typing error", hoppers,
              [pod("p", limits={"nvdia.com/gpu": "1"})], "CorrectName", "nvidia.com/gpu in place of nvdia.com/gpu"),
    Situation("a node with a typing error", hoppers,
              [pod("p", nodeSelector={"kubernetes.io/hostname": "dxg-h100-0"})], "CorrectName",
              "hostname dgx-h100-0 in place of dxg-h100-0", then=["RelaxNodeSelector"]),
    Situation("a zone that is nowhere", hoppers,
              [template(), pod("p", "gpu", nodeSelector={"topology.kubernetes.io/zone": "eu-west-1c"})],
              "RelaxNodeSelector", "zone eu-west-1c"),
    Situation("a node with another number", hoppers, [pod("p", nodeSelector={"kubernetes.io/hostname": "dgx-h100-9"})],
              "RelaxNodeSelector", "hostname dgx-h100-9"),
    Situation("a template with another number", hoppers, [template("gpu-1"), pod("p", "gpu-2")],
              "CreateClaimTemplate", "gpu-2", confirmed=False),
    Situation("a label of one's own that no node has", hoppers,
              [template(), pod("p", "gpu", nodeSelector={"pool": "x"})],
              "LabelNodes", "label dgx-h100-0 with pool=x", then=["RelaxNodeSelector"]),
    Situation("a scheduler that nobody is", hoppers, [template(), pod("p", "gpu", schedulerName="volcano")],
              "UseScheduler", "default-scheduler in place of volcano"),
    Situation("a scheduler with a typing error", hoppers,
              [template(), pod("p", "gpu", schedulerName="default-schedular")],
              "CorrectName", "default-scheduler in place of default-schedular"),
    Situation("a scheduler that nobody is, and too many devices", hoppers,
              [template(count=9), pod("p", "gpu", schedulerName="volcano")], "UseScheduler", "default-scheduler",
              confirmed=False, then=["LowerCount"]),
    Situation("a node that cannot be reached", lambda: tainted("node.kubernetes.io/unreachable"),
              [template(), pod("p", "gpu")], "Untaint", "mend what is wrong with dgx-h100-0"),
    Situation("a node that is not ready, and kept for others", lambda: tainted("node.kubernetes.io/not-ready", "team"),
              [template(), pod("p", "gpu")], "Untaint",
              "the taint node.kubernetes.io/not-ready:NoSchedule goes, and remove the taint team:NoSchedule"),
    Situation("a node that is not ready, with a taint that is tolerated",
              lambda: tainted("node.kubernetes.io/not-ready", "team"),
              [template(), pod("p", "gpu", tolerations=[{"key": "team", "operator": "Exists"}])], "Untaint",
              "mend what is wrong with dgx-h100-0, so that the taint node.kubernetes.io/not-ready:NoSchedule goes"),
    Situation("a node that is tainted for a while", lambda: tainted("maintenance"), [template(), pod("p", "gpu")],
              "Tolerate", "maintenance", then=["Untaint"]),
    Situation("work of the same priority is in the way", hoppers, [*running(220), pod("p", cpu="210")],
              "Evict", "work"),
    Situation("more important work is in the way", hoppers, [*running(220, priority=9), pod("p", cpu="210")],
              "AddNodes", "dgx-h100-0", then=["Evict"]),
    Situation("a DaemonSet is in the way", hoppers, [*running(220, owner="DaemonSet"), pod("p", cpu="210")],
              "AddNodes", "dgx-h100-0"),
    Situation("a cordoned node", lambda: cordoned("dgx-h100-0"), [template(), pod("p", "gpu")],
              "Uncordon", "dgx-h100-0"),
]  # fmt: skip


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: case.name)
def test_first_remedy(case: Situation) -> None:
    found = told(case.snapshot(), *case.objects, about=case.about)
    first, *rest = found.remedies
    assert (first.kind, first.confirmed) == (case.kind, case.confirmed), found
    assert case.words in first.summary
    assert [remedy.kind for remedy in rest][: len(case.then)] == case.then


def test_misspelled_device_class_is_corrected_in_template() -> None:
    first = told(hoppers(), template(of="gpu.nvidia.co"), pod("p", "gpu")).remedies[0]
    gone, made, claim = first.changes
    assert (gone["action"], gone["object"]["kind"]) == ("delete", "ResourceClaimTemplate")
    assert made["object"]["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    assert (claim["action"], claim["object"]["kind"]) == ("delete", "ResourceClaim")


def test_unknown_scheduler_gives_fits_if() -> None:
    found = told(hoppers(), template(), pod("p", "gpu", schedulerName="volcano"))
    assert found.verdict == "FitsIf"
    assert found.summary.startswith("no scheduler volcano is known here")
    assert found.reasons[0].data == {"schedulerName": "volcano", "known": ["default-scheduler"]}


def event(component: str) -> Obj:
    about = {"kind": "Pod", "namespace": "default", "name": "gone"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": about,
            "reason": "Scheduled", "reportingComponent": component}  # fmt: skip


LEASE: Obj = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "volcano", "namespace": "kube-system"},
}
OF_API_SERVER = {**LEASE, "metadata": {**LEASE["metadata"], "labels": {"apiserver.kubernetes.io/identity": "x"}}}
TRIED: Obj = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
GATED: Obj = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}


@pytest.mark.parametrize(
    ("sign", "verdict"),
    [
        (pod("other", schedulerName="volcano", nodeName="cpu-0"), "Starting"),
        ({**pod("other", schedulerName="volcano"), "status": TRIED}, "Starting"),
        ({**pod("other", schedulerName="volcano"), "status": GATED}, "FitsIf"),
        (event("volcano"), "Starting"),
        (LEASE, "Starting"),
        (OF_API_SERVER, "FitsIf"),
    ],
    ids=["it placed", "it tried", "the server gated", "it told an event", "it holds a lease", "an API server's lease"],
)
def test_evidence_of_scheduler_changes_verdict(sign: Obj, verdict: str) -> None:
    assert told(hoppers(), template(), pod("p", "gpu", schedulerName="volcano"), sign).verdict == verdict


@pytest.mark.parametrize("holder", ["kube-scheduler", "kube-controller-manager", "haru-fleet-default"])
def test_lease_of_a_component_is_no_schedulers_name(holder: str) -> None:
    lease = {**LEASE, "metadata": {**LEASE["metadata"], "name": holder}}
    found = told(hoppers(), template(), pod("p", "gpu", schedulerName=holder), lease)
    assert found.verdict == "FitsIf"
    assert found.reasons[0].data == {"schedulerName": holder, "known": ["default-scheduler"]}


def test_remedies_are_unconfirmed_while_no_scheduler_serves_the_pod() -> None:
    found = told(hoppers(), template(count=9), pod("p", "gpu", schedulerName="volcano"))
    assert not any(remedy.confirmed for remedy in found.remedies)
    assert "only once a scheduler volcano runs" in found.remedies[1].costs


@pytest.mark.parametrize("remedies", [True, False])
def test_misspelled_node_name_gives_fits_if_with_and_without_remedies(remedies: bool) -> None:
    asked = pod("p", nodeSelector={"kubernetes.io/hostname": "dxg-h100-0"})
    assert told(hoppers(), asked, remedies=remedies).verdict == "FitsIf"


@pytest.mark.parametrize(("expression", "offered"), (("index < 2", False), ('index == "GPU-1"', True)))
def test_name_that_was_meant_is_offered_only_where_it_can_be_compared(expression: str, offered: bool) -> None:
    """What was an index is a UUID now: a text, and no number."""
    selectors = [{"cel": {"expression": f'device.attributes["gpu.nvidia.com"].{expression}'}}]
    found = told(cluster(dgx_h100=1), template(selectors=selectors), pod("p", "gpu"))
    assert ("CorrectName" in kinds(found)) == offered


def test_selector_that_a_runtime_class_may_have_set_is_not_said_to_be_gone_for_good() -> None:
    """Admission writes the RuntimeClass's own into each new pod, and refuses a pod with another value."""
    there = {"topology.kubernetes.io/zone": "eu-west-1c"}
    found = told(hoppers(), template(), pod("p", "gpu", nodeSelector=there, runtimeClassName="nvidia"))
    (relaxed,) = (remedy for remedy in found.remedies if remedy.kind == "RelaxNodeSelector")
    assert not relaxed.confirmed
    assert relaxed.costs.endswith("what RuntimeClass nvidia selects comes back when the pod is made")
