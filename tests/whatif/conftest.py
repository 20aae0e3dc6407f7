from __future__ import annotations

import sys
from pathlib import Path

# The checker of reasons' types.
sys.path.append(str(Path(__file__).parent.parent / "explain"))
