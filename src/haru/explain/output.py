"""An explanation as JSON for programs, and as text that a person reads in ten seconds."""

from __future__ import annotations

from collections.abc import Iterator

from haru.engine.decision import Obj
from haru.explain.explanation import Explanation, Funnel, NodeGroup, Remedy

_MOST_REASONS = 3


def to_json(explanation: Explanation) -> Obj:
    """The Explanation object of haru.dev/v1alpha1."""
    return {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "Explanation",
        "subject": {"kind": explanation.kind, "namespace": explanation.namespace, "name": explanation.name},
        "verdict": explanation.verdict,
        "summary": explanation.summary,
        **({} if explanation.age_seconds is None else {"ageSeconds": explanation.age_seconds}),
        "reasons": [reason.to_json() for reason in explanation.reasons],
        "nodes": [_nodes(group) for group in explanation.nodes],
        "requests": [_request(funnel) for funnel in explanation.requests],
        "remedies": [_remedy(remedy) for remedy in explanation.remedies],
    }


def _nodes(group: NodeGroup) -> Obj:
    return {"count": group.count, "examples": list(group.examples), "reasons": [r.to_json() for r in group.reasons]}


def _request(funnel: Funnel) -> Obj:
    request = funnel.request
    refusal = request.refusal
    return {
        "claim": request.claim,
        "request": request.request,
        "deviceClass": request.device_class,
        "needed": request.needed,
        "node": funnel.node,
        "funnel": [{"stage": s.name, "left": s.left, **s.data} for s in request.stages],
        "reason": None if refusal is None else {"type": refusal.type, "message": refusal.message, **refusal.data},
    }


def _remedy(remedy: Remedy) -> Obj:
    return {
        "kind": remedy.kind,
        "summary": remedy.summary,
        "changes": list(remedy.changes),
        "cost": remedy.cost,
        "confirmed": remedy.confirmed,
    }


def to_text(explanation: Explanation) -> str:
    """A few lines: the verdict, what blocks, what would help."""
    return "\n".join(_lines(explanation)) + "\n"


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.kind} {explanation.namespace}/{explanation.name}: {explanation.verdict}"
    for number, reason in enumerate(explanation.reasons[:_MOST_REASONS]):
        yield f"{'because ' if not number else '        '}{reason.message}"
    for number, group in enumerate(explanation.nodes[:_MOST_REASONS]):
        names = ", ".join(group.examples) + (", …" if group.count > len(group.examples) else "")
        texts = "; ".join(reason.message for reason in group.reasons)
        yield f"{'nodes   ' if not number else '        '}{group.count} ({names}): {texts}"
    for number, funnel in enumerate(explanation.requests):
        yield f"{'devices ' if not number else '        '}{_funnel(funnel)}"
    for number, remedy in enumerate(explanation.remedies):
        mark = "" if remedy.confirmed else " (not confirmed)"
        yield f"{'helps   ' if not number else '        '}{remedy.summary}{mark}"


def _funnel(funnel: Funnel) -> str:
    request = funnel.request
    needed = "all" if request.needed is None else str(request.needed)
    steps = " → ".join(f"{stage.left} {stage.name}" for stage in request.stages)
    return f"{request.request} needs {needed}; on {funnel.node}: {steps}"
