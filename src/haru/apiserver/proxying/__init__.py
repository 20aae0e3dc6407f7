"""`pods/proxy` and `services/proxy`: HTTP to pods by way of the API server, for who may, and cannot reach them."""

from haru.apiserver.proxying.passing import Proxy
from haru.apiserver.proxying.places import Wanted, asked_right, wanted_of

__all__ = ["Proxy", "Wanted", "asked_right", "wanted_of"]
