from .json import to_json as to_json
from .text import to_text as to_text
from .wording import counted as counted
