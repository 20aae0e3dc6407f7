"""A real machine for tests of the node agent: one for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from machine import Machine

import containerd_process


@pytest.fixture(scope="session")
def running_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A node on which real processes run."""
    if lacking := containerd_process.missing():
        pytest.skip(lacking)
    running = Machine(tmp_path_factory.mktemp("m"))
    yield running
    running.stop()


@pytest.fixture
def machine(running_machine: Machine) -> Iterator[Machine]:
    """The node without pods; what a test leaves goes."""
    yield running_machine
    running_machine.clear()
