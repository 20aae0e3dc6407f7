from pathlib import Path
from typing import Any

import pytest

from haru.dra import allocate
from haru.drivers.simulated.catalogue import Catalogue
from haru.drivers.simulated.objects import PROFILE_LABEL, PROFILE_SPEC, device_classes, node_object
from haru.drivers.simulated.profiles import ProfileError, load_profile, profile_names
from haru.drivers.simulated.slices import device_names, resource_slices
from haru.drivers.simulated.taints import parse_device_taints, published_taints
from haru.kube.gates import FeatureGates
from haru.kube.kinds import by_kind
from haru.kube.quantity import parse_quantity
from haru.kube.validation import validate_create

Obj = dict[str, Any]
TAINT = {"key": "maintenance", "value": "true", "effect": "NoSchedule"}
GATES = FeatureGates.accelerator_defaults()


def slices_of(name: str, taints: dict | None = None) -> list[dict]:
    return resource_slices(load_profile(name), "node-a", "uid-a", taints or {}, 1)


def devices_of(slices: list[dict]) -> dict[str, dict]:
    return {device["name"]: device for s in slices for device in s["spec"].get("devices", ())}


def findings(obj: dict) -> list[str]:
    kind = by_kind(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return [str(error) for error in validate_create(obj, kind, GATES, lambda expression: None)]


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_is_valid(name: str) -> None:
    profile = load_profile(name)
    for taints in ({}, {device: [TAINT] for device in device_names(profile)}):
        slices = slices_of(name, taints)
        assert [finding for s in slices for finding in findings(s)] == []
        for driver in {s["spec"]["driver"] for s in slices}:
            of_driver = [s for s in slices if s["spec"]["driver"] == driver]
            assert {s["spec"]["pool"]["resourceSliceCount"] for s in of_driver} == {len(of_driver)}
        names = [s["metadata"]["name"] for s in slices]
        assert len(names) == len(set(names)) and all(n.startswith("node-a-") for n in names)
        assert sorted(devices_of(slices)) == sorted(
            n for n in device_names(profile) if profile.layout != "mig-balanced" or "-mig-" in n or "gpu-" not in n
        )
        for s in slices:
            devices = s["spec"].get("devices", [])
            assert len(devices) <= 64
            assert not devices or "sharedCounters" not in s["spec"]
            for device in devices:
                capacities = device.get("capacity", {})
                assert len(device["attributes"]) + len(capacities) <= 32
                for capacity in capacities.values():
                    assert capacity["value"] == str(parse_quantity(capacity["value"]))
    assert findings(node_object(profile, "node-a", internal_ip="172.16.0.1", now="2026-01-01T00:00:00Z")) == []


def test_whole_card_profile_publishes_one_slice_of_cards() -> None:
    [one] = slices_of("dgx-h100")
    devices = one["spec"]["devices"]
    assert [d["name"] for d in devices] == [f"gpu-{i}" for i in range(8)]
    assert devices[0]["capacity"] == {"memory": {"value": "81559Mi"}}
    assert devices[0]["attributes"]["cudaComputeCapability"] == {"version": "9.0.0"}
    numa = [d["attributes"]["resource.kubernetes.io/numaNode"]["int"] for d in devices]
    assert numa == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len({d["attributes"]["uuid"]["string"] for d in devices}) == 8
    assert slices_of("dgx-h100") == [one]
    assert one["metadata"]["ownerReferences"][0]["uid"] == "uid-a"


def test_dynamic_mig_profile_publishes_cards_partitions_and_counters() -> None:
    slices = slices_of("dgx-h100-mig")
    assert len(slices) == 9
    assert len(slices[0]["spec"]["sharedCounters"]) == 8 and "devices" not in slices[0]["spec"]
    assert [len(s["spec"]["devices"]) for s in slices[1:]] == [26] * 8
    devices = devices_of(slices)
    counters = slices[0]["spec"]["sharedCounters"][0]
    assert devices["gpu-0"]["consumesCounters"] == [{"counterSet": counters["name"], "counters": counters["counters"]}]
    assert devices["gpu-0"]["capacity"]["memory"] == {"value": "81152Mi"}
    partition = devices["gpu-0-mig-3g40gb-9-4"]
    assert "uuid" not in partition["attributes"]
    assert partition["attributes"]["parentUUID"] == devices["gpu-0"]["attributes"]["uuid"]
    assert partition["attributes"]["profile"] == {"string": "3g.40gb"}
    taken = partition["consumesCounters"][0]["counters"]
    assert [f"memory-slice-{i}" in taken for i in range(8)] == [False] * 4 + [True] * 4
    assert partition["capacity"]["copyEngines"] == {"value": "3"} and taken["copy-engines"] == {"value": "3"}


def test_static_mig_profile_publishes_partitions_without_counters() -> None:
    devices = devices_of(slices_of("dgx-a100-40gb-mig-balanced"))
    assert len(devices) == 32 and "gpu-0" not in devices
    partition = devices["gpu-0-mig-3g20gb-9-4"]
    assert partition["attributes"]["uuid"]["string"].startswith("MIG-")
    assert {f"memorySlice{i}" for i in range(4, 8)} <= partition["capacity"].keys()
    assert "consumesCounters" not in partition


def test_shared_profile_allows_multiple_allocations() -> None:
    device = devices_of(slices_of("t4-shared"))["gpu-0"]
    assert device["allowMultipleAllocations"] is True
    assert device["capacity"]["memory"]["requestPolicy"]["validRange"] == {"min": "1Mi", "step": "1Mi"}


def test_partition_inherits_taints_of_its_card() -> None:
    devices = devices_of(slices_of("a30-mig", {"gpu-1": [TAINT]}))
    tainted = {name for name, device in devices.items() if device.get("taints") == [TAINT]}
    assert tainted == {name for name in devices if name == "gpu-1" or name.startswith("gpu-1-")}
    slices = slices_of("a30-mig", {"gpu-1": [TAINT]})
    assert slices_of("a30-mig", published_taints(slices)) == slices


def test_tpu_profile_publishes_chips_and_cpu_profile_nothing() -> None:
    [one] = slices_of("tpu-v5e")
    assert one["spec"]["driver"] == "tpu.google.com" and len(one["spec"]["devices"]) == 8
    assert [d["attributes"]["chipIndex"]["int"] for d in one["spec"]["devices"]] == list(range(8))
    assert slices_of("cpu") == []


def test_long_node_names_give_unique_valid_slice_names() -> None:
    name = "n" * 63 + "." + "m" * 63 + "." + "o" * 63 + "." + "p" * 60
    slices = resource_slices(load_profile("dgx-h100-mig"), name, "u", {}, 1)
    assert len({s["metadata"]["name"] for s in slices}) == 9
    assert [finding for s in slices for finding in findings(s)] == []


def test_device_classes_are_valid() -> None:
    classes = {c["metadata"]["name"]: c for c in device_classes()}
    assert [finding for c in classes.values() for finding in findings(c)] == []
    assert classes["gpu.nvidia.com"]["spec"]["extendedResourceName"] == "nvidia.com/gpu"
    assert {"mig.nvidia.com", "vfio.gpu.nvidia.com", "tpu.google.com"} <= classes.keys()


def test_node_object_has_labels_and_allocatable_of_profile() -> None:
    node = node_object(load_profile("dgx-h100"), "dgx-h100-5", internal_ip="172.16.0.6", now="t")
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "dgx-h100-5"
    assert node["metadata"]["labels"]["topology.haru.dev/rack"] == "dgx-h100-rack-1"
    assert node["status"]["allocatable"]["cpu"] == "224"
    assert node["status"]["allocatable"]["memory"] == "2097052Mi"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgx-h1000", 'no profile is named "dgx-h1000": use one of dgx-a100-40gb'),
        ("cpu-mig", "cpu has no GPUs"),
        ("t4-mig", r"Tesla T4 cannot be divided \(MIG\)"),
        ("absent.yaml", "absent.yaml: cannot be read: No such file"),
    ],
)
def test_unknown_profile_is_refused_with_suggestion(text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        load_profile(text)


def test_profile_from_file_is_loaded_and_stored_in_node(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "apiVersion: haru.dev/v1alpha1\nkind: NodeProfile\nmetadata: {name: lab}\n"
        "spec:\n  node: {cpu: 8, memory: 32Gi, labels: {team: a}}\n"
        "  layout: mig\n  cards: {model: a30-24gb, count: 1}\n"
    )
    profile = load_profile(str(file))
    assert (profile.name, profile.layout, profile.labels["team"]) == ("lab", "mig", "a")
    assert len(resource_slices(profile, "lab-0", "u", {}, 1)) == 2
    # The node carries the description along: it is known where the file is not.
    node = node_object(profile, "lab-0", internal_ip="10.0.0.1", now="")
    found = Catalogue().profile_of(node)
    assert found is not None and (found.name, found.layout, found.labels["team"]) == ("lab", "mig", "a")


def test_device_plugin_profile_has_extended_resource_and_no_slices() -> None:
    profile = load_profile("dgx-h100-plugin")
    node = node_object(profile, "n", internal_ip="10.0.0.1", now="2026-01-01T00:00:00Z")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == node["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert resource_slices(profile, "n", "u", {}, 1) == []
    assert load_profile("t4-plugin").extended == {"nvidia.com/gpu": "4"}


@pytest.mark.parametrize("layout", ["", "-mig", "-mig-balanced", "-shared", "-plugin"])
def test_nodes_with_cards_of_nvidia_have_the_labels_of_gpu_feature_discovery(layout: str) -> None:
    labels = node_object(load_profile(f"dgx-h100{layout}"), "n", internal_ip="10.0.0.1", now="")["metadata"]["labels"]
    assert {name: value for name, value in labels.items() if name.startswith("nvidia.com/")} == {
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/mig.capable": "true",
    }
    found = load_profile("l40s").labels
    assert (found["nvidia.com/gpu.family"], found["nvidia.com/mig.capable"]) == ("ada-lovelace", "false")
    for other in ("cpu", "mi300x", "tpu-v5e"):
        assert not any(name.startswith("nvidia.com/") for name in load_profile(other).labels)


def test_labels_of_gpu_feature_discovery_are_valid_whatever_a_file_calls_its_card(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "node: {cpu: 8, memory: 32Gi, labels: {nvidia.com/gpu.family: own}}\nlayout: plugin\n"
        f"cards: {{model: {{productName: '(R) GeForce 5090 {'x' * 70}', architecture: Ünbekannt,\n"
        "  computeCapability: 12, memoryMiB: 24564}}\n"
    )
    profile = load_profile(str(file))
    assert findings(node_object(profile, "n", internal_ip="10.0.0.1", now="2026-01-01T00:00:00Z")) == []
    assert profile.labels["nvidia.com/gpu.product"].startswith("R-GeForce-5090-xxx")
    assert profile.labels["nvidia.com/gpu.compute.minor"] == "0"
    assert profile.labels["nvidia.com/gpu.family"] == "own"


def test_profile_from_file_may_have_extended_resources(tmp_path: Path) -> None:
    file = tmp_path / "nics.yaml"
    file.write_text(
        "node: {cpu: 8, memory: 32Gi, extendedResources: {example.com/nic: 2}}\n"
        "layout: plugin\ncards: {model: t4-16gb, count: 3}\n"
    )
    profile = load_profile(str(file))
    assert profile.extended == {"example.com/nic": "2", "nvidia.com/gpu": "3"}


@pytest.mark.parametrize(
    ("labels", "annotations", "found"),
    [
        ({}, {}, None),
        ({PROFILE_LABEL: "t4"}, {}, "t4"),
        ({PROFILE_LABEL: "t40"}, {}, 'no profile is named "t40"'),
        ({PROFILE_LABEL: "a.yaml"}, {}, "describe the profile in annotation"),
        ({PROFILE_LABEL: "own"}, {PROFILE_SPEC: "node: {cpu: 1, memory: 1Gi}"}, "own"),
        ({PROFILE_LABEL: "own"}, {PROFILE_SPEC: "node: {cpu: x}"}, "profile-spec: node.cpu"),
    ],
)  # fmt: skip
def test_profile_of_node_comes_from_labels_and_annotations(labels: Obj, annotations: Obj, found: str | None) -> None:
    node = {"metadata": {"name": "n", "labels": labels, "annotations": annotations}}
    try:
        profile = Catalogue().profile_of(node)
    except ProfileError as error:
        assert found is not None and found in str(error)
    else:
        assert (profile.name if profile else None) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node: {cpu: x, memory: 1Gi}", "node.cpu: quantities must match"),
        ("node: 3", "node: must be an object"),
        ("node: {cpu: 1, memory: 1Gi}\ncards: {model: a1}", "cards.model: .a1. is none of a100-40gb"),
        ("node: {cpu: 1, memory: 1Gi}\ncards: {model: t4-16gb, count: 0}", "cards.count: must be between 1 and 64"),
        ("node: {cpu: 1, memory: 1Gi}\ndevices: [{name: a}]", "driver: must name the driver"),
        ("node: {cpu: 1, memory: 1Gi}\ndevices: [1]\ndriver: d", "devices: must be a list of devices"),
        ("node: {cpu: 1, memory: 1Gi}\nlayout: odd", "layout: .odd. is none of"),
        ("node: {cpu: 1, memory: 1Gi}\ncards: {model: {productName: x}}", "cards.model: architecture is missing"),
        (
            "node: {cpu: 1, memory: 1Gi, extendedResources: {gpu: 1}}",
            "node.extendedResources: .gpu. must be of the form example.com/name",
        ),
        (
            "node: {cpu: 1, memory: 1Gi, extendedResources: {example.com/x: 1.5}}",
            "node.extendedResources.example.com/x: must be a whole number, not 1.5",
        ),
        ("a: [", "p.yaml: error converting YAML to JSON"),
    ],
)
def test_invalid_profile_is_refused_with_field(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    load_profile.cache_clear()
    with pytest.raises(ProfileError, match=message):
        load_profile(str(file))


DEVICES = ["gpu-3", "gpu-5", "gpu-5-mig-1g10gb-19-0"]


def test_device_taint_annotation_is_parsed() -> None:
    text = "gpu-3=maintenance=true:NoSchedule, gpu-5=example.com/key:NoExecute,gpu-3=b=:None,"
    assert parse_device_taints(text, DEVICES) == {
        "gpu-3": [TAINT, {"key": "b", "effect": "None"}],
        "gpu-5": [{"key": "example.com/key", "effect": "NoExecute"}],
    }
    assert parse_device_taints("", DEVICES) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu-3", '"gpu-3": write DEVICE=KEY'),
        ("gpu-3=key", "write DEVICE=KEY"),
        ("gpu-3=key:PreferNoSchedule", "effect .PreferNoSchedule. is none of None, NoSchedule, NoExecute"),
        ("gpu-9=key:None", r"the node has no device .gpu-9. \(it has gpu-3, gpu-5\)"),
        ("gpu-3=-:None", "name part must consist of"),
        ("gpu-3=k=a b:None", "a valid label must be"),
        ("gpu-3=k:None,gpu-3=k=v:None", "already has a taint k:None"),
        (",".join(f"gpu-3=k{i}:None" for i in range(17)), "gpu-3 has 17 taints, at most 16"),
    ],
)
def test_invalid_device_taint_annotation_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_device_taints(text, DEVICES)


