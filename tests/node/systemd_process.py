"""A manager of systemd's own, as for a user, in control groups of its own: also where the machine was not booted by it.

It believes so because of a directory that only it sees, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from haru.node.cgroups.host import hierarchies
from haru_process import environment, until

_BINARY = "/lib/systemd/systemd"
_SCRIPT = """
for group in {groups}; do echo $$ >$group/cgroup.procs; done
mkdir -p /run/systemd; mount -t tmpfs tmpfs /run/systemd; mkdir /run/systemd/system
exec {binary} --user --unit=basic.target --log-target=console
"""


def missing() -> str:
    """What this machine lacks for it, or nothing."""
    if os.geteuid() != 0:
        return "a manager of control groups needs root"
    lacking = [name for name in (_BINARY, "systemctl", "systemd-run", "nsenter", "unshare") if not shutil.which(name)]
    return f"{', '.join(lacking)}: not installed (the packages systemd and util-linux)" if lacking else ""


class Systemd:
    """A running manager; its units are below `group` in every hierarchy that systemd uses."""

    def __init__(self, home: Path) -> None:
        found = hierarchies()
        self.group = f"haru-test-{uuid.uuid4()}"
        roots = [found.unified, found.root / "systemd"]
        self.groups = [root / self.group for root in roots if root is not None and root.is_dir()]
        for group in self.groups:
            group.mkdir()
        runtime = home / "run"
        runtime.mkdir(mode=0o700)
        self._environment = environment(home, XDG_RUNTIME_DIR=str(runtime))
        self.log = home / "systemd.log"
        script = _SCRIPT.format(groups=" ".join(map(str, self.groups)), binary=_BINARY)
        with self.log.open("wb") as log:
            command = ["unshare", "-m", "sh", "-ec", script]
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        until("systemd answers", lambda: self._asked(["systemctl", "is-system-running"]).stdout.strip() == "running")

    def run(self, command: Sequence[str]) -> None:
        """A command of systemd's, to this manager."""
        done = self._asked(command)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.log.read_text()}"

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit."""
        lines = self._asked(["systemctl", "show", "-p", ",".join(properties), unit]).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def _asked(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        # The same directories as the manager sees.
        inside = ["nsenter", "-m", "-t", str(self._process.pid), command[0], "--user", *command[1:]]
        return subprocess.run(
            inside, env=self._environment, capture_output=True, text=True, check=False, timeout=60, cwd="/"
        )

    def stop(self) -> None:
        """Ends it, and what it runs; where no exit.target is installed, it has to be killed."""
        self._process.send_signal(signal.SIGRTMIN + 4)  # exit
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for group in self.groups:
            for directory, _, _ in os.walk(group, topdown=False):
                Path(directory).rmdir()
