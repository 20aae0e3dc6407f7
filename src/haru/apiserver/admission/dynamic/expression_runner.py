"""Running expressions without making others wait: what takes long is run beside the server's loop.

An expression is tried with a small allowance first. One that needs more starts anew in the one thread that there is
for such, where its full limits hold, and where it is ended after a while: nobody's expression can stop the server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

from haru.cel.admission import Expression, compile_expression
from haru.cel.admission_evaluation import Evaluation, Result
from haru.cel.environment import Environment
from haru.cel.types import Type
from haru.exposition import HistogramOf

T = TypeVar("T")

QUICK = 10_000
"""What an evaluation may cost that everybody waits for: some milliseconds."""
SECONDS = 30.0
"""How long an evaluation may take beside the loop, the wait for its turn included."""
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COMPILATION = HistogramOf(
    "apiserver_cel_compilation_duration_seconds", "How long the compilation of expressions took.", (), _BOUNDS
)
_EVALUATION = HistogramOf(
    "apiserver_cel_evaluation_duration_seconds", "How long the evaluation of expressions took.", (), _BOUNDS
)
CEL_METRICS = (_COMPILATION, _EVALUATION)
"""Of all servers in this process, as in 1.36."""
_PREFIX = "haru-cel"
_beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_PREFIX)


def timed_compile(text: str, within: Environment, wanted: Sequence[Type] = ()) -> Expression:
    """As `compile_expression`; the time is noted."""
    start = perf_counter()
    found = compile_expression(text, within, wanted)
    _COMPILATION.observe(perf_counter() - start)
    return found


async def run_in_turn(evaluation: Evaluation, expression: Expression) -> Result:
    """Evaluate. Raises OutOfBudget."""
    start = perf_counter()
    try:
        found = evaluation.attempt(expression, QUICK)
        return found if found is not None else await _run_beside(evaluation, expression)
    finally:
        _EVALUATION.observe(perf_counter() - start)


async def _run_beside(evaluation: Evaluation, expression: Expression) -> Result:
    """Evaluate in the other thread. Whoever stops waiting ends it."""
    running = asyncio.get_running_loop().run_in_executor(_beside, evaluation.run, expression)
    try:
        done, _ = await asyncio.wait((running,), timeout=SECONDS)
        if not done:
            evaluation.stop()
        return await running
    except asyncio.CancelledError:
        evaluation.stop()
        raise


def on_loop(loop: asyncio.AbstractEventLoop, ask: Callable[[], T]) -> T:
    """What a function that may only run in the loop's thread answers, from whichever thread."""
    if not threading.current_thread().name.startswith(_PREFIX):
        return ask()
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # for whoever waits in the other thread
            answer.set_exception(error)

    loop.call_soon_threadsafe(run)
    return answer.result(SECONDS)
