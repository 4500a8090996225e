"""The numbers that the parts of an attention are built from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    size: int  # D, the width of the model
    heads: int  # H
    d_k: int  # of one head's queries and keys
    d_v: int  # of one head's values
    groups: int | None = None  # heads of keys and values, each of which serves several of queries; None: H

    @property
    def kv_heads(self) -> int:
        return self.groups or self.heads

    @staticmethod
    def of(
        size: int, heads: int, d_k: int | None = None, d_v: int | None = None, kv_heads: int | None = None
    ) -> "Sizes":
        """A head has size/heads dimensions unless d_k or d_v are given."""
        given = {"size": size, "heads": heads, "d_k": d_k, "d_v": d_v, "kv_heads": kv_heads}
        for name, value in given.items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        if size % heads and (d_k is None or d_v is None):
            raise ValueError(f"{heads} heads do not divide the size {size}; choose others, or set d_k and d_v")
        if kv_heads is not None and heads % kv_heads:
            raise ValueError(f"kv_heads is {kv_heads}, which does not divide the {heads} heads of queries")
        return Sizes(size, heads, d_k or size // heads, d_v or size // heads, kv_heads)
