from __future__ import annotations

import sys
from pathlib import Path

# The checker of the form of explanations, and the makers of objects.
sys.path += [str(Path(__file__).parent.parent / "explain"), str(Path(__file__).parent.parent / "system")]
