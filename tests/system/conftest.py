from __future__ import annotations

from system_cluster import cluster, space

__all__ = ["cluster", "space"]
