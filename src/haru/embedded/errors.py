"""Define the errors of `haru up`; a leaf module that every module of options imports."""

from haru.errors import HaruError


class OptionError(ValueError):
    """A flag or a field of the configuration file is not usable; the text says which, and the remedy."""


class PartEnded(HaruError):
    """A process of `haru up` ended and is not started again; the text says which, how, and how often."""
