"""Time slices and MPS servers of claims, by the programs that the kernel driver brings.

A time slice is set by `nvidia-smi compute-policy`. For MPS a control daemon runs for the claim, with a directory of its
own for pipes and one for shared memory, which its containers get, too. Everything blocks.
Source: NVIDIA's documentation of MPS; the NVIDIA DRA driver, as behaviour.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

from haru.drivers.checkpoint import Checkpoint
from haru.drivers.library import ClaimError, Edits, Mount
from haru.drivers.nvidia.configuration import Sharing, limits_of
from haru.drivers.nvidia.nvml import COMPUTE_DEFAULT, COMPUTE_EXCLUSIVE, Nvml, NvmlError

_LOG = logging.getLogger("haru.driver")
_SECONDS: Final = 15.0
_CONTROL: Final = "nvidia-cuda-mps-control"
_OPTIONS: Final = ("rw", "nosuid", "nodev", "bind")
_START: Final = 'mount --bind "$HARU_MPS_SHM" /dev/shm && exec "$@"'
"""The daemon sees the claim's shared memory at /dev/shm, in a mount namespace of its own."""


class Commands(Protocol):
    """Runs a program to its end."""

    def __call__(self, arguments: Sequence[str], env: Mapping[str, str], text: str = "") -> str:
        """What it writes to stdout; `text` is its stdin. Raises `ClaimError` if it fails or takes too long."""


