"""Which device NODE/DEVICE names, and what is said when it names none or several."""

from __future__ import annotations

from typing import Any

import pytest

from haru.engine.dra import DeviceId
from haru.explain.device_names import DeviceNameError, find_device, find_ruled_device

Obj = dict[str, Any]
GPU, NIC = "gpu.example.com", "nic.example.com"


def slice_(name: str, *devices: str, driver: str = GPU, pool: str = "n1", generation: int = 1, **spec: Any) -> Obj:
    where = spec if spec else {"nodeName": "n1"}
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    body = {"driver": driver, "pool": of_pool, "devices": [{"name": d} for d in devices], **where}
    return {"metadata": {"name": name}, "spec": body}


def labelled(key: str, value: str) -> Obj:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}


def own_place(name: str, node: str) -> Obj:
    return {"name": name, "nodeName": node}


NODES = [
    {"metadata": {"name": name, "labels": {"rack": rack}}} for name, rack in (("n1", "a"), ("n2", "b"), ("n3", "b"))
]
SPREAD = slice_("spread", driver=NIC, pool="net/spread", perDeviceNodeSelection=True)
SPREAD["spec"]["devices"] = [own_place("port-0", "n1"), own_place("port-1", "n2")]
SLICES = [
    slice_("old", "gpu-0", "gpu-9", generation=1),
    slice_("new", "gpu-0", "gpu-1", "gpu-2", generation=2),
    slice_("nics", "gpu-2", "nic-0", driver=NIC),
    slice_("rack", "switch-0", driver=NIC, pool="net/rack-b", nodeSelector=labelled("rack", "b")),
    slice_("every", "license-0", driver=NIC, pool="licenses", allNodes=True),
    SPREAD,
]


@pytest.mark.parametrize(
    ("text", "driver", "pool"),
    [
        ("n1/gpu-0", GPU, "n1"),
        ("n1/nic-0", NIC, "n1"),
        ("nic.example.com/n1/gpu-2", NIC, "n1"),
        ("n2/switch-0", NIC, "net/rack-b"),
        ("net/rack-b/switch-0", NIC, "net/rack-b"),
        ("nic.example.com/net/rack-b/switch-0", NIC, "net/rack-b"),
        ("n3/license-0", NIC, "licenses"),
        ("n2/port-1", NIC, "net/spread"),
    ],
)
def test_device_name_resolves_to_device_id(text: str, driver: str, pool: str) -> None:
    assert find_device(text, SLICES, NODES) == DeviceId(driver, pool, text.rpartition("/")[2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu-0", '"gpu-0": write NODE/DEVICE or POOL/DEVICE'),
        ("/gpu-0", "write NODE/DEVICE"),
        ("n1/", "write NODE/DEVICE"),
        ("n1/gpu-2", '"n1/gpu-2" may be any of gpu.example.com/n1/gpu-2, nic.example.com/n1/gpu-2: write one of them'),
        # Only an older generation has it.
        ("n1/gpu-9", 'n1 has no device "gpu-9"; did you mean gpu-'),
        ("n1/xyz", 'n1 has no device "xyz"; it has gpu-0, gpu-1, gpu-2 and '),
        ("n2/port-0", 'n2 has no device "port-0"; did you mean port-1?'),
        ("n1/switch-0", 'n1 has no device "switch-0"; did you mean '),
        ("mars/gpu-0", 'there is no node or pool "mars"; devices are on n1, net/rack-b, licenses'),
        ("net/rack-c/switch-0", 'there is no node or pool "net/rack-c"; did you mean net/rack-b?'),
    ],
)
def test_unresolved_device_name_gives_message(text: str, message: str) -> None:
    with pytest.raises(DeviceNameError) as caught:
        find_device(text, SLICES, NODES)
    assert message in str(caught.value)


def test_node_or_cluster_without_devices_is_named() -> None:
    local = SLICES[:2]
    with pytest.raises(DeviceNameError, match="node n2 has no devices; n1 has"):
        find_device("n2/gpu-0", local, NODES)
    with pytest.raises(DeviceNameError, match="no driver publishes devices here"):
        find_device("n1/gpu-0", [], NODES)


def test_pool_with_invalid_node_selector_matches_no_node() -> None:
    strange = labelled("rack", "a")
    strange["nodeSelectorTerms"][0]["matchExpressions"][0]["operator"] = "Near"
    slices = [slice_("s", "d", pool="p", nodeSelector=strange)]
    assert find_device("p/d", slices, NODES) == DeviceId(GPU, "p", "d")
    with pytest.raises(DeviceNameError, match="node n1 has no devices"):
        find_device("n1/d", slices, NODES)


def rule(**selector: str) -> Obj:
    return {"spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}}}


def test_unpublished_device_is_found_by_its_taint_rules() -> None:
    rules = [
        rule(driver=GPU, pool="n1", device="gpu-7"),
        rule(driver=NIC, pool="a/b", device="d"),
        rule(device="d"),
        {},
    ]
    assert find_ruled_device("n1/gpu-7", rules) == DeviceId(GPU, "n1", "gpu-7")
    assert find_ruled_device("gpu.example.com/n1/gpu-7", rules * 2) == DeviceId(GPU, "n1", "gpu-7")
    assert find_ruled_device("a/b/d", rules) == DeviceId(NIC, "a/b", "d")
    assert find_ruled_device("n2/gpu-7", rules) is None
    assert find_ruled_device("n1/gpu-7", [*rules, rule(driver=NIC, pool="n1", device="gpu-7")]) is None
