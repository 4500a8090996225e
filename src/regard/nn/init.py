"""How weights begin. Two choices for a whole model; norms and biases begin at one and zero in both."""

from torch import nn

from regard.nn.attention import MultiHeadAttention
from regard.nn.feed_forward import FeedForward


def xavier(model: nn.Module) -> None:
    """Every projection by its own fan-in and fan-out (Glorot 2010); embeddings keep their D^-0.5."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention | FeedForward):
            module.reset_parameters()


def normal(model: nn.Module) -> None:
    """N(0, 0.02²) for every matrix, embeddings too, as in BERT, GPT-2 and Marian: sub-layers begin close to nothing."""
    xavier(model)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)


INITS = {"xavier": xavier, "normal": normal}
