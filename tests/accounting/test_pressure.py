"""Pressure on pods that hold cards: read from a kubelet's recorded summary, told beside the cards' use, or unknown."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_objects import allocated, allocation, claim, device_class, node, options, pod, resource_slice

from haru.accounting.device_states import card_states
from haru.accounting.pressure import PodPressure, Pressure, Pressures, Stall, SummaryError, pressures_of
from haru.accounting.report import Filter, Usage, usage_now
from haru.engine import SchedulerCache

Obj = dict[str, Any]
SUMMARY = json.loads((Path(__file__).parent.parent / "node" / "golden" / "summary.json").read_text())


def job(name: str, where: str, *devices: str, owner: str = "train") -> list[Obj]:
    made = pod(name, node=where, claims=[name])
    controller = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}
    made["metadata"]["ownerReferences"] = [controller]
    return [made, allocated(claim(name), allocation(where, *devices), made)]


def usage(chosen: Filter | None = None) -> Usage:
    """A job of two pods on two nodes, another one, and a claim that nobody uses."""
    objects = [node("a"), node("b"), device_class(), resource_slice("a", 2), resource_slice("b", 2)]
    objects += [*job("p-0", "a", "gpu-0"), *job("p-1", "b", "gpu-0"), *job("q", "b", "gpu-1", owner="other")]
    objects.append(allocated(claim("left"), allocation("a", "gpu-1")))
    return usage_now(card_states(SchedulerCache.of(objects).snapshot(), options()), chosen)


def pressed(some: float, full: float = 0.0) -> Pressure:
    return Pressure(Stall(2_000_000, 0.0, some, 0.0), Stall(1_000_000, 0.0, full, 0.0))


def heard(**failed: str) -> Pressures:
    pods = {
        "uid-p-0": PodPressure(memory=pressed(0.0), io=pressed(1.5)),
        "uid-p-1": PodPressure(memory=pressed(12.25, 3.0), io=pressed(61.2, 40.0)),
        "uid-q": PodPressure(memory=pressed(4.0)),
        "uid-stranger": PodPressure(memory=pressed(99.0), io=pressed(99.0)),
    }
    return Pressures(pods, failed)


def row(told: str, owner: str) -> list[str]:
    [line] = [line for line in told.splitlines() if owner in line]
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_recorded_kubelet_summary_gives_psi_by_pod() -> None:
    found = pressures_of(SUMMARY)
    [pod_stats] = SUMMARY["pods"]
    told = found[pod_stats["podRef"]["uid"]].as_dict()
    assert told == {name: {"psi": pod_stats[name]["psi"]} for name in ("memory", "io")}


def test_summary_without_psi_gives_no_pressure() -> None:
    bare = copy.deepcopy(SUMMARY)
    for pod_stats in bare["pods"]:
        del pod_stats["io"], pod_stats["memory"]["psi"]
    assert pressures_of(bare) == {} == pressures_of({"pods": []})
    del bare["pods"][0]["memory"]
    assert pressures_of(bare) == {}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("pods",), None, "pods: expected a list, found None"),
        (("pods", 0), "x", r"pods\[0\]: expected an object, found 'x'"),
        (("pods", 0, "podRef"), None, r"pods\[0\].podRef: expected an object"),
        (("pods", 0, "io", "psi", "full"), None, r"pods\[0\].io.psi.full: expected an object"),
        (("pods", 0, "memory", "psi", "some", "avg60"), "12", r"pods\[0\].memory.psi.some.avg60: expected a number"),
        (("pods", 0, "memory", "psi", "some", "avg60"), -1, r"pods\[0\].memory.psi.some.avg60: .*found -1"),
        (("pods", 0, "memory", "psi", "some", "total"), True, r"some.total: expected a number"),
        (("pods", 0, "memory", "psi", "some", "avg10"), float("nan"), r"some.avg10: expected a number"),
    ],
)
def test_malformed_summary_names_the_field(path: tuple[Any, ...], value: Any, message: str) -> None:
    summary = copy.deepcopy(SUMMARY)
    *way, last = path
    place = summary
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(SummaryError, match=message):
        pressures_of(summary)


def test_pressure_is_unknown_without_kubelet_summaries() -> None:
    told = usage()
    assert told.pod_nodes == ("a", "b")
    assert row(str(told), "job/train") == ["default", "job/train", "2", "0", "0", "2", "-", "-", "0"]
    assert row(str(told), "OWNER")[6:8] == ["MEMORY PRESSURE", "I/O PRESSURE"]
    answer = told.as_dict()
    assert answer["pods"][0] == {"namespace": "default", "name": "q", "owner": "job/other", "node": "b"}
    assert answer["pressureErrors"] == []


def test_pod_with_highest_pressure_is_named_in_row() -> None:
    told = replace(usage(), pressures=heard())
    assert row(str(told), "job/train")[6:8] == ["12.25%/3% p-1", "61.2%/40% p-1"]
    assert row(str(told), "job/other")[6:8] == ["4%/0%", "-"]
    assert row(str(told), "resourceclaim/left")[6:8] == ["-", "-"]
    assert row(str(told.by_namespace()), "default")[5:7] == ["12.25%/3% p-1", "61.2%/40% p-1"]
    assert "61.2%/40% p-1" in told._repr_html_()
    answer = told.as_dict()
    pods = {entry["name"]: entry for entry in answer["pods"]}
    assert pods["p-1"]["io"]["psi"]["some"] == {"total": 2_000_000, "avg10": 0.0, "avg60": 61.2, "avg300": 0.0}
    assert set(pods) == {"p-0", "p-1", "q"} and "io" not in pods["q"]
    by_card = {(card["node"], card["card"]): card["parts"][0] for card in answer["devices"]}
    assert by_card["b", "gpu-0"]["pods"] == ["p-1"] and "pods" not in by_card["a", "gpu-1"]


def test_filter_limits_pods_and_nodes_queried() -> None:
    told = usage(Filter(owner="other"))
    assert told.pod_nodes == ("b",) and [entry["name"] for entry in told.as_dict()["pods"]] == ["q"]


def test_unreachable_kubelets_are_listed_with_reason() -> None:
    away = dict.fromkeys(("a", "b", "c", "d", "e"), "no answer within 5 s")
    told = replace(usage(), pressures=heard(**away, f="not allowed"))
    assert str(told).splitlines()[-2:] == [
        "(no pressure from the kubelet of a, b, c and 2 more: no answer within 5 s)",
        "(no pressure from the kubelet of f: not allowed)",
    ]
    assert told.as_dict()["pressureErrors"][-1] == {"node": "f", "message": "not allowed"}