def run_command(arguments: Sequence[str], env: Mapping[str, str], text: str = "") -> str:
    """Runs a program of this machine, with `env` added to its environment."""
    name = Path(arguments[0]).name
    try:
        done = subprocess.run(
            list(arguments), env={**os.environ, **env}, input=text, capture_output=True, text=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    except OSError as error:
        raise ClaimError(f"{name}: cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ClaimError(f"{name}: took longer than {_SECONDS:g} s") from None
    if done.returncode:
        raise ClaimError(f"{name}: {(done.stderr or done.stdout).strip() or f'status {done.returncode}'}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class _Note:
    """What is set for devices of a claim: all that it takes to set it again."""

    strategy: str
    name: str
    """Of the MPS server."""
    cards: list[str]
    uuids: list[str]
    interval: int
    limits: dict[str, str]
    threads: int | None
    multi_user: bool


class SharingManager:
    """What was set for claims, in a checkpoint: it is noted before it is set. Raises `ClaimError`."""

    def __init__(self, nvml: Nvml, directory: Path, checkpoint: Checkpoint, command: Commands = run_command) -> None:
        self._nvml = nvml
        self._directory = directory
        self._command = command
        self._checkpoint = checkpoint
        content = checkpoint.load() or {"claims": {}}
        self._set = {claim: [_Note(**told) for told in notes] for claim, notes in content["claims"].items()}

    def claims(self) -> list[str]:
        """The claims for which something is set."""
        return list(self._set)

    def share(self, claim: str, sharing: Sharing, uuids: list[str], cards: list[str]) -> Edits:
        """Let containers share these devices of a claim, on these cards; what they get for it."""
        name = f"{claim}-{hashlib.sha256(','.join(uuids).encode()).hexdigest()[:5]}"
        limits = limits_of(sharing.mps, uuids)
        note = _Note(sharing.strategy, name, cards, uuids, sharing.interval, limits,
                     sharing.mps.active_thread_percentage, sharing.mps.multi_user)  # fmt: skip
        if note not in self._set.get(claim, []):
            self._store({**self._set, claim: [*self._set.get(claim, []), note]})
        return self._begin(note)

    def restore(self) -> None:
        """After a start: set again what a restart of the machine has put back; what fails is told in the log."""
        for claim, notes in self._set.items():
            for note in notes:
                if note.strategy == "TimeSlicing" or not self._is_alive(self._directory / note.name):
                    try:
                        self._begin(note)
                    except ClaimError as error:
                        _LOG.error("claim %s: how it shares its devices cannot be set again: %s", claim, error)

    def _begin(self, note: _Note) -> Edits:
        if note.strategy == "TimeSlicing":
            self._mode(note.cards, COMPUTE_DEFAULT)
            self._slice(note.cards, note.interval)
            return Edits()
        self._stop(note.name)
        self._mode(note.cards, COMPUTE_EXCLUSIVE)
        return self._start(note)

    def release(self, claim: str) -> None:
        """Put back what was set for a claim."""
        for note in self._set.get(claim, []):
            if note.strategy == "TimeSlicing":
                self._slice(note.cards, 0)
            else:
                self._stop(note.name)
                self._mode(note.cards, COMPUTE_DEFAULT)
        if claim in self._set:
            self._store({uid: notes for uid, notes in self._set.items() if uid != claim})

    def _mode(self, cards: list[str], mode: int) -> None:
        for card in cards:
            try:
                self._nvml.set_compute_mode(card, mode)
            except NvmlError as error:
                raise ClaimError(f"{card}: its compute mode cannot be set: {error}") from None

    def _slice(self, cards: list[str], interval: int) -> None:
        for card in cards:
            self._command(("nvidia-smi", "compute-policy", "-i", card, "--set-timeslice", str(interval)), {})

    def _start(self, note: _Note) -> Edits:
        base = self._directory / note.name
        for part in ("pipe", "log", "shm"):
            (base / part).mkdir(parents=True, exist_ok=True)
        self._command(("mount", "-t", "tmpfs", "-o", "rw,nosuid,nodev,noexec,mode=1777", "shm", str(base / "shm")), {})
        env = {**self._env(base), "CUDA_VISIBLE_DEVICES": ",".join(note.uuids), "HARU_MPS_SHM": str(base / "shm")}
        options = ("-d", "-multiuser-server") if note.multi_user else ("-d",)
        self._command(("unshare", "--mount", "sh", "-c", _START, "sh", _CONTROL, *options), env)
        orders = [f"set_default_device_pinned_mem_limit {uuid} {limit}" for uuid, limit in note.limits.items()]
        if note.threads is not None:
            orders.insert(0, f"set_default_active_thread_percentage {note.threads}")
        for order in orders:
            self._command((_CONTROL,), self._env(base), f"{order}\n")
        mounts = (
            Mount(str(base / "shm"), "/dev/shm", _OPTIONS),
            Mount(str(base / "pipe"), "/tmp/nvidia-mps", _OPTIONS),
        )
        return Edits(("CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",), mounts)

    def _stop(self, name: str) -> None:
        """Stop a daemon, if it runs; one whose directory is not there was never started."""
        base = self._directory / name
        if not base.exists():
            return
        if (base / "pipe" / "control").exists():
            try:
                self._command((_CONTROL,), self._env(base), "quit\n")
            except ClaimError as error:
                if self._is_alive(base):
                    raise ClaimError(f"the MPS daemon does not stop: {error}") from None
        if (base / "shm").is_mount():
            self._command(("umount", str(base / "shm")), {})
        shutil.rmtree(base)

    @staticmethod
    def _is_alive(base: Path) -> bool:
        """Whether a control daemon runs; the number in its file may be another's after a restart of the machine."""
        if not (base / "pipe" / "control").exists():
            return False
        try:
            number = int((base / "pipe" / f"{_CONTROL}.pid").read_text())
            return _CONTROL.encode() in (Path("/proc") / str(number) / "cmdline").read_bytes()
        except (OSError, ValueError):
            return False

    @staticmethod
    def _env(base: Path) -> dict[str, str]:
        return {"CUDA_MPS_PIPE_DIRECTORY": str(base / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(base / "log")}

    def _store(self, claims: dict[str, list[_Note]]) -> None:
        self._checkpoint.store({"claims": {claim: [asdict(note) for note in notes] for claim, notes in claims.items()}})
        self._set = claims
