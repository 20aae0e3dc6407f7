"""A node's machine is booted again, as far as its pods and its agent see it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from containerd_process import Containerd

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot(runtime: Containerd, groups: Iterable[Path], files: Path, boot_id: Path) -> None:
    """End the runtime and all processes in these control groups, lose what is in memory, and run the runtime again.

    `files` is the directory of the agent, where volumes are mounted; the file `boot_id` has another id then.
    """
    runtime.kill()
    runtime.end_shims()
    groups = list(groups)
    while pids := [pid for group in groups for file in group.rglob("cgroup.procs") for pid in file.read_text().split()]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.1)
    for group in groups:
        for place, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                if Path(place) != group:
                    Path(place).rmdir()
    unmount_below(runtime.root)
    unmount_below(files)
    shutil.rmtree(runtime.root / "state", ignore_errors=True)
    boot_id.write_text(f"{uuid.uuid4()}\n")
    runtime.resume()


def unmount_below(directory: Path) -> None:
    """Unmount what is mounted below a directory, the deepest first."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((one for one in mounts if one.startswith(f"{directory}/")), key=len, reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)


def with_boot_id(file: Path, command: Sequence[str]) -> list[str]:
    """The command, which reads its boot id from a file: in mounts of its own, which it shares but for that one."""
    script = f'mount --make-private /proc && mount --bind {file} {_BOOT_ID} && exec "$0" "$@"'
    return ["unshare", "-m", "--propagation", "unchanged", "sh", "-c", script, *command]
