"""A real machine for tests of the node agent: one for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from machine import Machine
from two_nodes import TwoNodes
from two_nodes import missing as two_nodes_missing

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


@pytest.fixture(scope="session")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    """Two nodes without pods."""
    if lacking := two_nodes_missing():
        pytest.skip(lacking)
    running = TwoNodes(tmp_path_factory.mktemp("two"))
    yield running
    running.stop()
