from .client import endpoint_target as endpoint_target
