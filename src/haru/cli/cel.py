"""Evaluate a device selector: which devices of ResourceSlices match, and the first reason why others do not.

EXPRESSION is the value of `selectors[].cel.expression` in a claim or class. Exit status: 0 if a device matches, 1 if
none does, 2 if the expression does not compile. With --cases, every line of a file is a case with an expression and a
device; the output has one JSON line per case.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from haru.cli.connection import add_answer_arguments, add_manifest_argument
from haru.cli.main import UsageError
from haru.kube.meta import Obj

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haru.cel.device import DeviceSelector


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru cel`."""
    parser.add_argument("expression", nargs="?", metavar="EXPRESSION", help="selector to evaluate")
    add_manifest_argument(parser, "manifests with ResourceSlices", several=False)
    add_answer_arguments(parser, cases=True)


def run(options: argparse.Namespace) -> int:
    """Prints what each device has to say to the expression."""
    if options.cases:
        if options.expression or options.filename:
            raise UsageError("--cases brings its own expressions and devices: leave EXPRESSION and -f out")
        from haru.cli.cases import answer_cases

        return answer_cases(options.cases, answer_case)
    if options.expression is None or not options.filename:
        raise UsageError("write haru cel EXPRESSION -f FILE, or haru cel --cases FILE")
    return _try(options)


def answer_case(case: Obj) -> Obj:
    """The outcome of one case, in the form of the test vectors."""
    from haru.cel.device import DeviceView, compile_device_selector
    from haru.cel.errors import CompileError, EvaluationError

    answer: Obj = {"name": case["name"], "compileError": None, "matchError": None, "match": None}
    answer |= {"maxCost": None, "actualCost": None}
    features = case.get("features") or {}
    try:
        selector = compile_device_selector(
            case["expression"],
            consumable_capacity=bool(features.get("ConsumableCapacity", True)),
            list_attributes=bool(features.get("ListTypeAttributes", False)),
            new=bool(case.get("newExpression", True)),
        )
    except CompileError as error:
        return answer | {"compileError": str(error)}
    answer["maxCost"] = selector.max_cost
    given = case["device"]
    device = DeviceView(
        given["driver"],
        given.get("attributes") or {},
        given.get("capacity") or {},
        bool(given.get("allowMultipleAllocations")),
    )
    try:
        outcome = selector.measure(device)
    except EvaluationError as error:
        return answer | {"matchError": str(error)}
    answer["actualCost"] = outcome.cost
    if outcome.error is not None:
        return answer | {"matchError": str(outcome.error)}
    return answer | {"match": outcome.value is True}


def _try(options: argparse.Namespace) -> int:
    from haru.cel.device import compile_device_selector
    from haru.cel.errors import CompileError
    from haru.cli.sources import file_gates

    gates = file_gates(options.feature_gates)
    try:
        selector = compile_device_selector(
            options.expression,
            consumable_capacity=gates.enabled("DRAConsumableCapacity"),
            list_attributes=gates.enabled("DRAListTypeAttributes"),
        )
    except CompileError as error:
        raise UsageError(f"the expression does not compile: {error}") from error
    found = list(_judged(selector, options.filename))
    matching = sum(1 for entry in found if entry["match"])
    if options.output == "text":
        _print(found, matching)
    else:
        from haru.kube.yaml import dump

        facts = {"apiVersion": "haru.dev/v1alpha1", "kind": "SelectorMatches", "expression": options.expression}
        answer = {**facts, "maxCost": selector.max_cost, "matching": matching, "devices": found}
        print(json.dumps(answer, indent=2) if options.output == "json" else dump(answer).rstrip())
    return 0 if matching else 1


def _judged(selector: DeviceSelector, paths: list[str]) -> Iterator[Obj]:
    """Every device with whether it matches, and if not the first condition that fails."""
    from haru.api.files import read_objects
    from haru.cel.device import DeviceView, explain_mismatch
    from haru.cel.errors import EvaluationError

    for item in read_objects(paths, "default"):
        if item.get("kind") != "ResourceSlice":
            continue
        spec = item.get("spec") or {}
        driver, pool = spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""
        for device in spec.get("devices") or ():
            name = f"{driver}/{pool}/{device.get('name') or ''}"
            view = DeviceView(
                driver,
                device.get("attributes") or {},
                device.get("capacity") or {},
                bool(device.get("allowMultipleAllocations")),
            )
            try:
                if selector.matches(view):
                    yield {"device": name, "match": True}
                    continue
                atoms = [atom for atom in explain_mismatch(selector, view) if atom.matched is not True]
                yield {"device": name, "match": False, "reason": str(atoms[0]) if atoms else "the expression is false"}
            except EvaluationError as error:
                yield {"device": name, "match": False, "error": True, "reason": str(error)}


def _print(found: list[Obj], matching: int) -> None:
    width = max((len(entry["device"]) for entry in found), default=0)
    for entry in found:
        verdict = "matches" if entry["match"] else ("fails: " if entry.get("error") else "no: ") + entry["reason"]
        print(f"{entry['device']:<{width}}  {verdict}")
    print(f"{matching} of {len(found)} devices match" if found else "there are no devices in the files")
