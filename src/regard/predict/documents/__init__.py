"""Documents: what of a text file is prose, and the file again with its prose translated, byte for byte else."""
