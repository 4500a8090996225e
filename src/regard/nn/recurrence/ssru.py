"""The simpler simple recurrent unit: a forget gate, a sum, and ReLU; a step costs two products, at any length."""

from torch import Tensor, nn

from regard.config import choice
from regard.nn.feed_forward import Linear
from regard.nn.recurrence.contract import DecoderSelfConfig, Recurrence, wide


class SSRU(Recurrence):
    """f_t = σ(W_f x_t + b_f); c_t = f_t ⊙ c_{t−1} + (1 − f_t) ⊙ W x_t; o_t = ReLU(c_t) (Kim 2019)."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.forget = Linear(size, size)
        self.value = nn.Linear(size, size, bias=False)
        self.reset_parameters()

    def gates(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        f = self.forget(x).to(wide(x.dtype)).sigmoid()
        return f, (1 - f) * self.value(x)

    def read(self, x: Tensor, h: Tensor, position: Tensor) -> Tensor:
        return h.relu().to(x.dtype)

    def reset_parameters(self) -> None:
        for layer in (self.forget, self.value):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.forget.bias)


@choice("ssru", "A14", "f_t = σ(W_f x_t + b_f); c_t = f_t ⊙ c_t−1 + (1 − f_t) ⊙ W x_t; o_t = ReLU(c_t)", "Kim 2019")
class SSRUConfig(DecoderSelfConfig):
    """A recurrent unit with one gate: the past is one vector, and a step costs the same at any length."""

    def build(self, size: int, inner: int, dropout: nn.Module) -> Recurrence:
        return SSRU(size)
