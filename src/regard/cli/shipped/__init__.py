"""The commands about models that come ready: which there are, and a look at each."""
