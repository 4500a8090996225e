"""Files: atomic writes, safetensors, the run folder. Knows no task and no model."""
