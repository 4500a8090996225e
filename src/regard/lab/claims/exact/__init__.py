"""Claims whose verdict is computed: counted, derived or timed."""
