"""Whatever is sent, the server answers: in time, never with a failure of its own, every refusal a Status."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from fuzz_target import Target, check_answer
from hypothesis import given, settings
from hypothesis import strategies as st
from request_fuzzer import RequestFuzzer
from sample_objects import SAMPLES

from haru.apiserver.registry import list


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    running = Target()
    yield running
    running.close()


@settings(max_examples=600, deadline=None)
@given(seed=st.integers(0, 1 << 48))
def test_every_random_request_gets_a_valid_response(target: Target, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(list, "WAIT_FOR_REVISION", 0.0)
        request = RequestFuzzer(random.Random(seed), SAMPLES).request()
        check_answer(request, target.send(request))
