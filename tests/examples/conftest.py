from __future__ import annotations

import sys
from pathlib import Path

# The makers of objects.
sys.path.append(str(Path(__file__).parent.parent / "system"))
