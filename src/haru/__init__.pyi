from haru import dra as dra
from haru.answers.changes import AddNodes as AddNodes
from haru.answers.changes import Apply as Apply
from haru.answers.changes import Cordon as Cordon
from haru.answers.changes import Delete as Delete
from haru.answers.changes import Repartition as Repartition
from haru.answers.changes import Taint as Taint
from haru.answers.linting import lint_manifests as lint_manifests
from haru.answers.snapshot import Snapshot as Snapshot
from haru.errors import ChangeInputError as ChangeInputError
from haru.errors import ClusterError as ClusterError
from haru.errors import HaruError as HaruError
from haru.errors import InputError as InputError
from haru.errors import NotFoundError as NotFoundError

__version__: str
