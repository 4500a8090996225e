"""The loop, optimisers, schedules, checkpoints and logs. Runs any task; knows none."""
