"""What a pod requests in all: containers, init containers, sidecars, overhead, and what the pod itself asks for.

Source: KEP-753 (sidecars), KEP-2837 (requests of the pod's own level), KEP-688 (overhead), KEP-1287 (resizing).
"""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.quantity import parse_quantity
from haru.kube.resources import pod_requests

Obj = dict[str, Any]
GPU = "nvidia.com/gpu"


def amounts(text: str) -> Obj:
    """`2` is cpu; `2 1Gi 4` cpu, memory and cards; `-` asks for nothing."""
    names = ("cpu", "memory", GPU)
    return {name: value for name, value in zip(names, text.split(), strict=False) if value != "-"}


def containers(prefix: str, listed: str) -> list[Obj]:
    """`2, 3*`: a container that asks for two cpu, and a sidecar that asks for three."""
    made: list[Obj] = []
    for number, text in enumerate(part.strip() for part in listed.split(",") if part.strip()):
        container: Obj = {
            "name": f"{prefix}{number}",
            "resources": {"requests": amounts(text.removesuffix("*"))},
        }
        if text.endswith("*"):
            container["restartPolicy"] = "Always"
        made.append(container)
    return made


# main containers, init containers, overhead, the pod's own level -> cpu, memory, cards
ROWS = [
    # containers alone
    ("1", "", "", "", "1"),
    ("1, 2", "", "", "", "3"),
    ("100m, 250m", "", "", "", "350m"),
    ("-", "", "", "", ""),
    ("- 1Gi", "", "", "", "- 1Gi"),
    ("1 1Gi, 2 512Mi", "", "", "", "3 1536Mi"),
    ("1 1Gi 2, - - 1", "", "", "", "1 1Gi 3"),
    # init containers run one after the other, before all others
    ("1", "3", "", "", "3"),
    ("3", "1", "", "", "3"),
    ("1", "2, 3, 1", "", "", "3"),
    ("2, 2", "3", "", "", "4"),
    ("1 4Gi", "3 1Gi", "", "", "3 4Gi"),
    ("1", "- 2Gi", "", "", "1 2Gi"),
    ("- - 1", "- - 4", "", "", "- - 4"),
    # sidecars run on beside everything that starts after them
    ("1", "1*", "", "", "2"),
    ("1", "1*, 2*", "", "", "4"),
    ("1", "1*, 2", "", "", "3"),
    ("1", "2, 1*", "", "", "2"),
    ("1", "4, 1*", "", "", "4"),
    ("1", "1*, 4, 1*", "", "", "5"),
    ("1", "1*, 1, 2*, 1", "", "", "4"),
    ("1", "1*, 5, 2*", "", "", "6"),
    ("-", "1*", "", "", "1"),
    ("1 1Gi", "- 2Gi*, 3", "", "", "3 3Gi"),
    ("- - 1", "- - 1*, - - 4", "", "", "- - 5"),
    # overhead comes on top of all
    ("1", "", "250m", "", "1250m"),
    ("1", "3", "250m 64Mi", "", "3250m 64Mi"),
    ("1", "1*, 4", "1", "", "6"),
    ("-", "", "250m", "", "250m"),
    # what the pod itself asks for of cpu and memory is what counts
    ("1", "", "", "4", "4"),
    ("1, 2", "9", "", "4", "4"),
    ("1 1Gi", "", "", "4", "4 1Gi"),
    ("1 1Gi", "1*", "", "- 8Gi", "2 8Gi"),
    ("1", "", "250m", "4", "4250m"),
    ("- - 2", "", "", "1 - 9", "1 - 2"),
    ("-", "1*, 5", "1 1Gi", "2 2Gi", "3 3Gi"),
]


@pytest.mark.parametrize(("main", "init", "overhead", "whole", "expected"), ROWS)
def test_pod_requests_follow_containers_init_containers_and_overhead(
    main: str, init: str, overhead: str, whole: str, expected: str
) -> None:
    spec: Obj = {"containers": containers("c", main), "initContainers": containers("i", init)}
    if overhead:
        spec["overhead"] = amounts(overhead)
    if whole:
        spec["resources"] = {"requests": amounts(whole)}
    found = {name: quantity for name, quantity in pod_requests({"spec": spec}).items() if quantity}
    assert found == {name: parse_quantity(text) for name, text in amounts(expected).items()}


# spec, allocated and actual (`?`: not told), reason of a resize that is pending -> what counts
RESIZED = [
    ("2", "2", "2", "", "2"),
    ("3", "1", "1", "", "3"),
    ("1", "3", "3", "", "3"),
    ("1", "1", "3", "", "3"),
    ("3", "1", "2", "Deferred", "3"),
    ("3", "1", "2", "Infeasible", "2"),
    ("1", "2", "2", "Infeasible", "2"),
    ("2", "?", "?", "", "2"),
    ("2", "?", "?", "Infeasible", "2"),
    # without the actual resources a status tells nothing
    ("1", "3", "?", "", "1"),
    ("2", "1", "?", "Infeasible", "2"),
    # a resource that the resize adds
    ("1 4Gi", "1", "1", "", "1 4Gi"),
    ("1 4Gi", "1", "1", "Deferred", "1 4Gi"),
    ("1 4Gi", "1", "1", "Infeasible", "1"),
    ("2", "", "", "Infeasible", ""),
]


@pytest.mark.parametrize("level", ["container", "sidecar", "pod"])
@pytest.mark.parametrize(("asked", "allocated", "actual", "reason", "expected"), RESIZED)
def test_pod_requests_during_resize_follow_status(
    asked: str, allocated: str, actual: str, reason: str, expected: str, level: str
) -> None:
    told: Obj = {} if allocated == "?" else {"allocatedResources": amounts(allocated)}
    told |= {} if actual == "?" else {"resources": {"requests": amounts(actual)}}
    status: Obj = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []}
    spec: Obj = {"containers": containers("c", "-")}
    if level == "pod":
        spec["resources"] = {"requests": amounts(asked)}
        status |= told
    elif level == "sidecar":
        spec["initContainers"] = containers("i", f"{asked}*")
        status["initContainerStatuses"] = [{"name": "i0", **told}]
    else:
        spec["containers"] = containers("c", asked)
        status["containerStatuses"] = [{"name": "c0", **told}]
    found = {name: quantity for name, quantity in pod_requests({"spec": spec, "status": status}).items() if quantity}
    assert found == {name: parse_quantity(text) for name, text in amounts(expected).items()}
