"""Evaluate long expressions outside the event loop, with a time limit, and stop them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from haru.apiserver.admission.dynamic import expression_runner
from haru.cel.admission import Composition, compile_expression
from haru.cel.admission_evaluation import Evaluation, Given
from haru.cel.libraries import Decision, Question

GIVEN = Given({"metadata": {"name": "n"}, "spec": {"n": 3}}, None, {"operation": "CREATE"})
TEN = "[0,1,2,3,4,5,6,7,8,9]"


def nested(depth: int, inner: str = "true") -> str:
    """Return an expression that takes ten times as long with every level."""
    return "".join(f"{TEN}.all(v{n}, " for n in range(depth)) + inner + ")" * depth


async def test_long_expression_runs_in_a_thread_and_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()

    def decide(question: Question) -> Decision:
        threads.add(threading.current_thread().name)
        return Decision(True)

    loop = asyncio.get_running_loop()

    def answer(question: Question) -> Decision:
        return expression_runner.on_loop(loop, lambda: decide(question))

    given = GIVEN._replace(asking=lambda: (answer, Question()))
    composition = Composition((), params=False)
    monkeypatch.setattr(expression_runner, "SECONDS", 600.0)
    asking = f"{nested(4)} && authorizer.path('/x').check('get').allowed()"
    found = await expression_runner.run_in_turn(Evaluation(given), compile_expression(asking, composition.trusted))
    assert found.value is True
    assert threads == {threading.current_thread().name}, "the authorizer is asked where it lives"
    monkeypatch.setattr(expression_runner, "SECONDS", 0.0)
    endless = compile_expression(nested(6, "v0 >= 0"), composition.trusted)
    found = await expression_runner.run_in_turn(Evaluation(GIVEN), endless)
    assert found.error.endswith("resulted in error: operation interrupted")
    monkeypatch.setattr(expression_runner, "SECONDS", 30.0)
    evaluation = Evaluation(GIVEN)
    task = asyncio.create_task(expression_runner.run_in_turn(evaluation, endless))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "operation interrupted" in evaluation.run(endless).error, "a stopped evaluation stays so"
