"""The store that several API servers share, in etcd v3."""

from haru.storage.etcd.connection import Credentials, check_endpoints, read_credentials
from haru.storage.etcd.store import EtcdStore, EtcdStoreOptions

__all__ = ["Credentials", "EtcdStore", "EtcdStoreOptions", "check_endpoints", "read_credentials"]
