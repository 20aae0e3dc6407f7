from account_api import robot
from api_caller import api

__all__ = ["api", "robot"]
