"""Within one short form, numbers of one thing are the same number: the headline's, the shortage's, the holders'."""

from __future__ import annotations

import re
from random import Random

import pytest
from random_situations import situation

from haru.api.snapshot import Snapshot
from haru.kube.meta import Obj

SEEDS = [*range(40), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(40, 600))]
NUMBER = r"(\d+|no|none)"
SHORT = re.compile(
    r"short by (?P<short>\d+) devices? of \S+: (?P<needed>\d+) needed; of (?P<total>\d+) devices? (?P<parts>.+)"
)
PART = re.compile(r"(\d+) (are|is|held|blocked|without|tainted|free|not) ?(?:usable|free)?")


def number(text: str) -> int:
    return 0 if text in ("no", "none") else int(text)


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_of_one_short_form_agree(seed: int) -> None:
    found = situation(Random(seed))
    told = Snapshot.of(found.objects).explain(found.about, remedies=False)
    lines = told.short().splitlines()
    headline = lines[0]
    check_headline(headline, told.as_dict())
    for line in lines[1:]:
        if match := SHORT.fullmatch(line):
            check_shortage(match, headline, told.as_dict())
    check_holders(lines, told.as_dict())


def check_headline(headline: str, told: Obj) -> None:
    """Parts of a whole that the headline names are no more than the whole, and less than what is needed."""
    part = re.search(rf"{NUMBER} of the (\d+) free devices .*, (\d+) (?:is|are) needed", headline)
    if part is None:
        return
    some, free, needed = number(part[1]), int(part[2]), int(part[3])
    assert some < needed and some < free
    requests = [r for r in told["requests"] if r["needed"] == needed and r["free"] == some]
    assert requests, "the numbers are those of a request"
    if "that the pod can use" in headline:
        away = [stage["dropped"] for stage in requests[0]["funnel"] if stage["stage"] == "nodes"]
        assert away == [free - some]


def check_shortage(match: re.Match[str], headline: str, told: Obj) -> None:
    """The parts make up the whole; what is needed is what the headline says."""
    short, needed, total = (int(match[name]) for name in ("short", "needed", "total"))
    parts = [int(count) for count, _ in PART.findall(match["parts"])]
    assert sum(parts) == total, match["parts"]
    assert short == needed - parts[0]
    if named := re.search(r"(\d+) (?:is|are) needed", headline):
        assert int(named[1]) == needed
    if named := re.search(rf"{NUMBER} devices? (?:is|are|can be used)\b.*? (\d+) short", headline):
        assert (number(named[1]), int(named[2])) == (parts[0], short)
    assert any((r["needed"], r["free"], r["short"]) == (needed, parts[0], short) for r in told["requests"])


def check_holders(lines: list[str], told: Obj) -> None:
    """Those who hold devices hold as many together as are held."""
    line = next((line for line in lines if line.startswith("held by")), "")
    held = next((int(n) for line in lines for n in re.findall(r"(\d+) held", line)), None)
    if not line or held is None:
        return
    counts = [int(n) for n in re.findall(r" (\d+) \(", line)] + [int(n) for n in re.findall(r"more with (\d+)", line)]
    shared = sum(int(n) for n in re.findall(r"(\d+) of these shared", line))
    assert sum(counts) - shared == held
