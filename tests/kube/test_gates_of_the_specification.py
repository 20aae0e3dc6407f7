"""The gates that the specification of 1.36 names, each with its stage and default there, are those of the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from reference import REFERENCE, needs_reference

from haru.kube.gates import FeatureGates

pytestmark = needs_reference

OTHERS = {
    "DynamicMIG": "a gate of NVIDIA's driver",
    "MPSSupport": "a gate of NVIDIA's driver",
    "TimeSlicingSettings": "a gate of NVIDIA's driver",
    "UserNamespacesPodSecurityStandards": "removed in 1.35",
}
"""Named as gates there, and none of 1.36."""
_NAME = r"[A-Z][A-Za-z]*[a-z][A-Z][A-Za-z]+|MemoryQoS|KubeletPSI"
_SPOKEN = (
    rf"\bgates? `?({_NAME})\b",
    rf"^\| gates? \| `?({_NAME})\b",
    rf"^\| gates \| (?:{_NAME}), ({_NAME})\b",
    rf"`({_NAME})` \(?(?:alpha|beta|GA)\b",
    rf"\b({_NAME}) \|[^|]*\((?:alpha|beta), (?:on|off)\)",
)
_STAGES = {"alpha": "ALPHA", "beta": "BETA", "ga": "GA"}


class Told(NamedTuple):
    """What a line says of a gate; None where it does not say."""

    name: str
    stage: str | None = None
    default: bool | None = None
    locked: bool | None = None


def pages() -> list[tuple[str, list[str]]]:
    """The pages by name, in lines."""
    folder = Path(REFERENCE) / "spec"
    return [(page.name, page.read_text().splitlines()) for page in sorted(folder.glob("*.md"))]


def _locked(told: str) -> bool | None:
    return "not locked" not in told if "locked" in told else None


def rows() -> Iterator[Told]:
    """The rows of the tables of gates: stage and default in columns of their own, or in one."""
    for _, lines in pages():
        head: list[str] = []
        under_alpha = False
        for line in lines:
            if line.startswith("#"):
                under_alpha = "all alpha, default false" in line
            if not line.startswith("|"):
                head = []
                continue
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not head:
                head = cells
            elif head[0] == "Gate" and not set(line) <= set("|- "):
                said = " ".join(cells[1:3]) if head[2:3] == ["Default"] else cells[1]
                told = said.lower().replace("*", "")
                stage = re.search(r"alpha|beta|ga\b", told)
                default = re.search(r"\b(true|false|on|off)\b", told)
                on = None if under_alpha or default is None else default[1] in ("true", "on")
                for name in re.findall(_NAME, cells[0]):
                    yield Told(name, _STAGES[stage[0]] if stage else None, False if under_alpha else on, _locked(told))


def heads() -> Iterator[Told]:
    """What pages about one feature begin with."""
    for _, lines in pages():
        for line in lines[:8]:
            gate = re.search(rf"gate `({_NAME})`", line)
            if gate is None or not line.startswith(("Stage:", "Target:")):
                continue
            plain = line.replace("*", "")
            stage = re.search(r"(?:Stage|Target): (alpha|beta|ga)", plain, re.IGNORECASE)
            assert stage is not None, line
            after = plain[gate.start() :]
            default = re.search(r"default (on|off)", after)
            on = default[1] == "on" if default else _locked(after)
            yield Told(gate[1], _STAGES[stage[1].lower()], on, _locked(plain))


def spoken() -> Iterator[tuple[str, str]]:
    """Names that are said to be gates anywhere: page and name."""
    for page, lines in pages():
        for line in lines:
            for pattern in _SPOKEN:
                yield from ((page, found) for found in re.findall(pattern, line))


def known() -> dict[str, Told]:
    return {gate.name: Told(gate.name, gate.stage, gate.default, gate.locked) for gate in FeatureGates.known()}


def test_every_gate_in_documentation_is_known() -> None:
    named = {told.name for told in (*rows(), *heads())} | {name for _, name in spoken()}
    assert len(named - OTHERS.keys()) >= 35, "the pages were read"
    assert named - OTHERS.keys() <= known().keys()


def test_gate_stage_and_default_equal_documentation() -> None:
    table, seen = known(), 0
    for told in (*rows(), *heads()):
        found = table[told.name]
        for ours, theirs in zip(found[1:], told[1:], strict=True):
            seen += theirs is not None
            assert theirs is None or ours == theirs, (told, found)
    assert seen >= 60, "the pages were read"


@pytest.mark.parametrize("name", ["DRADeviceTaintRules", "DRAPrioritizedList", "MutatingAdmissionPolicy", "MemoryQoS"])
def test_documentation_table_of_gates_is_parsed(name: str) -> None:
    told = {
        "DRADeviceTaintRules": ("BETA", False, None),
        "DRAPrioritizedList": ("GA", True, False),
        "MutatingAdmissionPolicy": ("GA", True, False),
        "MemoryQoS": ("ALPHA", False, None),
    }
    assert told[name] in {each[1:] for each in (*rows(), *heads()) if each.name == name}