def test_nvl72_tray_has_its_domain_as_a_label_and_its_first_imex_channel() -> None:
    profile = load_profile("gb200-nvl72")
    slices = resource_slices(profile, "gb200-nvl72-0", "uid", {}, 1)
    found = {s["spec"]["driver"]: [device["name"] for device in s["spec"]["devices"]] for s in slices}
    cards = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert found == {"gpu.nvidia.com": cards, "compute-domain.nvidia.com": ["channel-0", "daemon-0"]}
    channel = devices_of(slices)["channel-0"]
    assert channel["attributes"] == {"type": {"string": "channel"}, "id": {"int": 0}}
    assert devices_of(slices)["gpu-0"]["attributes"]["addressingMode"] == {"string": "ATS"}

    def labels(number: int) -> dict[str, str]:
        made = node_object(profile, f"gb200-nvl72-{number}", internal_ip="172.16.0.1", now="2026-01-01T00:00:00Z")
        return made["metadata"]["labels"]

    cliques = [labels(number)["nvidia.com/gpu.clique"] for number in range(20)]
    assert len(set(cliques[:18])) == 1 and cliques[17] != cliques[18] == cliques[19]
    assert cliques[0].endswith(".0") and labels(0)["kubernetes.io/arch"] == "arm64"
    assert (labels(0)["beta.kubernetes.io/arch"], labels(0)["beta.kubernetes.io/os"]) == ("arm64", "linux")


