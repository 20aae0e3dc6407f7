from haru import dra as dra
from haru.api.changes import AddNodes as AddNodes
from haru.api.changes import Apply as Apply
from haru.api.changes import Cordon as Cordon
from haru.api.changes import Delete as Delete
from haru.api.changes import Repartition as Repartition
from haru.api.changes import Taint as Taint
from haru.api.lint import lint_manifests as lint_manifests
from haru.api.snapshot import Snapshot as Snapshot
from haru.errors import ChangeInputError as ChangeInputError
from haru.errors import ClusterError as ClusterError
from haru.errors import HaruError as HaruError
from haru.errors import InputError as InputError
from haru.errors import NotFoundError as NotFoundError

__version__: str
