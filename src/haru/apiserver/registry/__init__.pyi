from .resources import Served as Served
