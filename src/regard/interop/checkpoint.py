"""Hugging Face checkpoints: folders with JSON files and tensors. Knows no family of models.

Reading runs no code: pickles are read weights-only, and one that asks for more is refused.
"""

import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.io.files import read_json, shown
from regard.io.manifest import check_links
from regard.io.tensors import read_tensors
from regard.reporting import Json

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")  # organisation/model
DOWNLOADED = ["*.json", "*.safetensors", "pytorch_model*.bin", "*.spm", "*.txt", "*.model", "tokenizer/*"]


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
        cached = folder.parent.parent  # of the hub's cache: snapshots/REVISION has links to files of blobs/
        check_links(folder, within=cached if (cached / "blobs").is_dir() else None)
        return Checkpoint(folder)

    @cached_property
    def config(self) -> Json:
        return self.json("config.json")

    @property
    def family(self) -> str:
        return str(self.config.get("model_type"))

    def has(self, *names: str) -> bool:
        return all((self.folder / name).is_file() for name in names)

    def json(self, name: str, absent: Any = None) -> Any:
        """The content of a JSON file; `absent`, if it is given, where there is no such file."""
        path = self.folder / name
        if not path.exists():
            if absent is None:
                raise RegardError(f"{path}: there is no such file")
            return absent
        return read_json(path, list if isinstance(absent, list) else dict)

    def tensors(self) -> dict[str, Tensor]:
        """All weights, in float32."""
        for name, read in (("model.safetensors", read_tensors), ("pytorch_model.bin", read_pickle)):
            if self.has(name):
                return _to_float32(read(self.folder / name))
            if self.has(f"{name}.index.json"):
                return _to_float32(self._shards(name, read))
        raise RegardError(f"{self.folder}: there are no weights (neither model.safetensors nor pytorch_model.bin)")

    def _shards(self, name: str, read: Callable[[Path], dict[str, Tensor]]) -> dict[str, Tensor]:
        index = self.json(f"{name}.index.json").get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(shard, str) for shard in index.values()):
            raise RegardError(f"{self.folder / name}.index.json: it has no weight_map")
        tensors: dict[str, Tensor] = {}
        for shard in sorted(set(index.values())):
            if Path(shard).name != shard:
                raise RegardError(f"{self.folder / name}.index.json: {shown(shard)} is not a file of this folder")
            tensors |= read(self.folder / shard)
        return tensors


def read_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.bin` file that torch.save wrote, and nothing else."""
    try:
        if zipfile.is_zipfile(path) and sum(part.file_size for part in zipfile.ZipFile(path).infolist()) > 2 * (
            path.stat().st_size
        ):
            raise RegardError(f"{path}: compressed, which torch.save does not do; it is not unpacked")
        with warnings.catch_warnings(action="ignore"):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise RegardError(
            f"{path}: a pickle that would run code when it is loaded{f' ({code[1]})' if code else ''}; "
            "ask for the weights as safetensors"
        ) from None
    except (
        OSError,
        RuntimeError,
        EOFError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        zipfile.BadZipFile,
    ) as error:
        raise RegardError(f"{path}: truncated, or not a file of weights ({_first_line(error)})") from None
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise RegardError(f"{path}: it holds something else than named tensors")
    return content


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _to_float32(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def _download(name: str) -> Path:
    if not HUB_NAME.fullmatch(name):
        raise RegardError(f"{name}: there is no such folder, and it is not a name on the hub (organisation/model)")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise RegardError(
            f'{name}: there is no such folder; to download it by name, run pip install "regard[hub]"'
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=DOWNLOADED))
    except Exception as error:  # the library's own, the network's, the disk's
        raise RegardError(
            f"{name}: there is no such folder, and it cannot be downloaded ({_first_line(error)})"
        ) from None
