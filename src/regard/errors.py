"""The one exception for mistakes that a user can mend."""


class RegardError(Exception):
    """One plain sentence: what is wrong, where, and what to write instead. Commands print it and exit with 2."""
