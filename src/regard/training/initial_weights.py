"""Weights of another run for a model of longer input: positions repeated, projections along the length new.

So a trained BERT reads thousands of tokens under a sparse pattern or a Linformer's projection (`training.init`), as its
learned positions are repeated (Beltagy 2020, 5; Zaheer 2020, F.1). Knows names and shapes, no task and no file.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from regard.nn.compress import Linformer
from regard.nn.position.learned import Learned

BODY = "body."  # before the names of a model under a head


def fit_length(model: nn.Module, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of a run as a model for longer input takes them, and sentences that say what was done."""
    fitted, positions, projections = dict(tensors), set(), 0
    for name, module in model.named_modules():
        if isinstance(module, Learned) and (there := _name_there(f"{name}.table", tensors)):
            old, new = tensors[there], module.table
            if old.shape[0] < len(new) and old.shape[1:] == new.shape[1:]:
                fitted[there] = old.repeat(-(-len(new) // len(old)), 1)[: len(new)]  # p stands where p mod n stood
                positions.add((len(old), len(new)))
        if isinstance(module, Linformer):
            for own, value in module.named_parameters():
                if _name_there(f"{name}.{own}", tensors) is None:
                    fitted[f"{name}.{own}"] = value.detach()
                    projections += 1
    said = [f"model.position.length: {old:,} → {new:,}; the learned positions are repeated" for old, new in positions]
    if projections:
        said.append(f"model.attention.compress: linformer's projections are new, {projections} tensors of them")
    return fitted, said


def _name_there(name: str, tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor of ours in the other run, whose model may be the body alone."""
    return next((known for known in (name, name.removeprefix(BODY)) if known in tensors), None)
