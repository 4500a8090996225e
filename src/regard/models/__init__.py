"""Whole models made of `regard.nn`. They know ids and layouts; they know no text and no files."""
