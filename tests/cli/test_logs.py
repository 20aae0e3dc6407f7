"""What is written to stderr, and what no more."""

from __future__ import annotations

import logging
import threading

import pytest

from haru.cli import logs


@pytest.fixture(autouse=True)
def own_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)


def test_nothing_is_written_after_the_last_error(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging(0, "text")
    logs.log_last(logging.getLogger("haru.x"), "%s is lost", "the Lease")
    logging.getLogger("haru.y").error("a late word")
    assert capsys.readouterr().err[8:] == " E haru.x: the Lease is lost\n"


def test_word_of_another_thread_comes_before_the_last_error_or_not_at_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.configure_logging(0, "text")
    [handler] = logging.getLogger().handlers
    late = threading.Thread(target=logging.getLogger("haru.y").error, args=("a late word",))
    emit = handler.emit

    def interrupted(record: logging.LogRecord) -> None:
        emit(record)
        if record.name == "haru.x":
            late.start()

    monkeypatch.setattr(handler, "emit", interrupted)
    logs.log_last(logging.getLogger("haru.x"), "lost")
    late.join()
    assert capsys.readouterr().err[8:] == " E haru.x: lost\n"
