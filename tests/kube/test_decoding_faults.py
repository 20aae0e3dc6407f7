from __future__ import annotations

from haru.kube.decoding_faults import examine
from haru.kube.kinds import by_kind


def test_all_decoding_faults_are_found_and_rest_is_kept() -> None:
    kind = by_kind("resource.k8s.io/v1", "ResourceSlice")
    assert kind is not None
    capacity = {"memory": "80Gi", "shares": {"value": "2"}}
    obj = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": 3},
        "spec": {"devices": [{"name": "a", "capacity": capacity, "basic": {}}, 7], "driver": None},
    }
    pruned, faults = examine(obj, kind)
    assert pruned["spec"] == {"devices": [{"name": "a", "capacity": {"memory": {}, "shares": {"value": "2"}}}, {}]}
    assert {(fault.path, bool(fault.mismatch)) for fault in faults} == {
        ("metadata.name", True),
        ("spec.devices[0].basic", False),
        ("spec.devices[0].capacity.memory", True),
        ("spec.devices[1]", True),
    }
