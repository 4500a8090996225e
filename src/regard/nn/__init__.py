"""Attention and what stands around it. Knows no text, no files, no devices and no processes.

Letters for shapes, everywhere: B batch, T/S target/source length, Q/K query/key length, D model, H heads, V vocabulary.
"""
