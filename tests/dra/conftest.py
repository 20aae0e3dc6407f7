from __future__ import annotations

import sys
from pathlib import Path

# The makers of small objects, and the benchmarks.
sys.path.append(str(Path(__file__).parent.parent / "engine" / "devices"))
sys.path.append(str(Path(__file__).parents[2]))
