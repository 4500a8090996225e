"""Screens: tiny models on the embedded corpus."""
