"""What a model costs: parameters by part, FLOPs and bytes a token, memory of a training step. Knows no task.

A product of a vector with a matrix of n numbers is 2n FLOPs, as in torch's flop counter; what is not a product (norms,
activations, softmax, tables) counts for nothing.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.models.batch import PairBatch, TextBatch
from regard.models.bert import MaskedLM
from regard.models.decoders.pairs import DecoderOnly
from regard.models.lm import LanguageModel
from regard.models.transformer import Transformer
from regard.nn.attention import Attention
from regard.nn.cache import SlotRing
from regard.nn.compress import Compressor
from regard.nn.embedding import Embedding
from regard.nn.layers import DecoderLayer
from regard.nn.pattern import Causal
from regard.nn.position import Position

if TYPE_CHECKING:
    from regard.training.config import TrainingConfig

TABLES = (Embedding, nn.Embedding, Position, Compressor)  # whose numbers are looked up, or used once a sequence


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """How many numbers each part of the model has; what parts share counts for the first."""
    seen: set[int] = set()
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        if id(parameter) not in seen:
            seen.add(id(parameter))
            part = name.split(".")[0]
            parts[part] = parts.get(part, 0) + parameter.numel()
    return parts


def product_parameters(modules: Iterable[nn.Module]) -> int:
    """The numbers of all matrices that vectors are multiplied with; an output that shares a table counts."""
    own = {id(m): m for module in modules for m in module.modules() if not isinstance(m, TABLES)}
    return sum(p.numel() for m in own.values() for p in m.parameters(recurse=False) if p.dim() > 1)


def forward_flops(model: nn.Module, length: int) -> dict[str, int]:
    """FLOPs of a forward pass for each token of a sequence of `length`; with a source, that is as long.

    All keys count, masked ones too. Exact for attention with scaled dot products; what other scores, positions and
    recurrent gates compute beside their matrices is left out.
    """
    pairs = {
        id(m): 2 * m.sizes.heads * (m.sizes.d_k + m.sizes.d_v) for m in model.modules() if isinstance(m, Attention)
    }
    attended = sum(pairs.values()) * length
    if not isinstance(model, Transformer):
        return {"token": 2 * product_parameters([model]) + attended}
    layers: list[DecoderLayer] = list(model.decoder)
    cross = sum(layer.cross.key_value.weight.numel() for layer in layers)
    source = 2 * (product_parameters(model.encoder) + cross)
    source += sum(pairs[id(layer.attention)] for layer in model.encoder) * length
    whole = 2 * product_parameters([*model.encoder, *layers, model.output]) + attended
    return {"source token": source, "target token": whole - source}


def cache_bytes(model: nn.Module, length: int = 1, element: int = 4) -> int:
    """Bytes that the KV caches of self-attention keep while decoding, for each token of a row of `length` of them."""
    own = [m for m in model.modules() if isinstance(m, Attention) and Causal() in m.pattern.parts()]
    slots = [SlotRing.of(m.pattern.retention, length, m.compress.stride).slots for m in own]
    kept = sum(n * m.sizes.kv_heads * (m.sizes.d_k + m.sizes.d_v) for n, m in zip(slots, own, strict=True))
    return -(-kept * element // length)


def state_bytes(model: nn.Module, training: "TrainingConfig") -> int:
    """Bytes of weights, gradients, what the optimiser keeps, and the average of the weights if there is one."""
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    each = 4 + training.optimiser.state_bytes + 4 * bool(training.ema)
    return sum(p.numel() * p.element_size() for p in model.parameters()) + each * learned


def activation_bytes(model: nn.Module, loss: Callable[[], object]) -> int:
    """Bytes that one forward pass, `loss`, keeps for its backward pass, beside the parameters."""
    sizes = {p.untyped_storage().data_ptr(): 0 for p in model.parameters()}
    kept: list[Tensor] = []  # while they are here, no address is used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if sizes.setdefault(storage.data_ptr(), storage.nbytes()):
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss()
    return sum(sizes.values())


def sample_batch(model: nn.Module, length: int) -> PairBatch | TextBatch | None:
    """A row of that many tokens, to see what learning from it takes; None where the model has no words to learn."""
    ids = torch.zeros(1, length, dtype=torch.long)
    labels, positions = ids[0], torch.arange(length)
    if hasattr(model, "source_embedding") or isinstance(model, DecoderOnly):
        return PairBatch(ids, target=ids, labels=labels, label_positions=positions)
    if isinstance(model, LanguageModel | MaskedLM):
        return TextBatch(ids, labels=labels, label_positions=positions)
    return None
