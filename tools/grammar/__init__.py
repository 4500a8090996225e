"""The bilingual grammar behind the embedded English-German corpus; `python -m tools.grammar.make` writes its file."""
