from .snapshots import PATH as PATH
