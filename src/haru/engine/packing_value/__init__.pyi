from .value import CARD as CARD
from .value import ExpectedRequest as ExpectedRequest
from .value import PackingValue as PackingValue
from .value import Tuning as Tuning
from .value import room_prices as room_prices
