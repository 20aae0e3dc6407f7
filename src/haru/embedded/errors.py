"""Define the error of options that are not usable; a leaf module that every module of options imports."""


class OptionError(ValueError):
    """A flag or a field of the configuration file is not usable; the text says which, and the remedy."""
