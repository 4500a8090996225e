"""The table of commands: each with its options and its help; bodies stand in `cli`, imported when they run."""
