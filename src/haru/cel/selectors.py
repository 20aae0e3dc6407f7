"""Whether a device selector may be stored: compiled by the CEL room, judged in validation's terms (KEP 4381)."""

from __future__ import annotations

from haru.cel.device import COST_LIMIT, CompileError, compile_device_selector
from haru.kube.gates import FeatureGates
from haru.kube.validation.types import SelectorProblem


def check_selector(expression: str, gates: FeatureGates) -> SelectorProblem | None:
    """None when the expression compiles to a bool within the cost limit."""
    try:
        selector = compile_device_selector(
            expression,
            consumable_capacity=gates.enabled("DRAConsumableCapacity"),
            list_attributes=gates.enabled("DRAListTypeAttributes"),
        )
    except CompileError as error:
        return SelectorProblem("invalid", str(error))
    if selector.max_cost > COST_LIMIT:
        return SelectorProblem("too-complex")
    return None
