from .authorization import Decide as Decide
from .authorization import Decision as Decision
from .authorization import Question as Question
from .patches import OBJECT as OBJECT
from .patches import MisplacedError as MisplacedError
from .patches import PatchValueError as PatchValueError
from .patches import to_json as to_json
from .timestamps import parse_duration as parse_duration
