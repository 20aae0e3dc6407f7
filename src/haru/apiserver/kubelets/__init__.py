"""The kubelets of real nodes: logs of their pods, ways into containers, and what else their API shows."""

from __future__ import annotations

from haru.apiserver.kubelets.asking import Kubelets
from haru.apiserver.kubelets.options import KubeletOptions

__all__ = ["KubeletOptions", "Kubelets"]
