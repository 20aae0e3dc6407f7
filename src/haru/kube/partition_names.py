"""Names of the annotations that schedulers of Haru write on their Leases."""

from __future__ import annotations

from typing import Final

PARTITION: Final = "scheduler.haru.dev/partition"
"""The partition, and the schedulerNames that are served, as JSON."""
HOLDER: Final = "scheduler.haru.dev/published-by"
"""Which holder of the Lease wrote the other annotations."""
SINCE: Final = "scheduler.haru.dev/published-revision"
"""At which revision of the Lease the other annotations were written."""
