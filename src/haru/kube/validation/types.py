"""What validation works with: the findings, and what the caller must bring along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class SelectorProblem:
    """Why a CEL device selector is refused; `message` is the compiler's text as it is (`compilation failed: …`)."""

    kind: Literal["invalid", "too-complex"]
    message: str = ""


CheckSelector = Callable[[str], SelectorProblem | None]
"""Compiles a device selector; CEL is a room above this one, so the caller brings it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Inputs of the rules besides the objects."""

    gates: FeatureGates
    check_selector: CheckSelector
    stored: Obj | None = None
    """What an update replaces."""


def no_selector_check(expression: str) -> SelectorProblem | None:
    """For updates of status and for callers that have checked the expressions already."""
    return None
