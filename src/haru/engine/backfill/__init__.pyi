from .reservation import CONDITION as CONDITION
from .reservation import BackfillReservation as BackfillReservation
from .reservation import is_reserved as is_reserved
