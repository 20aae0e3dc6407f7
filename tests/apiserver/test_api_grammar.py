"""Runs of requests from a grammar against fresh servers: every one is answered, in time and in a form that can be read.

A failure names the run's seed: HARU_FUZZ_SEED=<seed> sends the same requests to a fresh server, in the same order.
HARU_FUZZ_SECONDS says for how long the nightly test makes up new runs.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator

import pytest
from fuzz_target import Target, check_answer, resident_mebibytes
from request_grammar import RequestGrammar
from sample_objects import SAMPLES

from haru.apiserver.registry import list

SECONDS = float(os.environ.get("HARU_FUZZ_SECONDS", "600"))
SEED = os.environ.get("HARU_FUZZ_SEED", "")
REQUESTS_A_RUN = 200
GROWTH_MEBIBYTES = 150


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setattr(list, "WAIT_FOR_REVISION", 0.0)
    running = Target(REQUESTS_A_RUN)
    yield running
    running.close()


def run_of(seed: int, target: Target) -> None:
    """The run of that seed."""
    target.renew()
    grammar = RequestGrammar(random.Random(seed), SAMPLES)
    for number in range(REQUESTS_A_RUN):
        request = grammar.request()
        try:
            check_answer(request, target.send(request))
        except BaseException as error:
            error.add_note(f"request {number} of the run HARU_FUZZ_SEED={seed}: {str(request)[:3000]}")
            raise


def test_random_request_sequence_gets_valid_responses(target: Target) -> None:
    run_of(int(SEED or 7), target)


@pytest.mark.nightly
def test_random_request_sequences_get_valid_responses_in_long_run(target: Target) -> None:
    end = time.monotonic() + SECONDS
    for _ in range(5):
        run_of(secrets.randbits(48), target)
    before = resident_mebibytes()
    while time.monotonic() < end:
        run_of(secrets.randbits(48), target)
    assert resident_mebibytes() - before < GROWTH_MEBIBYTES
