"""Whatever the text: an answer, no traceback, in time."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lint_faults import DATA, faults

from haru.kube.yaml import dump_all
from haru.lint import fix_texts, lint_texts, to_json, to_text

SECONDS = 600
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
def test_bytes(data: bytes) -> None:
    examine(data.decode("utf-8", "replace"))
    examine(data.decode("latin-1"))


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_objects_of_any_content(kind: tuple[str, str], content: dict[str, object]) -> None:
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
def test_damaged_manifests(seed: int) -> None:
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
def test_hostile_texts_are_answered_soon(text: str) -> None:
    start = time.monotonic()
    lint_texts({"file": text})
    assert time.monotonic() - start < 10


@pytest.mark.nightly
def test_damaged_manifests_for_ten_minutes() -> None:
    seed, start = random.SystemRandom().randrange(1 << 32), time.monotonic()
    while time.monotonic() - start < SECONDS:
        seed += 1
        before = time.monotonic()
        text = damaged(random.Random(seed))
        try:
            examine(text)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert time.monotonic() - before < 20, f"seed {seed}"
