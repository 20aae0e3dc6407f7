"""`haru allocate` and `haru cel`: on manifests, and on cases in the form of the test vectors."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from device_objects import DRIVER, claim, class_, device, normal, request, slice_

from haru.cli.main import main
from haru.kube.yaml import dump_all, load

Obj = dict[str, Any]

DATA = Path(__file__).parents[1] / "data"
GROUP = "resource.k8s.io/v1"


def kind(name: str, *objects: Obj) -> list[Obj]:
    return [{"apiVersion": GROUP, "kind": name, **obj} for obj in objects]


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    slices = [
        slice_(f"{node}-a", [device(f"gpu-{i}", {"index": i}) for i in range(count)], pool=node, node=node)
        for node, count in (("node-a", 1), ("node-b", 2), ("node-c", 2))
    ]
    result = {"request": "r", "driver": DRIVER, "pool": "node-b", "device": "gpu-0"}
    held = claim("held", request("r")) | {"status": {"allocation": {"devices": {"results": [result]}}}}
    wanted = claim("wanted", request("pair", 2))
    path = tmp_path / "all.yaml"
    claims = kind("ResourceClaim", held, wanted)
    path.write_text(dump_all([*kind("ResourceSlice", *slices), *kind("DeviceClass", class_()), *claims]))
    return path


def outputs(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main([*arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_allocate_shows_first_fitting_node_and_reasons_of_others(
    capsys: pytest.CaptureFixture[str], manifests: Path
) -> None:
    status, out, _ = outputs(capsys, "allocate", "-f", str(manifests))
    assert status == 0
    assert out.splitlines() == [
        "fits on 1 node of 3; on node-c:",
        "  claim default/wanted",
        f"    pair: {DRIVER}/node-c/gpu-0",
        f"    pair: {DRIVER}/node-c/gpu-1",
        "not on node-a:",
        "  request pair needs 2 devices: the node offers 1",
        "  default/wanted pair (needs 2): 1 devices",
        "not on node-b:",
        "  request pair needs 2 devices: 1 of 2 devices are free; held by default/held (1)",
        "  default/wanted pair (needs 2): 2 devices > 1 free",
    ]


def test_allocate_on_one_node_prints_json(capsys: pytest.CaptureFixture[str], manifests: Path) -> None:
    status, out, _ = outputs(capsys, "allocate", "-f", str(manifests), "--node", "node-c", "-o", "json")
    answer = json.loads(out)
    assert status == 0 and answer["fits"] and answer["nodes"] == ["node-c"] and answer["kind"] == "DeviceAllocation"
    assert [r["device"] for r in answer["claims"][0]["allocation"]["devices"]["results"]] == ["gpu-0", "gpu-1"]
    status, out, _ = outputs(capsys, "allocate", "-f", str(manifests), "--node", "node-b", "-o", "yaml")
    answer = load(out)
    assert status == 1 and not answer["fits"]
    (refusal,) = answer["refusals"]
    assert refusal["nodes"] == ["node-b"]
    assert [reason["type"] for reason in refusal["reasons"]] == ["DevicesTaken"]
    assert refusal["requests"][0]["funnel"][-1] == {"condition": "free", "left": 1}


def test_device_scoring_flag_changes_chosen_device(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = {"gpu-0": 80, "gpu-1": 24, "gpu-2": 40}
    cards = slice_("a", [device(name, capacity={"memory": f"{size}Gi"}) for name, size in sizes.items()])
    wanted = claim("wanted", request("r"))
    manifests = [*kind("ResourceSlice", cards), *kind("DeviceClass", class_()), *kind("ResourceClaim", wanted)]
    path = tmp_path / "all.yaml"
    path.write_text(dump_all(manifests))
    for flags, expected in (((), "gpu-0"), (("--device-scoring",), "gpu-1")):
        status, out, _ = outputs(capsys, "allocate", "-f", str(path), *flags)
        assert (status, out.splitlines()[2]) == (0, f"    r: {DRIVER}/pool/{expected}")
    case = {"name": "c", "features": {}, "classes": [class_()], "claims": [wanted], "slices": [cards], "allocated": []}
    path.write_text(json.dumps(case | {"node": {"metadata": {"name": "node-1"}}}))
    for flags, expected in (((), "gpu-0"), (("--device-scoring",), "gpu-1")):
        status, out, _ = outputs(capsys, "allocate", "--cases", str(path), *flags)
        (result,) = json.loads(out)["results"]
        assert (status, result["devices"]["results"][0]["device"]) == (0, expected)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["allocate"], "name the manifests with -f FILE"),
        (["allocate", "-f", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["allocate", "-f", "{file}", "--node", "node-x"], 'no Node "node-x"'),
        (["allocate", "-f", "{file}", "--feature-gates", "DRADeviceTaint=false"], "did you mean DRADeviceTaints"),
        (["allocate", "--cases", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["cel", "true"], "haru cel EXPRESSION -f FILE"),
        (["cel", "device.size > 3", "-f", "{file}"], "undefined field 'size'"),
        (["cel", "--cases", "{file}"], "line 1: this is no JSON"),
    ],
)
def test_invalid_arguments_exit_with_2(
    capsys: pytest.CaptureFixture[str], manifests: Path, arguments: list[str], text: str
) -> None:
    status, out, err = outputs(capsys, *(a.format(file=manifests) if "{file}" in a else a for a in arguments))
    assert (status, out) == (2, "")
    assert text in err


def test_cel_command_explains_mismatch(capsys: pytest.CaptureFixture[str], manifests: Path) -> None:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].index > 0"
    status, out, _ = outputs(capsys, "cel", expression, "-f", str(manifests))
    assert status == 0
    assert out.splitlines() == [
        f"{DRIVER}/node-a/gpu-0  no: device.attributes['{DRIVER}'].index > 0: left value 0, right value 0",
        f"{DRIVER}/node-b/gpu-0  no: device.attributes['{DRIVER}'].index > 0: left value 0, right value 0",
        f"{DRIVER}/node-b/gpu-1  matches",
        f"{DRIVER}/node-c/gpu-0  no: device.attributes['{DRIVER}'].index > 0: left value 0, right value 0",
        f"{DRIVER}/node-c/gpu-1  matches",
        "2 of 5 devices match",
    ]
    status, out, _ = outputs(capsys, "cel", f"device.attributes['{DRIVER}'].size > 0", "-f", str(manifests))
    assert status == 1
    assert out.splitlines()[0] == f"{DRIVER}/node-a/gpu-0  fails: no such key: size"
    status, out, _ = outputs(capsys, "cel", "false", "-f", str(manifests), "-o", "json")
    assert status == 1 and json.loads(out)["matching"] == 0


def allocator_fault(case: Obj, answer: Obj) -> str:
    expected = case.get("intended") or case["expect"]
    if not (answer["name"] == case["name"] and answer["prepareSeconds"] > 0 and answer["seconds"] > 0):
        return f"form {answer}"
    if expected["error"]:
        return "" if answer["results"] is None and expected["error"] in (answer["error"] or "") else str(answer)
    if answer["error"]:
        return str(answer["error"])
    wanted = [expected["results"], *(expected.get("alternatives") or ())]
    if answer["results"] is None or expected["results"] is None:
        return "" if answer["results"] is expected["results"] else str(answer)
    return "" if any(normal(answer["results"]) == normal(results) for results in wanted) else str(answer)


def allocator_files() -> list[Path]:
    root = os.environ.get("HARU_REFERENCE_DATA")
    own = [DATA / "dra-allocator" / f"{name}.jsonl" for name in ("generated", "reference-bugs", "wide")]
    return [*own, *([Path(root) / "vectors" / "dra-allocator" / "cases.jsonl"] if root else [])]


@pytest.mark.parametrize("path", allocator_files(), ids=lambda path: path.stem)
def test_allocator_reference_cases_agree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: Path
) -> None:
    monkeypatch.setattr("haru.cli.allocate_cases._ROUNDS", 1)
    compressed = tmp_path / "cases.jsonl.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    status, out, _ = outputs(capsys, "allocate", "--cases", str(compressed))
    cases = [json.loads(line) for line in path.read_text().splitlines()]
    answers = [json.loads(line) for line in out.splitlines()]
    found = {c["name"]: allocator_fault(c, a) for c, a in zip(cases, answers, strict=True)}
    assert status == 0
    assert {name: fault for name, fault in found.items() if fault} == {}


def test_case_with_many_nodes_reports_fit_counts_and_times(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    slices = [
        slice_(f"{node}-a", [device(f"gpu-{i}") for i in range(count)], pool=node, node=node)
        for node, count in (("node-b", 2), ("node-a", 1), ("node-c", 2))
    ]
    case = {
        "name": "many",
        "features": {},
        "classes": [class_()],
        "claims": [claim("c", request("r", 2))],
        "slices": slices,
        "nodes": [{"metadata": {"name": name}} for name in ("node-c", "node-a", "node-b")],
        "allocated": [],
    }
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps(c) for c in (case, case | {"claims": [claim("c", request("r", cls="no"))]})))
    status, out, _ = outputs(capsys, "allocate", "--cases", str(path))
    fits, fails = (json.loads(line) for line in out.splitlines())
    assert status == 0
    assert (fits["nodesFit"], fits["nodes"], fits["error"]) == (2, ["node-c", "node-b"], None)
    assert fits["prepareSeconds"] > 0 < fits["seconds"] and fits["warmSeconds"] > 0 and "results" not in fits
    assert fails["nodesFit"] == 0 and "could not retrieve device class no" in fails["error"]


def test_malformed_case_exits_with_2_and_line_number(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    case = {"name": "x", "features": {}, "classes": [], "claims": [], "allocated": [], "node": {}, "slices": [3]}
    path.write_text(json.dumps(case))
    status, out, _ = outputs(capsys, "allocate", "--cases", str(path))
    assert status == 0 and "ResourceSlice #0" in json.loads(out)["error"]
    path.write_text(json.dumps({"name": "x"}))
    status, _, err = outputs(capsys, "allocate", "--cases", str(path))
    assert status == 2 and "line 1: this is no such case: 'nodes' is missing" in err.replace("'node'", "'nodes'")


def test_cel_reference_cases_agree(capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "cel" / "generated.jsonl"
    status, out, _ = outputs(capsys, "cel", "--cases", str(path))
    assert status == 0
    cases = [json.loads(line) for line in path.read_text().splitlines()]
    for case, line in zip(cases, out.splitlines(), strict=True):
        answer, expected = json.loads(line), case["expect"]
        assert answer["name"] == case["name"]
        assert (answer["compileError"] is None) == (expected["compileError"] is None), case["name"]
        assert (answer["matchError"] is None) == (expected["matchError"] is None), case["name"]
        assert answer["match"] == expected["match"], case["name"]
        if expected["compileError"] is None:
            assert answer["maxCost"] == expected["maxCost"]
