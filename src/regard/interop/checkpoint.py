"""A Hugging Face checkpoint: its folder, its JSON files and its tensors. Knows no family of models.

Reading runs no code: pickles are read weights-only, and one that asks for more is refused.
"""

import json
import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.io import run_folder as folder
from regard.io.files import os_errors_for
from regard.io.tensors import read_tensors, write_tensors
from regard.recipe import Recipe, dump_recipe

NAME = re.compile(r"[\w.-]+/[\w.-]+")  # on the hub: organisation/model
WANTED = ["*.json", "*.safetensors", "pytorch_model*.bin", "*.spm", "*.txt", "*.model", "tokenizer/*"]


@dataclass(frozen=True)
class Checkpoint:
    folder: Path

    @staticmethod
    def find(name: str) -> "Checkpoint":
        """A folder, or else a name on the hub, which is downloaded."""
        folder = Path(name)
        if not folder.is_dir():
            folder = _download(name)
        if not (folder / "config.json").is_file():
            raise RegardError(f"{name}: not a Hugging Face checkpoint (config.json is missing)")
        return Checkpoint(folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.json("config.json")

    @property
    def family(self) -> str:
        return str(self.config.get("model_type"))

    def has(self, *names: str) -> bool:
        return all((self.folder / name).is_file() for name in names)

    def json(self, name: str, absent: Any = None) -> Any:
        """What a JSON file of the folder says; `absent`, if it is given, where there is none."""
        path = self.folder / name
        if not path.exists():
            if absent is None:
                raise RegardError(f"{path}: there is no such file")
            return absent
        try:
            with os_errors_for(path):
                found = json.loads(path.read_bytes())
        except ValueError:
            raise RegardError(f"{path}: not JSON, or cut short") from None
        if not isinstance(found, list if isinstance(absent, list) else dict):
            raise RegardError(f"{path}: not a {'list' if isinstance(absent, list) else 'mapping'}")
        return found

    def tensors(self) -> dict[str, Tensor]:
        """All weights, in float32."""
        for name, read in (("model.safetensors", read_tensors), ("pytorch_model.bin", read_pickle)):
            if self.has(name):
                return wide(read(self.folder / name))
            if self.has(f"{name}.index.json"):
                return wide(self._parts(name, read))
        raise RegardError(f"{self.folder}: there are no weights (neither model.safetensors nor pytorch_model.bin)")

    def _parts(self, name: str, read: Any) -> dict[str, Tensor]:
        index = self.json(f"{name}.index.json").get("weight_map")
        if not isinstance(index, dict):
            raise RegardError(f"{self.folder / name}.index.json: it has no weight_map")
        found: dict[str, Tensor] = {}
        for part in sorted(set(index.values())):
            if Path(part).name != part:
                raise RegardError(f"{self.folder / name}.index.json: {part} is not a file of this folder")
            found |= read(self.folder / part)
        return found


@dataclass(frozen=True)
class Imported:
    """What a checkpoint became; `save` puts its vocabulary into a model folder."""

    recipe: Recipe
    weights: dict[str, Tensor] = field(repr=False)
    save: Callable[[Path], None]

    def write(self, out: Path) -> None:
        self.save(out)
        (out / folder.CONFIG).write_text(dump_recipe(self.recipe), encoding="utf-8")
        write_tensors(out / folder.WEIGHTS, self.weights)


def read_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.bin` file that torch.save wrote, and nothing else."""
    try:
        with warnings.catch_warnings(action="ignore"):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise RegardError(
            f"{path}: a pickle that would run code when it is loaded{f' ({asked[1]})' if asked else ''}; "
            "ask for the weights as safetensors"
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise RegardError(f"{path}: truncated, or not a file of weights ({_first(error)})") from None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise RegardError(f"{path}: it holds something else than named tensors")
    return found


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def wide(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def _download(name: str) -> Path:
    if not NAME.fullmatch(name):
        raise RegardError(f"{name}: there is no such folder, and it is not a name on the hub (organisation/model)")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise RegardError(
            f'{name}: there is no such folder; to download it by name, run pip install "regard[hub]"'
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except Exception as error:  # the library's own, the network's, the disk's
        raise RegardError(f"{name}: there is no such folder, and it cannot be downloaded ({_first(error)})") from None
