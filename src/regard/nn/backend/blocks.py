"""Sparse patterns on any device: a block of queries meets only the keys of the blocks that its pattern lists.

Time and memory are linear in the length, forward and backward. It serves every score and position, and
every normaliser that does not need keys in order.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.backend.contract import AttentionInputs, Backend, unfused_reason
from regard.nn.layout import Grid
from regard.nn.pattern import Blocks
from regard.nn.position import Bias

SIZES = (128, 64, 32, 16, 8, 4, 2, 1)
GATHER_COST = 16  # of a block's keys, in keys to be compared


def _unsupported_reason(inputs: AttentionInputs) -> str | None:
    chosen = _choose_blocks(inputs) if inputs.pattern.sparse else None
    if chosen is None:
        return ""
    size, listed = chosen
    if inputs.layer.normalise.needs_order:
        return "the normaliser chooses neighbours, which blocks of keys are not"
    if inputs.pattern.gain(inputs.context) is not None:
        return "the pattern weighs what it lets through"
    if 2 * (listed.keys.shape[-1] * size + listed.edge) > inputs.k.shape[2]:
        return "the pattern hides too little of so short an input"
    return None


def _choose_blocks(inputs: AttentionInputs) -> tuple[int, Blocks] | None:
    """The block size at which the pattern costs least, and the blocks that it lists."""

    def find() -> tuple[int, Blocks] | None:
        best, least = None, math.inf
        for size in SIZES:
            listed = inputs.pattern.blocks(inputs.context, size)
            if listed is None:
                continue
            cost = listed.keys.shape[-1] * (size + GATHER_COST)
            if cost >= least:
                break  # smaller ones cost more still
            best, least = (size, listed), cost
        return best

    return inputs.context.once(("blocks", inputs.pattern), find)


def _blocks(inputs: AttentionInputs) -> Tensor:
    chosen = _choose_blocks(inputs)
    assert chosen is not None
    size, listed = chosen
    rows, n, edge = len(inputs.q), inputs.q.shape[2], min(listed.edge, inputs.q.shape[2])
    count = listed.keys.shape[2]
    grid, known = inputs.context.once(("near", inputs.pattern), lambda: _near(inputs, size, listed, edge))
    q = F.pad(inputs.q, (0, 0, 0, count * size - n)).unflatten(2, (count, size)).transpose(1, 2)  # [B, NQ, H, size, d]
    out = _attend(inputs, q, _gathered(inputs.k, grid[3]), _gathered(inputs.v, grid[3]), grid, known)
    out = out.unflatten(0, (rows, count)).transpose(1, 2).flatten(2, 3)[:, :, :n]  # [B, H, Q, d_v]
    if not edge:
        return out
    grid, known = inputs.context.once(("edge", inputs.pattern), lambda: _edge(inputs, edge))
    first = _attend(inputs, inputs.q[:, None, :, :edge], inputs.k, inputs.v, grid, known)  # queries that see all keys
    return torch.cat([first, out[:, :, edge:]], 2)


def _attend(inputs: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, grid: Grid, seen: Tensor) -> Tensor:
    """Blocks of queries [B, NQ, H, size, d_k] over their own keys [B·NQ, H, cols, …]: [B·NQ, H, size, d_v]."""
    layer, (rows, count, _, size, _) = inputs.layer, q.shape
    dropout = layer.dropout if layer.training else 0.0
    if inputs.bias is None and not layer.position.mixes and unfused_reason(inputs) is None:
        mask = seen.expand(rows, -1, -1, size, -1).flatten(0, 1)
        return F.scaled_dot_product_attention(q.flatten(0, 1), k, v, mask, dropout, scale=layer.score.scale)
    scores = layer.score(q.flatten(0, 1), k).unflatten(0, (rows, count))  # [B, NQ, H, size, cols]
    if inputs.bias is not None:
        added = _biases(inputs.bias, _wide(grid))  # [B or 1, H or 1, NQ·size, cols]
        scores = scores + added.unflatten(2, (count, size)).transpose(1, 2)
    weights = F.dropout(layer.normalise(scores, seen), dropout)
    out = weights.flatten(0, 1) @ v
    if layer.position.mixes:
        mixed = layer.position.mix(weights.transpose(1, 2).flatten(2, 3), inputs.context, _wide(grid))
        assert mixed is not None  # [B, H, NQ·size, d_v]
        out = out + mixed.unflatten(2, (count, size)).transpose(1, 2).flatten(0, 1)
    return out


def _biases(bias: Bias, grid: Grid) -> Tensor:
    """The bias on the scores at the positions in `grid`."""
    b, _, i, j = grid
    if bias.table.shape[2] > 1:  # it has a row for each query
        bias = replace(bias, table=bias.table[:, :, i[:, 0]])
    return bias.look_up(bias.column(b, i, j))


def _wide(grid: Grid) -> Grid:
    """The same grid with one query a row, [B, H, NQ·size, cols]."""
    b, h, i, j = grid
    j = j.expand(-1, -1, -1, i.shape[2], -1).transpose(1, 2).flatten(2, 3)
    return b[..., 0], h, i.flatten(0, 2), j


def _near(inputs: AttentionInputs, size: int, listed: Blocks, edge: int) -> tuple[Grid, Tensor]:
    """The positions of each block's queries and of its keys, the edge first; and the mask of these pairs."""
    n, device = inputs.q.shape[2], inputs.q.device
    keys = listed.keys.transpose(1, 2)[..., None]  # [B or 1, NQ, H or 1, M, 1]
    j = keys * size + torch.arange(size, device=device)
    known = ((keys >= 0) & (j >= edge) & (j < n)).flatten(3)
    first = torch.arange(edge, device=device).expand(*known.shape[:3], -1)
    j = torch.cat([first, j.flatten(3).clamp(0, n - 1)], -1)[..., None, :]  # [B or 1, NQ, H or 1, 1, cols]
    known = torch.cat([first >= 0, known], -1)[..., None, :]
    i = torch.arange(j.shape[1] * size, device=device).clamp(max=n - 1).view(-1, 1, size, 1)  # [NQ, 1, size, 1]
    grid = _grid(inputs, i, j)
    return grid, inputs.pattern.allow(inputs.context, *grid) & known


def _edge(inputs: AttentionInputs, edge: int) -> tuple[Grid, Tensor]:
    """The same for the first positions, which may see all: one block, and every key."""
    i = torch.arange(edge, device=inputs.q.device).view(1, 1, edge, 1)
    j = torch.arange(inputs.k.shape[2], device=inputs.q.device).view(1, 1, 1, 1, -1)
    grid = _grid(inputs, i, j)
    return grid, inputs.pattern.allow(inputs.context, *grid)


def _grid(inputs: AttentionInputs, i: Tensor, j: Tensor) -> Grid:
    heads = inputs.q.shape[1] if inputs.pattern.by_head else 1
    b = torch.arange(inputs.context.rows, device=i.device).view(-1, 1, 1, 1, 1)
    return b, torch.arange(heads, device=i.device).view(-1, 1, 1), i, j  # dimensions: B, NQ, H, size, cols


def _gathered(x: Tensor, j: Tensor) -> Tensor:
    """Keys or values [B, H, N, d] at positions [B or 1, NQ, H or 1, 1, cols]: [B·NQ, H, cols, d]."""
    rows, heads, n, d = x.shape
    start = torch.arange(rows * heads, device=x.device).view(rows, 1, heads, 1) * n
    return F.embedding((start + j[..., 0, :]).flatten(0, 1), x.reshape(-1, d))  # sums gradients in a fixed order


BLOCKS = Backend("blocks", _blocks, _unsupported_reason)
