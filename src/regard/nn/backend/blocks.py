"""Sparse patterns on any device: a block of queries meets only the keys of the blocks that its pattern lists.

Time and memory are linear in the length, forward and backward. It serves every score, normaliser and position.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.backend.contract import AttentionInputs, unfused_reason
from regard.nn.layout import Grid
from regard.nn.pattern import Blocks
from regard.nn.position import Bias

SIZES = (128, 64, 32, 16, 8, 4, 2, 1)
COPYING = 16  # what it costs to gather a block's keys, in keys to be compared


def refuses(job: AttentionInputs) -> str | None:
    found = _listed(job)
    if found is None:
        return ""
    size, listed = found
    if job.layer.dropout and job.layer.training:
        return "dropout on the weights needs all of them"
    if job.pattern.gain(job.call) is not None:
        return "the pattern weighs what it lets through"
    if 2 * (listed.keys.shape[-1] * size + listed.edge) > job.k.shape[2]:
        return "the pattern hides too little of so short an input"
    return None


def _listed(job: AttentionInputs) -> tuple[int, Blocks] | None:
    """The size of blocks in which the pattern costs least, and what it lists in them."""

    def find() -> tuple[int, Blocks] | None:
        best, least = None, math.inf
        for size in SIZES:
            listed = job.pattern.blocks(job.call, size)
            if listed is None:
                continue
            cost = listed.keys.shape[-1] * (size + COPYING)
            if cost >= least:
                break  # smaller ones cost more still
            best, least = (size, listed), cost
        return best

    return job.call.once(("blocks", job.pattern), find)


def blocks(job: AttentionInputs) -> Tensor:
    found = _listed(job)
    assert found is not None
    size, listed = found
    rows, n, edge = len(job.q), job.q.shape[2], min(listed.edge, job.q.shape[2])
    count = listed.keys.shape[2]
    grid, known = job.call.once(("near", job.pattern), lambda: _near(job, size, listed, edge))
    q = F.pad(job.q, (0, 0, 0, count * size - n)).unflatten(2, (count, size)).transpose(1, 2)  # [B, NQ, H, size, d]
    out = _attend(job, q, _gathered(job.k, grid[3]), _gathered(job.v, grid[3]), grid, known)
    out = out.unflatten(0, (rows, count)).transpose(1, 2).flatten(2, 3)[:, :, :n]  # [B, H, Q, d_v]
    if not edge:
        return out
    grid, known = job.call.once(("edge", job.pattern), lambda: _edge(job, edge))
    first = _attend(job, job.q[:, None, :, :edge], job.k, job.v, grid, known)  # those who see all, apart
    return torch.cat([first, out[:, :, edge:]], 2)


def _attend(job: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, grid: Grid, seen: Tensor) -> Tensor:
    """Blocks of queries [B, NQ, H, size, d_k] over their own keys [B·NQ, H, cols, …]: [B·NQ, H, size, d_v]."""
    layer, (rows, count, _, size, _) = job.layer, q.shape
    if job.bias is None and not layer.position.mixes and unfused_reason(job) is None:
        mask = seen.expand(rows, -1, -1, size, -1).flatten(0, 1)
        return F.scaled_dot_product_attention(q.flatten(0, 1), k, v, mask, scale=layer.score.scale)
    scores = layer.score(q.flatten(0, 1), k).unflatten(0, (rows, count))  # [B, NQ, H, size, cols]
    if job.bias is not None:
        added = _biases(job.bias, _wide(grid))  # [B or 1, H or 1, NQ·size, cols]
        scores = scores + added.unflatten(2, (count, size)).transpose(1, 2)
    weights = layer.normalise(scores, seen)
    out = weights.flatten(0, 1) @ v
    if layer.position.mixes:
        mixed = layer.position.mix(weights.transpose(1, 2).flatten(2, 3), job.call, _wide(grid))
        assert mixed is not None  # [B, H, NQ·size, d_v]
        out = out + mixed.unflatten(2, (count, size)).transpose(1, 2).flatten(0, 1)
    return out


def _biases(bias: Bias, grid: Grid) -> Tensor:
    """What is added to the scores of the places in `grid`."""
    b, _, i, j = grid
    if bias.table.shape[2] > 1:  # it has a row for each query
        bias = replace(bias, table=bias.table[:, :, i[:, 0]])
    return bias.look_up(bias.column(b, i, j))


def _wide(grid: Grid) -> Grid:
    """The same places as positions know them: every query by itself, [B, H, NQ·size, cols]."""
    b, h, i, j = grid
    j = j.expand(-1, -1, -1, i.shape[2], -1).transpose(1, 2).flatten(2, 3)
    return b[..., 0], h, i.flatten(0, 2), j


def _near(job: AttentionInputs, size: int, listed: Blocks, edge: int) -> tuple[Grid, Tensor]:
    """The places of each block's queries and of its keys, the edge first; and which pairs are visible."""
    n, device = job.q.shape[2], job.q.device
    keys = listed.keys.transpose(1, 2)[..., None]  # [B or 1, NQ, H or 1, M, 1]
    j = keys * size + torch.arange(size, device=device)
    known = ((keys >= 0) & (j >= edge) & (j < n)).flatten(3)
    first = torch.arange(edge, device=device).expand(*known.shape[:3], -1)
    j = torch.cat([first, j.flatten(3).clamp(0, n - 1)], -1)[..., None, :]  # [B or 1, NQ, H or 1, 1, cols]
    known = torch.cat([first >= 0, known], -1)[..., None, :]
    i = torch.arange(j.shape[1] * size, device=device).clamp(max=n - 1).view(-1, 1, size, 1)  # [NQ, 1, size, 1]
    grid = _grid(job, i, j)
    return grid, job.pattern.allow(job.call, *grid) & known


def _edge(job: AttentionInputs, edge: int) -> tuple[Grid, Tensor]:
    """The same for the first places, which may see all: one block, and every key."""
    i = torch.arange(edge, device=job.q.device).view(1, 1, edge, 1)
    j = torch.arange(job.k.shape[2], device=job.q.device).view(1, 1, 1, 1, -1)
    grid = _grid(job, i, j)
    return grid, job.pattern.allow(job.call, *grid)


def _grid(job: AttentionInputs, i: Tensor, j: Tensor) -> Grid:
    heads = job.q.shape[1] if job.pattern.by_head else 1
    b = torch.arange(job.call.rows, device=i.device).view(-1, 1, 1, 1, 1)
    return b, torch.arange(heads, device=i.device).view(-1, 1, 1), i, j  # dimensions: B, NQ, H, size, cols


def _gathered(x: Tensor, j: Tensor) -> Tensor:
    """Keys or values [B, H, N, d] at places [B or 1, NQ, H or 1, 1, cols]: [B·NQ, H, cols, d]."""
    rows, heads, n, d = x.shape
    start = torch.arange(rows * heads, device=x.device).view(rows, 1, heads, 1) * n
    return F.embedding((start + j[..., 0, :]).flatten(0, 1), x.reshape(-1, d))  # sums gradients in a fixed order
