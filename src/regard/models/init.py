"""How weights begin. Three choices for a whole model; norms and biases begin at one and zero in all."""

from torch import nn

from regard.nn.feed_forward import FeedForward
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.recurrence import Recurrence


def xavier(model: nn.Module) -> None:
    """Every projection by its own fan-in and fan-out (Glorot 2010); embeddings keep their D^-0.5."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention | FeedForward | Recurrence):
            module.reset_parameters()
    _own(model)


def normal(model: nn.Module) -> None:
    """N(0, 0.02²) for every matrix, embeddings too, as in BERT, GPT-2 and Marian: sub-layers begin close to nothing."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention | FeedForward | Recurrence):
            module.reset_parameters()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    _own(model)


def depth(model: nn.Module) -> None:
    """The same, but n sub-layers begin at N(0, 0.02²/n): what they add up to does not grow (Radford 2019, 2.3)."""
    normal(model)
    ends = [module.output for module in model.modules() if isinstance(module, MultiHeadAttention)]
    ends += [module.contract for module in model.modules() if isinstance(module, FeedForward)]
    for linear in ends:
        nn.init.normal_(linear.weight, std=0.02 / len(ends) ** 0.5)


def _own(model: nn.Module) -> None:
    """What a part asks for itself: `reset_own`, and the factor a score asks of the query projection (S7)."""
    for module in model.modules():
        if hasattr(module, "reset_own"):
            module.reset_own()  # type: ignore[operator]
        if isinstance(module, MultiHeadAttention):
            module.scale_query()


INITS = {"xavier": xavier, "normal": normal, "depth": depth}
