"""The commands `compare` and `lab`."""
