"""User namespaces: each pod that wants one gets its own range of the host's ids, kept on disk.

A pod with `hostUsers: false` has its ids from 0 on mapped to a slot of `idsPerPod` ids of the host. The slot is written
down before a sandbox is made and freed when no container of the pod can run any more. There is no way back to the
host's users: what cannot be had fails. Source: KEP-127 (GA in 1.36), the kubelet's file `userns`.
"""

from __future__ import annotations

import json
import pwd
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haru.files import sync_directory, write_whole

ALIGNMENT = 65_536
FILE = "userns"
USER = "kubelet"
NO_SLOT = "could not find an empty slot to allocate a user namespace"
UNSUPPORTED = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"


class UserNamespaceError(Exception):
    """A pod cannot have its range; the message belongs into its event."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """Ids of the host from `host_id` on stand for those of the container from 0 on; the same for users and groups."""

    host_id: int
    length: int

    def json(self) -> dict[str, Any]:
        """The file of a pod."""
        ids = [{"hostId": self.host_id, "containerId": 0, "length": self.length}]
        return {"uidMappings": ids, "gidMappings": ids}


@dataclass(frozen=True, slots=True)
class Pool:
    """The ids that may be given away: slots of `length` ids from `first` on."""

    first: int
    slots: int
    length: int = ALIGNMENT


class Ranges:
    """The slots of one node. Calls may come from several threads.

    `directory` has a directory for each pod, named by its UID, in which its file is.
    """

    def __init__(self, directory: Path, pool: Pool) -> None:
        self._directory, self._pool = directory, pool
        self._lock = threading.Lock()
        self._by_pod: dict[str, int] = {}
        self._by_slot: dict[int, str] = {}
        self._lowest = 0

    def load(self) -> None:
        """Know what was given away before, at the start. Raises UserNamespaceError for a file that cannot be right."""
        for file in sorted(self._directory.glob(f"*/{FILE}")):
            self._record(file.parent.name, self._read(file))

    def get_or_create(self, uid: str) -> IdRange:
        """The range of a pod, written down before it is answered. Raises UserNamespaceError."""
        with self._lock:
            file = self._directory / uid / FILE
            if file.exists():
                found = self._read(file)
                self._record(uid, found)
                return found
            slot = self._by_pod.get(uid)
            if slot is None:
                slot = self._free_slot()
            made = IdRange(self._pool.first + slot * self._pool.length, self._pool.length)
            self._record(uid, made)
            try:
                write_whole(file, json.dumps(made.json()), parents=True)
                # The directory of the pod may be as new as the file.
                sync_directory(self._directory)
            except OSError as error:
                self._forget(uid)
                raise UserNamespaceError(f"{file}: {error.strerror}: the range of the pod cannot be kept") from error
            return made

    def release(self, uid: str) -> None:
        """The pod has ended and none of its containers can run any more."""
        with self._lock:
            (self._directory / uid / FILE).unlink(missing_ok=True)
            self._forget(uid)

    @property
    def held(self) -> Mapping[str, int]:
        """The first id of each pod's range."""
        with self._lock:
            return {uid: self._pool.first + slot * self._pool.length for uid, slot in self._by_pod.items()}

    # -- inside

    def _free_slot(self) -> int:
        for slot in range(self._lowest, self._pool.slots):
            if slot not in self._by_slot:
                self._lowest = slot
                return slot
        raise UserNamespaceError(NO_SLOT)

    def _record(self, uid: str, mapping: IdRange) -> None:
        slot, rest = divmod(mapping.host_id - self._pool.first, self._pool.length)
        if rest or not 0 <= slot < self._pool.slots:
            raise UserNamespaceError(
                f"pod {uid} has ids from {mapping.host_id} on, which are not of the configured range "
                f"{self._pool.first}..{self._pool.first + self._pool.slots * self._pool.length - 1}"
            )
        owner, own = self._by_slot.get(slot), self._by_pod.get(uid)
        if owner not in (None, uid):
            raise UserNamespaceError(f"pod {uid} has ids from {mapping.host_id} on, as pod {owner} has")
        if own not in (None, slot):
            raise UserNamespaceError(f"pod {uid} has ids from {mapping.host_id} on, and was given others before")
        self._by_slot[slot], self._by_pod[uid] = uid, slot

    def _forget(self, uid: str) -> None:
        slot = self._by_pod.pop(uid, None)
        if slot is not None:
            del self._by_slot[slot]
            self._lowest = min(self._lowest, slot)

    def _read(self, file: Path) -> IdRange:
        try:
            return parse_file(file.read_bytes(), self._pool.length)
        except (OSError, ValueError) as error:
            raise UserNamespaceError(f"{file}: {error}") from error


