"""What would happen if: hypothetical changes to a cluster, decided by the engine, and the difference they make.

`try_out(objects, changes, …)` answers with a `Comparison`; nothing that was handed in is touched, nothing is written.
The objects are what an API server has; time only passes as far as tolerations of taints ask for it.
"""

from haru.whatif.changes import (
    AddNodes,
    Apply,
    Change,
    ChangeError,
    Cordon,
    Delete,
    Repartition,
    TaintDevice,
    TaintNode,
    apply_change,
)
from haru.whatif.comparison import Comparison, try_out
from haru.whatif.comparison_data import Displacement, Gang, Start, Wait
from haru.whatif.left_pending import Inquiry, rows_json, rows_text
from haru.whatif.objects import Objects
from haru.whatif.output import to_json
from haru.whatif.text import to_text

__all__ = [
    "AddNodes",
    "Apply",
    "Change",
    "ChangeError",
    "Comparison",
    "Cordon",
    "Delete",
    "Displacement",
    "Gang",
    "Inquiry",
    "Objects",
    "Repartition",
    "Start",
    "TaintDevice",
    "TaintNode",
    "Wait",
    "apply_change",
    "rows_json",
    "rows_text",
    "to_json",
    "to_text",
    "try_out",
]
