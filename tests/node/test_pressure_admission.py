"""Pods that come to a node that runs short are refused, as by the kubelet's eviction manager."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.node_admission import pressure_problem

Obj = dict[str, Any]
TOLERATES = [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]


def pod(memory: str = "", **spec: Any) -> Obj:
    resources = {"requests": {"memory": memory}} if memory else {}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "resources": resources}], **spec}}


@pytest.mark.parametrize(
    ("made", "short", "named"),
    [
        (pod(), (), ""),
        (pod(), ("MemoryPressure",), "MemoryPressure"),
        (pod(memory="1Gi"), ("MemoryPressure",), ""),
        (pod(tolerations=TOLERATES), ("MemoryPressure",), ""),
        (pod(priority=2_000_001_000), ("MemoryPressure", "DiskPressure"), ""),
        (pod(memory="1Gi", tolerations=TOLERATES), ("DiskPressure",), "DiskPressure"),
        (pod(memory="1Gi"), ("MemoryPressure", "DiskPressure"), "MemoryPressure DiskPressure"),
        (pod(memory="1Gi"), ("PIDPressure",), "PIDPressure"),
    ],
)
def test_pod_is_refused_by_what_the_node_is_short_of(made: Obj, short: tuple[str, ...], named: str) -> None:
    expected = ("Evicted", f"The node had condition: [{named}]. ") if named else None
    assert pressure_problem(made, short) == expected