def parse_file(data: bytes, length: int) -> IdRange:
    """Parse the range in a pod's file. Raises ValueError for a range that was not allocated here."""
    found = json.loads(data)
    users, groups = (found.get(key) if isinstance(found, dict) else None for key in ("uidMappings", "gidMappings"))
    if not isinstance(users, list) or len(users) != 1:
        raise ValueError("uidMappings: there has to be one")
    if users != groups:
        raise ValueError("gidMappings: they have to be those of the users")
    numbers = [users[0].get(key) for key in ("hostId", "containerId", "length")]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise ValueError("uidMappings: hostId, containerId and length have to be whole numbers")
    host, container, size = numbers
    if container != 0:
        raise ValueError(f"containerId: Invalid value: {container}: has to be 0")
    if size != length:
        raise ValueError(f"length: Invalid value: {size}: has to be {length}, as idsPerPod is")
    if host <= 0 or host % ALIGNMENT:
        raise ValueError(f"hostId: Invalid value: {host}: has to be a multiple of {ALIGNMENT}, and not 0")
    return IdRange(host, size)


def wants_namespace(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is to have users of its own."""
    return (pod.get("spec") or {}).get("hostUsers") is False


def default_pool(max_pods: int, length: int = ALIGNMENT) -> Pool:
    """The pool without a configured range for the user kubelet: after the host's own ids."""
    return Pool(max(ALIGNMENT, length), max_pods, length)


def configured_pool(users: str, groups: str, max_pods: int, length: int = ALIGNMENT) -> Pool:
    """From what `getsubids kubelet` and `getsubids -g kubelet` print. Raises UserNamespaceError."""
    first, count = _subids(users, USER)
    if (first, count) != _subids(groups, USER):
        raise UserNamespaceError("the subordinate users and groups of kubelet are not the same: make them so")
    for what, number in (("first id", first), ("count", count)):
        if number % ALIGNMENT:
            raise UserNamespaceError(
                f"the {what} of kubelet's subordinate ids, {number}, is no multiple of {ALIGNMENT}"
            )
    if first < ALIGNMENT:
        raise UserNamespaceError(f"kubelet's subordinate ids begin at {first}: ids below {ALIGNMENT} are the host's")
    if count < length * max_pods:
        raise UserNamespaceError(
            f"kubelet has {count} subordinate ids, {max_pods} pods of {length} ids need {length * max_pods}: "
            "give it more in /etc/subuid and /etc/subgid"
        )
    return Pool(first, min(count // length, max_pods), length)


def pool_of_machine(
    max_pods: int, length: int = ALIGNMENT, *, has_user: Callable[[str], bool], subids: Callable[[Sequence[str]], str]
) -> Pool:
    """The pool by the machine's configuration: `subids` runs getsubids, and raises FileNotFoundError without it.

    Raises UserNamespaceError: a configuration that cannot be used is fatal at the start.
    """
    if not has_user(USER):
        return default_pool(max_pods, length)
    try:
        users, groups = subids(["getsubids", USER]), subids(["getsubids", "-g", USER])
    except FileNotFoundError:
        return default_pool(max_pods, length)
    return configured_pool(users, groups, max_pods, length)


def has_user(name: str) -> bool:
    """Whether the machine has a user of this name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def run_getsubids(command: Sequence[str]) -> str:
    """What it prints. Raises FileNotFoundError and UserNamespaceError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except subprocess.CalledProcessError as error:
        raise UserNamespaceError(f"{' '.join(command)}: {error.stderr.strip() or error.stdout.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise UserNamespaceError(f"{' '.join(command)}: no answer within 10 s") from error
    return done.stdout


def _subids(text: str, user: str) -> tuple[int, int]:
    lines = text.strip().splitlines()
    if len(lines) != 1:
        raise UserNamespaceError(f"{user} has to have one range of subordinate ids, it has {len(lines)}")
    parts: Sequence[str] = lines[0].split()
    try:
        name, first, count = parts[-3], int(parts[-2]), int(parts[-1])
    except (IndexError, ValueError):
        raise UserNamespaceError(f"getsubids says {lines[0]!r}, which is not INDEX: USER FIRST COUNT") from None
    if len(parts) != 4 or name != user:
        raise UserNamespaceError(f"getsubids says {lines[0]!r}, which is not INDEX: {user} FIRST COUNT")
    return first, count
