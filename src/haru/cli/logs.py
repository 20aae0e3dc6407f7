"""Write log messages to stderr, one record per line, as text or JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object a line."""
        facts = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts)


def configure_logging(verbosity: int, log_format: str) -> None:
    """Sends the records of Haru's loggers to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[min(verbosity, 2)])
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def log_last(logger: logging.Logger, text: str, *arguments: object) -> None:
    """Write an error, and nothing after it: whatever else this process has to say as it ends is no news."""
    record = logger.makeRecord(logger.name, logging.ERROR, "", 0, text, arguments, None)
    for handler in logging.getLogger().handlers:
        # Under its lock, so that no other thread's record comes between.
        handler.acquire()
        try:
            handler.emit(record)
            handler.emit = _drop  # type: ignore[method-assign]
        finally:
            handler.release()


def _drop(record: logging.LogRecord) -> None:
    """Write nothing."""
