"""The commands `compare` and `lab`, and `look --lens` and `--patch`."""
