"""Claims as experiments, and `compare`: arms × paired seeds, intervals and plots."""
