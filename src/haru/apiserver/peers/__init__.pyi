from .client import peer_tls as peer_tls
from .options import FrontProxyOptions as FrontProxyOptions
from .options import PeerOptions as PeerOptions
from .request_header import fingerprints as fingerprints
from .server import Peers as Peers
