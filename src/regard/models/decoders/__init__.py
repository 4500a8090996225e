"""What decoder-only models have beside a language model: predictions while they learn, and pairs of texts."""
