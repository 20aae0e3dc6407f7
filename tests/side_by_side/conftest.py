from api_caller import api

__all__ = ["api"]
