from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from haru.embedded.lock import AlreadyRunningError, DirectoryLock, holder_of

HOLD = """
import sys, pathlib
from haru.embedded.lock import DirectoryLock
lock = DirectoryLock(pathlib.Path(sys.argv[1])); lock.acquire(); lock.describe(kubeconfig="/k")
print("held", flush=True); sys.stdin.read()
"""


def test_directory_lock_is_exclusive_names_its_holder_and_ends_with_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        facts = holder_of(tmp_path)
        assert facts == {"pid": process.pid, "kubeconfig": "/k"}
        with pytest.raises(AlreadyRunningError, match=str(process.pid)):
            DirectoryLock(tmp_path).acquire()
    finally:
        process.kill()
        process.communicate()
    assert holder_of(tmp_path) is None
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    lock.describe()
    assert holder_of(tmp_path) == {"pid": os.getpid()}
    lock.release()
    assert holder_of(tmp_path) is None


def test_missing_directory_has_no_lock_holder(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "absent") is None
