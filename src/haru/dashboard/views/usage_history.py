"""What pages read of the usage history. Each function raises OSError or ValueError with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haru.dashboard.views.device_timeline import Held
    from haru.dashboard.views.looks import LookStore
    from haru.dashboard.views.usage import Span
    from haru.explain.happenings import Happening


def nothing(since: int, until: int) -> Sequence[object]:
    """Read nothing."""
    return ()


@dataclass(frozen=True, slots=True)
class UsageHistory:
    """Reads between two moments (ms since 1970): usage, who held which device, what happened; and keeps looks."""

    spans: Callable[[int, int], Sequence[Span]] = nothing  # type: ignore[assignment]
    held: Callable[[int, int], Sequence[Held]] = nothing  # type: ignore[assignment]
    happened: Callable[[int, int], Sequence[Happening]] = nothing  # type: ignore[assignment]
    looks: LookStore | None = None
