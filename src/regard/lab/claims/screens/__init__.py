"""Screens: quality on constructed tasks whose answer needs the mechanism."""
