"""What is learned. A task joins data, models, decoding and evaluation; the training loop knows none of them."""
