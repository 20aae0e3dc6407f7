"""Whatever the text: an answer, no traceback, in time. HARU_FUZZ_SECONDS says for how long at night."""

from __future__ import annotations

import os
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lint_faults import DATA, faults

from haru.kube.yaml import dump_all
from haru.lint import fix_texts, lint_texts, to_json, to_text

SECONDS = float(os.environ.get("HARU_FUZZ_SECONDS", "600"))
PIECES = [fault.text for fault in faults()] + [path.read_text() for path in (DATA / "manifests").glob("*.yaml")]
WORDS = [
    "spec",
    "devices",
    "requests",
    "exactly",
    "name",
    "selectors",
    "cel",
    "expression",
    "config",
    "opaque",
    "template",
]
WORDS += [
    "constraints",
    "resourceClaims",
    "containers",
    "metadata",
    "attributes",
    "pool",
    "parameters",
    "count",
    "kind",
]
WORDS += [
    "schedulingPolicy",
    "gang",
    "minCount",
    "deviceSelector",
    "taint",
    "schedulingGroup",
    "matchAttribute",
    "basic",
]
KINDS = [
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1beta1", "ResourceClaimTemplate"),
    ("resource.k8s.io/v1beta1", "ResourceSlice"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("resource.k8s.io/v1beta2", "DeviceTaintRule"),
    ("scheduling.k8s.io/v1alpha2", "PodGroup"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("v1", "List"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner),
    max_leaves=20,
)


def examine(text: str) -> None:
    report = lint_texts({"file": text})
    to_text(report)
    to_json(report)
    if report.findings:
        mended, _, after = fix_texts({"file": text})
        assert lint_texts(mended) == after


@given(st.binary(max_size=200))
def test_any_bytes_are_linted(data: bytes) -> None:
    examine(data.decode("utf-8", "replace"))
    examine(data.decode("latin-1"))


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_objects_of_any_content_are_linted(kind: tuple[str, str], content: dict[str, object]) -> None:
    examine(dump_all([{"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "a"}, "spec": content, **content}]))


def damaged(rng: random.Random) -> str:
    """A manifest with some of its text exchanged, doubled or missing."""
    text = rng.choice(PIECES)
    for _ in range(rng.randint(1, 6)):
        at, size = rng.randrange(len(text) + 1), rng.randint(0, 12)
        other = rng.choice(PIECES)
        start = rng.randrange(len(other))
        put = rng.choice(
            ["", text[at : at + size], other[start : start + size], rng.choice("{}[]:,-#&*!|>'\"%@`\n\t\x00é ")]
        )
        text = text[:at] + put + text[at + rng.choice([0, size]) :]
    return text


@pytest.mark.parametrize("seed", range(150))
def test_damaged_manifest_is_linted(seed: int) -> None:
    examine(damaged(random.Random(seed)))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        "a: &a [1]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [" + "*c," * 50_000 + "*c]",
        "&a [*a]",
        "kind: " + "x" * 1_000_000,
        "\ud800",
        "\x00\x01",
        "%YAML 9.9\n---\na: 1",
        "? [a]\n: b",
        "a: !!python/object:os.system x",
        "a: 1e999999999",
        "a: " + "9" * 5000,
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 1e400}}',
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_text_is_linted_within_10_seconds(text: str) -> None:
    start = time.process_time()
    lint_texts({"file": text})
    assert time.process_time() - start < 10


def anything(rng: random.Random, depth: int = 4) -> object:
    """A value of any shape out of words that mean something to the checks."""
    kind = rng.random()
    if depth and kind < 0.4:
        return {str(rng.choice((*WORDS, anything(rng, 0)))): anything(rng, depth - 1) for _ in range(rng.randrange(5))}
    if depth and kind < 0.6:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    return rng.choice((None, True, -1, 2**63, 1.5, "", "1Gi", "a/b", "device.x", "é", "x" * 70, rng.choice(WORDS)))


def objects(rng: random.Random) -> str:
    """Random objects of the kinds that are looked at."""
    found: list[dict[str, object]] = []
    for _ in range(rng.randint(1, 4)):
        version, kind = rng.choice(KINDS)
        spec = {rng.choice(WORDS): anything(rng) for _ in range(rng.randrange(6))}
        found.append({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec})
    return dump_all(found)


def noise(rng: random.Random) -> str:
    """Bytes that are no manifest."""
    return rng.randbytes(rng.randrange(400)).decode(rng.choice(("latin-1", "utf-8")), "replace")


@pytest.mark.parametrize("seed", range(60))
def test_random_objects_and_noise_are_linted(seed: int) -> None:
    examine(objects(random.Random(seed)))
    examine(noise(random.Random(seed)))


@pytest.mark.nightly
def test_random_texts_are_linted_in_long_run() -> None:
    seed, start = random.SystemRandom().randrange(1 << 32), time.monotonic()
    while time.monotonic() - start < SECONDS:
        seed += 1
        before = time.process_time()
        rng = random.Random(seed)
        text = rng.choice((damaged, damaged, objects, noise))(rng)
        try:
            examine(text)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert time.process_time() - before < 20, f"seed {seed}"
