"""An English-German corpus made by a bilingual grammar: `pairs("train")`, no files and no network."""

from regard.data.grammar.corpus import Pair, Pronoun, pairs, pronouns_right

__all__ = ["Pair", "Pronoun", "pairs", "pronouns_right"]
