"""`haru driver simulated` for the node of a machine."""

from __future__ import annotations

import signal

from machine import NODE, Machine

from haru_process import Process

GPU = "gpu.nvidia.com"


class Cards:
    """A driver process; eight cards."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.process: Process | None = None

    def launch(self) -> Process:
        """Runs it; it may not be ready yet."""
        flags = ["--kubeconfig", str(self.machine.up.kubeconfig), "--node", NODE]
        places = ["--kubelet-dir", str(self.machine.home / "n"), "--cdi-dir", str(self.machine.home / "cdi")]
        self.process = Process(self.machine.home, ["driver", *self.flags(), *flags, *places], "driver")
        return self.process

    def flags(self) -> list[str]:
        """Which driver, and what is its own."""
        return ["simulated", "--profile", "dgx-h100"]

    def start(self) -> None:
        """Runs it until it says that it is ready."""
        assert self.launch().line().startswith(f"haru driver {GPU} is ready")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends it."""
        if self.process is not None:
            self.process.stop(number)
