from .roles import KUBELET_CLIENT as KUBELET_CLIENT
from .roles import role_objects as role_objects
