from .client import show_certificate as show_certificate
from .options import AggregationOptions as AggregationOptions
from .server import Aggregator as Aggregator
