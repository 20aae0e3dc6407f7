"""Recordings of NVML's answers: one JSON document, so that a node can be tried where its cards are not.

    {"form": "haru.dev/nvml/v1", "made": "<by what>", "system": {...},
     "cards": [{"facts": {...}, "profiles": [...], "instances": [...], "readings": {...}, "hasEvents": true}]}

The members are the fields of the dataclasses in `nvml`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from haru.drivers.nvidia.nvml import (
    CardFacts,
    Instance,
    InstanceProfile,
    Nvml,
    Readings,
    SystemFacts,
)
from haru.errors import InputError

FORM: Final = "haru.dev/nvml/v1"
T = TypeVar("T")


class RecordingError(InputError):
    """A recording cannot be read; the text names the file and the place in it."""


@dataclass(slots=True)
class RecordedCard:
    """All recorded answers about a card."""

    facts: CardFacts
    profiles: list[InstanceProfile] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    readings: Readings = field(default_factory=Readings)
    has_events: bool = True


@dataclass(slots=True)
class Recording:
    """All answers; `made` says by what: `nvml` on a machine with cards, or what played its part."""

    system: SystemFacts
    cards: list[RecordedCard]
    made: str = "nvml"


def record(nvml: Nvml, made: str = "nvml") -> Recording:
    """Ask everything once. Raises `NvmlError`."""
    cards = []
    for facts in nvml.cards():
        uuid = facts.uuid
        asked = (nvml.profiles(uuid), nvml.instances(uuid), nvml.readings(uuid), nvml.watch(uuid))
        cards.append(RecordedCard(facts, *asked))
    return Recording(nvml.system(), cards, made)


def dump(recording: Recording) -> bytes:
    """As the file has it."""
    cards = [
        {
            "facts": dataclasses.asdict(card.facts),
            "profiles": [dataclasses.asdict(each) for each in card.profiles],
            "instances": [dataclasses.asdict(each) for each in card.instances],
            "readings": dataclasses.asdict(card.readings),
            "hasEvents": card.has_events,
        }
        for card in recording.cards
    ]
    content = {"form": FORM, "made": recording.made, "system": dataclasses.asdict(recording.system), "cards": cards}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n"


def load(path: Path) -> Recording:
    """A recording of a file. Raises `RecordingError`."""
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise RecordingError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("form") != FORM:
        raise RecordingError(f"{path}: no recording of the form {FORM}: make one with haru driver nvidia --record FILE")
    cards = [_card(each, f"{path}: cards[{number}]") for number, each in enumerate(_list(content, "cards", str(path)))]
    return Recording(
        _read(SystemFacts, content.get("system"), f"{path}: system"), cards, str(content.get("made") or "")
    )


def _card(found: Any, where: str) -> RecordedCard:
    if not isinstance(found, dict):
        raise RecordingError(f"{where}: not an object")
    profiles, instances = _list(found, "profiles", where), _list(found, "instances", where)
    return RecordedCard(
        _read(CardFacts, found.get("facts"), f"{where}.facts"),
        [_read(InstanceProfile, each, f"{where}.profiles[{n}]") for n, each in enumerate(profiles)],
        [_read(Instance, each, f"{where}.instances[{n}]") for n, each in enumerate(instances)],
        _read(Readings, found.get("readings"), f"{where}.readings"),
        bool(found.get("hasEvents", True)),
    )


def _list(found: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = found.get(key) or []
    if not isinstance(value, list):
        raise RecordingError(f"{where}.{key}: not a list")
    return value


def _read(kind: type[T], found: Any, where: str) -> T:
    """A dataclass of its fields, whose types are checked as far as JSON tells them apart."""
    if not isinstance(found, dict):
        raise RecordingError(f"{where}: not an object")
    fields = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(found) - set(fields)):
        raise RecordingError(f"{where}.{unknown[0]}: unknown: use {', '.join(fields)}")
    for name, each in fields.items():
        if name not in found:
            if each.default is dataclasses.MISSING:
                raise RecordingError(f"{where}.{name}: Required value")
            continue
        value = found[name] = tuple(found[name]) if isinstance(found[name], list) else found[name]
        told = str(each.type)
        wanted = {"int": int, "str": str, "bool": bool, "tuple": tuple}[told.partition(" ")[0].partition("[")[0]]
        if value is None and "None" in told:
            continue
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise RecordingError(f'{where}.{name}: "{value}": must be of type {told}')
    return kind(**found)
