"""A trained model is a folder that needs nothing else: config.yaml, model.safetensors, tokenizer/, results.json."""

from pathlib import Path

CONFIG, WEIGHTS, RESULTS, LOG = "config.yaml", "model.safetensors", "results.json", "log.jsonl"
PARTS = ("tokenizer", "labels.json")  # what a task writes there; not every task has all


def home_of(folder: Path) -> Path:
    """Where config and tokenizer are: in the folder itself, or for a checkpoint in its run."""
    is_checkpoint = not (folder / CONFIG).exists() and (folder / "state.json").exists()
    return folder.resolve().parent.parent if is_checkpoint else folder
