from .client import Kubelets as Kubelets
from .options import KubeletOptions as KubeletOptions
