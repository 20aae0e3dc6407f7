from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from account_api import robot
from api_caller import api
from kubectl_runner import Kubectl

__all__ = ["api", "robot", "served"]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A server on a port of its own, with TLS."""
    running = Kubectl(tmp_path)
    await running.start()
    yield running
    await running.stop()
