"""The files of a trained model, which is a folder that needs nothing else, and of a run."""

from pathlib import Path

CONFIG, WEIGHTS, RESULTS, LOG = "config.yaml", "model.safetensors", "results.json", "log.jsonl"
MANIFEST = "manifest.json"  # sizes and hashes of the other files
TASK_FILES = ("tokenizer", "labels.json")  # written by tasks that have them
BASE = "base.json"  # of a model that is stored as a change of another


def is_model_folder(folder: Path) -> bool:
    """Whether a folder is a trained model, a run or a checkpoint."""
    return any((folder / name).is_file() for name in (WEIGHTS, "state.json")) or (
        (folder / CONFIG).is_file() and any((folder / name).exists() for name in ("last", LOG, *TASK_FILES))
    )


def run_folder_of(folder: Path) -> Path:
    """The folder that holds config and tokenizer: the model folder itself, or the run of a checkpoint."""
    is_checkpoint = not (folder / CONFIG).exists() and (folder / "state.json").exists()
    return folder.resolve().parent.parent if is_checkpoint else folder
