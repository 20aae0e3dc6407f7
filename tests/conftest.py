"""What every test may rely on, and what may be skipped.

Skips are for what a machine lacks, and each says so. HARU_REQUIRE_ALL=1 (continuous integration) turns every skip into
a failure but those of tests marked `host`, whose reason is printed. Tests marked `nightly` run under HARU_NIGHTLY=1 and
are left out otherwise: that is a choice, not a skip.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from nights import NIGHT

if TYPE_CHECKING:
    from etcd_process import Etcd

REQUIRE_ALL = os.environ.get("HARU_REQUIRE_ALL") == "1"
NIGHTLY = os.environ.get("HARU_NIGHTLY") == "1"
OLDEST_KUBECTL = (1, 27)

# By day random cases are the same each time, however slow the machine is; new ones are looked for at night.
settings.register_profile("day", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("night", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("night" if NIGHTLY else "day")


_PORTION = 10_000
"""Objects more than before that begin a garbage collection, as in a running Haru (haru.garbage)."""


def pytest_report_header() -> str | None:
    """Say which seeds the long runs have."""
    return f"HARU_NIGHT={NIGHT}" if NIGHTLY else None


def pytest_collection() -> None:
    """Collect no garbage while modules are imported and tests are made: all of that stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what stays from collections, which would look at millions of objects: a test pays for what it makes."""
    gc.freeze()
    _collect_as_usual()


def _collect_as_usual() -> None:
    gc.set_threshold(_PORTION, 10, 10)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """A command that a test runs here sets collection and logging for a process of its own: both end with it."""
    _collect_as_usual()
    root = logging.getLogger()
    # It writes to what the test captured, which is closed by now: the next record would be told as an error of logging.
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    root.setLevel(logging.WARNING)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves nightly tests out, except at night."""
    if NIGHTLY:
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under HARU_REQUIRE_ALL=1 a skip is a failure, except for the marker `host`."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("host"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"HARU_REQUIRE_ALL=1 forbids this skip: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for whole modules (`importorskip`)."""
    report = yield
    if REQUIRE_ALL and report.outcome == "skipped":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"HARU_REQUIRE_ALL=1 forbids this skip: {reason}"
    return report


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """The reference data of others, which is read and never copied into the project."""
    root = os.environ.get("HARU_REFERENCE_DATA")
    if not root:
        pytest.skip("HARU_REFERENCE_DATA is not set: the reference data of others is not part of the repository")
    if not Path(root).is_dir():
        pytest.fail(f"HARU_REFERENCE_DATA: {root}: no such directory")
    return Path(root)


@pytest.fixture(scope="session")
def kubectl() -> str:
    """The real kubectl, new enough for strict field validation by the server."""
    binary = shutil.which("kubectl")
    if binary is None:
        pytest.skip("kubectl is not installed")
    command = [binary, "version", "--client", "-o", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    version = json.loads(answer.stdout)["clientVersion"]["gitVersion"]
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_KUBECTL:
        pytest.skip(f"kubectl is {version}; {'.'.join(map(str, OLDEST_KUBECTL))} or newer is needed")
    return binary


@pytest.fixture(scope="session")
def etcd_binary() -> str:
    """The real etcd."""
    binary = shutil.which("etcd")
    if binary is None:
        pytest.skip("etcd is not installed (the package etcd-server)")
    return binary


@pytest.fixture(scope="session")
def etcd(etcd_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One etcd for all tests of a worker that do no harm to it; each takes a prefix of its own."""
    # Only here: tests of this file try it where there is nothing else.
    from etcd_process import Etcd

    member = Etcd(etcd_binary, tmp_path_factory.mktemp("etcd"))
    member.start()
    yield member
    member.stop()