@pytest.mark.parametrize(
    ("profile", "count", "type_", "partition", "memory", "units"),
    [
        ("mi300x", 8, "amdgpu", "spx_nps1", "196592Mi", "304"),
        ("mi300x-dpx", 16, "amdgpu-partition", "dpx_nps2", "98296Mi", "152"),
        ("mi300x-qpx", 32, "amdgpu-partition", "qpx_nps4", "49148Mi", "76"),
        ("mi300x-cpx", 64, "amdgpu-partition", "cpx_nps4", "24574Mi", "38"),
        ("mi300x-cpx-nps1", 64, "amdgpu-partition", "cpx_nps1", "24574Mi", "38"),
    ],
)
def test_amd_cards_are_divided_beforehand(
    profile: str, count: int, type_: str, partition: str, memory: str, units: str
) -> None:
    devices = devices_of(slices_of(profile))
    assert len(devices) == count
    last = devices[sorted(devices, key=lambda name: int(name.split("-")[1]))[-1]]
    assert last["attributes"]["type"]["string"] == type_
    assert last["attributes"]["partitionProfile"]["string"] == partition
    assert (last["capacity"]["memory"]["value"], last["capacity"]["computeUnits"]["value"]) == (memory, units)
    assert len({device["attributes"]["resource.kubernetes.io/pciBusID"]["string"] for device in devices.values()}) == 8


