"""The bilingual grammar that writes the embedded English-German corpus. `python -m tools.grammar.make` writes the file."""
