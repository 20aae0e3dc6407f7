"""MIG partitions that are made when a claim is prepared and taken away with it, and whole cards held meanwhile.

What is to be made is noted before it is made, and struck out after it is gone. So whatever NVML shows is either noted
or left over from a crash: the first is finished or given back with its claim, the second is removed at the start. With
its first partition a card's mode of MIG is turned on, with its last one off. Everything blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from haru.drivers.checkpoint import Checkpoint
from haru.drivers.library import DeviceError
from haru.drivers.nvidia.cards import Inventory, Part
from haru.drivers.nvidia.nvml import CardFacts, Instance, Nvml, NvmlError

_LOG = logging.getLogger("haru.driver")
_WHOLE: Final = -1


@dataclass(frozen=True, slots=True)
class Note:
    """A device that a claim has: a whole card (`profile` -1), or a partition with the ids that NVML gave it."""

    claim: str
    device: str
    card: str
    profile: int = _WHOLE
    start: int = 0
    size: int = 0
    instance: int = 0
    """0 until it is known."""

    def overlaps(self, other: Note) -> bool:
        """Whether both cannot be at once."""
        if self.card != other.card:
            return False
        if _WHOLE in (self.profile, other.profile):
            return self.profile != other.profile
        return self.start < other.start + other.size and other.start < self.start + self.size

    def is_of(self, instance: Instance) -> bool:
        """Whether NVML's instance is this partition."""
        return (self.profile, self.start) == (instance.profile, instance.start)


class Partitions:
    """Partitions of one machine and the claims that have them. All methods raise `DeviceError` or `CheckpointError`."""

    def __init__(self, nvml: Nvml, inventory: Inventory, checkpoint: Checkpoint) -> None:
        self.nvml = nvml
        self.inventory = inventory
        self._checkpoint = checkpoint
        self._notes: list[Note] = [Note(**told) for told in (checkpoint.load() or {"notes": []})["notes"]]
        self.changed: set[str] = set()
        """Devices whose partition was made again under another id: containers that have it cannot use it."""

    def notes(self) -> list[Note]:
        """What claims have."""
        return list(self._notes)

    def take(self, claim: str, part: Part) -> Instance | None:
        """Give a claim a card or make its partition; again, if that was begun before."""
        placement = part.placement
        note = Note(claim, part.name, part.card.uuid)
        if placement is not None:
            partition = placement.partition
            note = replace(note, profile=partition.instance_profile, start=placement.start, size=partition.size)
        for other in self._notes:
            if (other.claim, other.device) != (claim, part.name) and other.overlaps(note):
                raise DeviceError(part.name, f"claim {other.claim} still has {other.device}")
        if not any((each.claim, each.device) == (claim, part.name) for each in self._notes):
            self._store([*self._notes, note])
        try:
            self._set_mode(part.card, placement is not None, part.name)
            if placement is None:
                return None
            made = self._make(note)
        except NvmlError as error:
            raise DeviceError(part.name, str(error)) from None
        self._note_instance(note, made)
        return made

    def release(self, claim: str) -> None:
        """Take away all that a claim has, as far as it was made."""
        for note in [each for each in self._notes if each.claim == claim]:
            try:
                self._remove(note)
            except NvmlError as error:
                raise DeviceError(note.device, f"cannot be taken away: {error}") from None
            self._store([each for each in self._notes if each != note])
            self.changed.discard(note.device)
            if note.profile != _WHOLE:
                self._rest(note.card)

    def recover(self, claims: Collection[str], remove_unknown: bool) -> None:
        """Bring NVML and the notes together: `claims` are those whose devices are in use, or about to be."""
        for claim in {note.claim for note in self._notes} - set(claims):
            self.release(claim)
        if not remove_unknown:
            return
        for uuid, facts in self.inventory.cards.items():
            try:
                self._recover(facts)
            except NvmlError as error:
                _LOG.error("gpu-%d: its partitions cannot be brought in order: %s", facts.minor, error)
            else:
                self._rest(uuid)

    def _recover(self, facts: CardFacts) -> None:
        noted = [note for note in self._notes if note.card == facts.uuid and note.profile != _WHOLE]
        for instance in self.nvml.instances(facts.uuid) if facts.mig_mode is not None else ():
            if not any(note.is_of(instance) for note in noted):
                _LOG.warning("gpu-%d: removing a partition that no claim has (%s)", facts.minor, instance)
                self._destroy(facts.uuid, instance)
        for note in noted:
            if note.instance:  # it was finished once: after a restart of the machine NVML knows nothing of it
                self._set_mode(facts, True, note.device)
                made = self._make(note)
                if made.id != note.instance:
                    self.changed.add(note.device)

    def _make(self, note: Note) -> Instance:
        """The partition as NVML has it, made as far as it is not there."""
        found = next((each for each in self.nvml.instances(note.card) if note.is_of(each)), None)
        if found is None:
            found = self.nvml.create_instance(note.card, note.profile, note.start)
        if found.compute_instance is None:
            found = self.nvml.create_compute_instance(note.card, found.id)
        return found

    def _remove(self, note: Note) -> None:
        if note.profile == _WHOLE:
            return
        for instance in self.nvml.instances(note.card):
            if note.is_of(instance):
                self._destroy(note.card, instance)

    def _destroy(self, card: str, instance: Instance) -> None:
        if instance.compute_instance is not None:
            self.nvml.destroy_compute_instance(card, instance.id)
        self.nvml.destroy_instance(card, instance.id)

    def _set_mode(self, facts: CardFacts, wanted: bool, device: str) -> None:
        """Raises `DeviceError` if only a reset changes the mode, or the card has no MIG."""
        if facts.mig_mode is None:
            if wanted:
                raise DeviceError(device, f"{facts.name} cannot be divided (MIG)")
            return
        is_on = next(each.mig_mode for each in self.nvml.cards() if each.uuid == facts.uuid)
        if is_on != wanted and not self.nvml.set_mig_mode(facts.uuid, wanted):
            word = "on" if wanted else "off"
            raise DeviceError(device, f"MIG is turned {word} by a reset of the card alone: nvidia-smi --gpu-reset")

    def _rest(self, card: str) -> None:
        """Turn MIG off where no partition is left. It is no harm if that fails: the next whole card tries again."""
        facts = self.inventory.cards.get(card)
        if facts is None or f"gpu-{facts.minor}" not in self.inventory.parts:
            return
        if not any(note.card == card and note.profile != _WHOLE for note in self._notes):
            try:
                self._set_mode(facts, False, f"gpu-{facts.minor}")
            except (NvmlError, DeviceError) as error:
                _LOG.warning("gpu-%d: MIG stays on: %s", facts.minor, error)

    def _note_instance(self, note: Note, made: Instance) -> None:
        known = [replace(e, instance=made.id) if (e.claim, e.device) == (note.claim, note.device) else e
                 for e in self._notes]  # fmt: skip
        if known != self._notes:
            self._store(known)

    def _store(self, notes: list[Note]) -> None:
        told: list[dict[str, Any]] = [asdict(note) for note in notes]
        self._checkpoint.store({"notes": told})
        self._notes = notes
