from .objects import damage_of as damage_of
from .objects import decode as decode
from .objects import encode as encode
