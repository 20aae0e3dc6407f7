"""Device selectors, rules of definitions and both kinds of admission policies are served by one parser and compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from haru.cel import checker, parser
from haru.cel.admission import CONDITION, CONFIGURATION, OPERATIONS, Composition, compile_expression
from haru.cel.compiler import Compiler
from haru.cel.device import DeviceView, compile_device_selector
from haru.cel.object_rules import ObjectRules
from haru.kube.custom.structural import parse

POLICY = Composition((), params=False)
RULE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.n - 31 < 7"}],
        }
    },
}


def device() -> None:
    selector = compile_device_selector("device.driver == 'd' && 31 < 38")
    assert selector.matches(DeviceView("d", {}, {}, False))


def rule() -> None:
    assert ObjectRules(parse(RULE)).check({"spec": {"n": 3}}, None) == []


def validation() -> None:
    assert compile_expression("object.n - 31 < 7", POLICY.trusted, CONDITION).program is not None


def configuration() -> None:
    assert compile_expression("Object{n: 31}", POLICY.patching, CONFIGURATION).program is not None


def patch() -> None:
    assert compile_expression("[JSONPatch{op: 'test', value: 31}]", POLICY.patching, OPERATIONS).program is not None


@pytest.mark.parametrize("use", [device, rule, validation, configuration, patch])
def test_all_cel_users_share_parser_checker_and_compiler(
    use: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each goes through the same three classes, of which there is no other kind."""
    seen: set[str] = set()

    def watched(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            seen.add(owner.__name__)
            return original(*args, **named)

        monkeypatch.setattr(owner, name, call)

    for owner in (parser._Parser, checker._Checker, Compiler):
        watched(owner, "__init__")
    use()
    assert len(seen) == 3
