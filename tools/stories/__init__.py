"""The data set `stories`: the list of its books, and what makes it of them."""
