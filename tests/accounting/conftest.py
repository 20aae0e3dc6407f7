from __future__ import annotations

import sys
from pathlib import Path

# The makers of objects, and the small API server of the client's tests.
sys.path += [str(Path(__file__).parent.parent / name) for name in ("engine", "client")]