def test_amd_cards_divided_on_demand_have_one_counter_for_their_mode() -> None:
    counters, devices = slices_of("mi300x-auto")
    assert counters["spec"]["sharedCounters"][0] == {
        "name": "gpu-0-mutex",
        "counters": {"partition-mode": {"value": "1"}},
    }
    assert len(devices["spec"]["devices"]) == 32
    cpx = devices_of([devices])["gpu-7-cpx-nps4"]
    assert cpx["allowMultipleAllocations"] and cpx["capacity"]["partitions"]["value"] == "8"
    assert cpx["consumesCounters"] == [{"counterSet": "gpu-7-mutex", "counters": {"partition-mode": {"value": "1"}}}]
    assert cpx["attributes"]["computePartition"] == {"string": "cpx"}


@pytest.mark.parametrize(
    ("profile", "chips", "topology", "machine"),
    [
        ("tpu-v6e", 8, "2x4", "ct6e-standard-8t"),
        ("tpu-v6e-4t", 4, "2x2", "ct6e-standard-4t"),
        ("tpu-v6e-4x4", 4, "4x4", "ct6e-standard-4t"),
        ("tpu-v6e-1t", 1, "1x1", "ct6e-standard-1t"),
    ],
)
def test_tpu_v6e_hosts_have_their_chips_and_topology(profile: str, chips: int, topology: str, machine: str) -> None:
    devices = devices_of(slices_of(profile))
    assert [device["attributes"]["chipIndex"]["int"] for device in devices.values()] == list(range(chips))
    assert {device["attributes"]["topology"]["string"] for device in devices.values()} == {topology}
    loaded = load_profile(profile)
    assert loaded.instance_type == machine
    assert loaded.labels["cloud.google.com/gke-tpu-topology"] == topology


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("amd: {model: mi9}", 'amd.model: "mi9" is none of mi300x'),
        ("amd: {model: mi300x, mode: spx-nps4}", 'amd.mode: "spx-nps4" is none of spx-nps1, dpx-nps1'),
        ("amd: {model: {productName: x}}", "amd.model: deviceID is missing"),
    ],
)
def test_invalid_amd_profile_is_refused_with_field(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(f"node: {{cpu: 8, memory: 8Gi}}\n{text}\n")
    with pytest.raises(ProfileError, match=message):
        load_profile(str(file))


def amd_claim(count: int, expression: str) -> Obj:
    request = {"deviceClassName": "gpu.amd.com", "count": count, "selectors": [{"cel": {"expression": expression}}]}
    requests = [{"name": "g", "exactly": request}]
    return {"metadata": {"name": "c", "namespace": "n", "uid": "c"}, "spec": {"devices": {"requests": requests}}}


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ([(1, "computePartition == 'cpx' && {}.memoryPartition == 'nps4'")] * 8, True),
        ([(1, "computePartition == 'cpx' && {}.memoryPartition == 'nps4'")] * 9, False),
        ([(1, "computePartition == 'cpx'"), (1, "computePartition == 'spx'")], False),
        ([(1, "computePartition == 'spx'"), (1, "computePartition == 'spx'")], False),
    ],
)
def test_one_amd_card_has_one_mode_at_a_time_and_as_many_shares_as_partitions(
    wanted: list[tuple[int, str]], fits: bool
) -> None:
    one = "device.attributes['gpu.amd.com']"
    claims = [amd_claim(count, f"{one}.gpuIndex == 0 && {one}.{text.format(one)}") for count, text in wanted]
    for number, claim in enumerate(claims):
        claim["metadata"] |= {"name": f"c{number}", "uid": f"c{number}"}
    features = {"PartitionableDevices": True, "ConsumableCapacity": True}
    node = {"metadata": {"name": "node-a"}}
    found = allocate(claims, node=node, slices=slices_of("mi300x-auto"), classes=device_classes(), features=features)
    assert (found is not None) == fits
