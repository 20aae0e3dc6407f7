"""Device selectors against the outcomes of Kubernetes 1.36: matches, errors, estimated and actual costs."""

from __future__ import annotations

from typing import Any

from cel_reference import LOCAL, read_cases, reference_cases

from haru.cel.device import CompileError, DeviceView, EvaluationError, Outcome, compile_device_selector

MAP_ORDER = "stops at the first matching key of a map, whose order is random in Go"
COST_DIFFERENCES = {"gen-h100-054a762e": MAP_ORDER, "gen-h100-20b9e59b": MAP_ORDER}


def view(device: dict[str, Any]) -> DeviceView:
    return DeviceView(
        device["driver"],
        device.get("attributes", {}),
        device.get("capacity", {}),
        device.get("allowMultipleAllocations", False),
    )


def compile_case(case: dict[str, Any]) -> Any:
    features = case["features"]
    return compile_device_selector(
        case["expression"],
        consumable_capacity=features["ConsumableCapacity"],
        list_attributes=features["ListTypeAttributes"],
        new=case["newExpression"],
    )


def problems(case: dict[str, Any]) -> list[str]:
    """What differs from the reference. Where a whole message is known, all of it must be the same."""
    expect = case["expect"]
    try:
        selector = compile_case(case)
    except CompileError as error:
        return _wrong_text("compile error", str(error), expect["compileError"], expect.get("compileErrorText"))
    if expect["compileError"]:
        return ["compiles"]
    found = [] if selector.max_cost == expect["maxCost"] else [f"estimate {selector.max_cost}"]
    device = view(case["device"])
    try:
        matched = selector.matches(device)
    except EvaluationError as error:
        found += _wrong_text("evaluation error", str(error), expect["matchError"], expect.get("matchErrorText"))
    else:
        found += [] if matched == expect["match"] else [f"matches: {matched}"]
    if "actualCost" in expect:
        found += _measured(selector.measure(device), case)
    return found


def _wrong_text(stage: str, text: str, part: str | None, whole: str | None) -> list[str]:
    syntax = "Syntax error" in text
    if part is None or (part not in text and not syntax) or (whole not in (None, text) and not syntax):
        return [f"{stage}: {text}"]
    return []


def _measured(outcome: Outcome, case: dict[str, Any]) -> list[str]:
    expect = case["expect"]
    found = [] if outcome.value == expect["match"] else [f"measured {outcome}"]
    if outcome.cost != expect["actualCost"] and case["name"] not in COST_DIFFERENCES:
        found.append(f"cost {outcome.cost}")
    return found


def failures(cases: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {case["name"]: found for case in cases if (found := problems(case))}


def test_our_generated_selector_cases_pass() -> None:
    cases = read_cases(LOCAL / "generated.jsonl")
    assert failures(cases) == {}
    assert len(cases) == 253


def test_selector_cases_of_kubernetes_tests_pass() -> None:
    cases = reference_cases("dra-cel/cases.jsonl")
    assert failures(cases) == {}
    assert len(cases) == 106


def test_cost_differences_come_only_from_map_order() -> None:
    cases = {case["name"]: case for case in read_cases(LOCAL / "generated.jsonl")}
    for name in COST_DIFFERENCES:
        case = cases[name]
        assert "exists(" in case["expression"]
        cost = compile_case(case).measure(view(case["device"])).cost
        assert 3 < cost <= case["expect"]["maxCost"]


def outcome(line: dict[str, Any], device: DeviceView) -> dict[str, Any]:
    """What an expression comes to, in the form of `outcomes.jsonl`."""
    found: dict[str, Any] = {}
    try:
        selector = compile_device_selector(line["expression"], list_attributes=line["lists"])
    except CompileError as error:
        return {"compileError": str(error)}
    measured = selector.measure(device)
    found |= {"maxCost": selector.max_cost, "actualCost": measured.cost}
    try:
        return found | {"match": selector.matches(device)}
    except EvaluationError as error:
        return found | {"matchError": str(error)}


def test_selector_outcomes_and_costs_equal_kubernetes_1_36() -> None:
    """Every function and most mistakes: outcomes, texts and costs. `true` stands for an error worded differently, and
    costs that follow from the random order of Go's maps are left out."""
    devices, *lines = read_cases(LOCAL / "outcomes.jsonl")
    views = {False: view(devices["device"]), True: view(devices["deviceWithLists"])}
    wrong = {}
    for line in lines:
        found = outcome(line, views[line["lists"]])
        expected = {key: value for key, value in line.items() if key not in ("expression", "lists")}
        for stage in ("compileError", "matchError"):
            if expected.get(stage) is True and stage in found:
                found[stage] = True
        if {key: found.get(key) for key in expected} != expected:
            wrong[line["expression"]] = (expected, found)
    assert wrong == {}
    assert len(lines) == 835
