"""What is published of random work that waits has the form of the reference, and the numbers of `explain -o json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from random_situations import situation

from haru.api.snapshot import Snapshot
from haru.engine import SchedulerCache
from haru.explain import Explanation, condition_line, condition_text, is_waiting, with_explanation, without_explanation
from haru.explain.render import redacted

OWN = "0/4 nodes are available: 4 cannot allocate all claims."
NOW = datetime(2026, 1, 2, tzinfo=UTC)
SENTENCE = re.compile(r"\. (Nodes|Helps|More): |\. Starts by ")
CAUSE = re.compile(
    r"(?:(?P<fit>\d+) of (?P<members>\d+) members fit: )?request (?P<request>\S+) needs (?P<needed>\d+) devices? of "
    r"(?P<class>\S+), (?P<free>\d+) (?:is|are) free(?P<rest>(?:, .+)?)"
)
STAGES: Mapping[str, str] = {
    "class": r", (\d+) of other classes",
    "selector": r", (\d+) without [^,]+",
    "taints": r", (\d+) tainted [^,]+",
    "free": r", (\d+) held by .+?",
    "nodes": r", (\d+) on nodes that the pod cannot use \([^)]*\)",
    "scattered": r", but not \d+ together",
    "node": r", (\d+) not usable on their node",
}
WELL_KNOWN = ("kubernetes.io/hostname", "topology.kubernetes.io/", "kubernetes.io/arch", "kubernetes.io/os")


def check(seed: int) -> bool:
    """Check one situation; whether something is published of it."""
    made = situation(Random(seed))
    snapshot = Snapshot.of(made.objects)
    found = snapshot.explain(made.about, now=NOW)
    assert isinstance(found, Explanation)
    if not is_waiting(found):
        return False
    public = redacted(found, SchedulerCache.of(made.objects).snapshot(), {"default"})
    for text in (condition_line(public), condition_text(public)):
        message = with_explanation(OWN, text)
        assert without_explanation(message) == (OWN, text)
        assert "zz-" not in message
        _agree(text, found.as_dict())
    return True


def _agree(text: str, told: dict[str, Any]) -> None:
    cause, *rest = SENTENCE.split(text)
    parsed = CAUSE.fullmatch(cause)
    if parsed is not None:
        _agree_in_devices(parsed, told)
    else:
        numbers = iter(re.findall(r"\d+", told["summary"]))
        assert all(number in numbers for number in re.findall(r"\d+", cause)), (cause, told["summary"])
        assert not any(r["short"] and not r["error"] and not r["alternative"] for r in told["requests"]), cause
    sentences = dict(zip(rest[::2], rest[1::2], strict=True))
    if "Nodes" in sentences:
        counts = [int(many) for many in re.findall(r"(?:^|; )(\d+) nodes?: ", sentences["Nodes"])]
        assert counts == [group["count"] for group in told["nodes"]][: len(counts)], text
        assert len(counts) == min(4, len(told["nodes"]))
    if "Helps" in sentences:
        _confirmed(sentences["Helps"], told)


def _agree_in_devices(parsed: re.Match[str], told: dict[str, Any]) -> None:
    [request] = [r for r in told["requests"] if r["request"] == parsed["request"]]
    dropped = {stage["stage"]: stage["dropped"] for stage in request["funnel"] if stage["dropped"]}
    apart = dropped.get("scattered", 0) + dropped.get("constraints", 0)
    assert int(parsed["needed"]) == request["needed"]
    assert int(parsed["free"]) == request["free"] + apart
    assert parsed["class"] == request["deviceClass"]
    shown = dict(_stages(parsed["rest"]))
    assert shown == {stage: dropped[stage] for stage in shown}, (parsed[0], dropped)
    for stage in ("taints", "free", "nodes", "node"):
        assert (stage in shown) == (stage in dropped), (parsed[0], dropped)
    quorum = [reason for reason in told["reasons"] if reason["type"] == "Quorum" and reason["needed"] > 1]
    assert (parsed["fit"] is not None) == bool(quorum)
    if quorum:
        assert (int(parsed["fit"]), int(parsed["members"])) == (quorum[0]["fit"], quorum[0]["needed"])


def _stages(text: str) -> Iterator[tuple[str, int]]:
    """The stages of a cause, in their order, and how many devices each keeps back."""
    left = text
    for name, pattern in STAGES.items():
        found = re.match(f"(?:{pattern})(?=, |$)", left)
        if found is None:
            continue
        if name == "free":
            found = _holders(left)
        left = left[found.end() :]
        if found.groups():
            yield name, int(found[1])
    assert left == "", f"not understood: {left}"


def _holders(text: str) -> re.Match[str]:
    """The holders, whose devices make up those that are held."""
    holder = r"[^,(]+(?: \([^)]*\))?"
    found = re.match(rf", (\d+) held by {holder}(?:, {holder})*?(?=, \d+ (?:on|not) |, but |$)", text)
    assert found is not None, text
    parts = [int(many) for many in re.findall(r" \((\d+)[,)]", found[0])]
    assert not parts or sum(parts) == int(found[1]), text
    return found


def _confirmed(text: str, told: dict[str, Any]) -> None:
    remedies = [remedy for remedy in told["remedies"] if remedy["confirmed"]]
    for helps in text.split("; or "):
        known = [remedy for remedy in remedies if helps.startswith(remedy["summary"])]
        hidden = [remedy for remedy in remedies if remedy["kind"] in ("Evict", "MoveWork", "Combination")]
        assert known or (hidden and ("of another namespace" in helps or "of other namespaces" in helps)), helps
        assert not any(label in helps.partition(" (")[0] for label in WELL_KNOWN), helps


def test_published_texts_have_the_numbers_of_explain() -> None:
    assert sum(map(check, range(60))) > 30


@pytest.mark.nightly
def test_published_texts_of_five_thousand_situations_have_the_numbers_of_explain() -> None:
    assert sum(map(check, range(6_500))) >= 5_000
