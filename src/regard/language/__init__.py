"""The language of what commands say: English, or Chinese where the user's locale or REGARD_LANG says so."""

from regard.language.sentences import check_language, language, localise

__all__ = ["check_language", "language", "localise"]
