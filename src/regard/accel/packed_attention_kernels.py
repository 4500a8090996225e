# mypy: ignore-errors
"""Triton kernels of attention within many short sequences: all of one, under one head, is a tile.

Programs take sequences by turns, as many as there are. Only q, k and v are kept for the backward pass: the weights
of a tile are cheaper to compute again than to read. x_n and x_h are the strides of positions and heads; capitals are
pointers and what a kernel is compiled for.
"""

import triton
import triton.language as tl

from regard.accel.kernels import keep_mask

kernel = triton.jit(do_not_specialize=["call_seed"])


@triton.jit
def _read(X, start, length, position, x_n, x_h, SIZE: tl.constexpr):
    """One sequence's vectors under one head [positions, SIZE], zeros past its end."""
    at = (start + position).to(tl.int64)[:, None] * x_n + tl.program_id(1) * x_h + tl.arange(0, SIZE)[None, :]
    return tl.load(X + at, mask=(position < length)[:, None], other=0.0)


@triton.jit
def _write(X, start, length, position, x_n, x_h, values, SIZE: tl.constexpr):
    at = (start + position).to(tl.int64)[:, None] * x_n + tl.program_id(1) * x_h + tl.arange(0, SIZE)[None, :]
    tl.store(X + at, values.to(X.dtype.element_ty), mask=(position < length)[:, None])


@triton.jit
def _weights(q, k, length, i, j, scale, CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    """softmax over the keys that are real, and not in the future; scale has log₂e in it."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    seen = (j < length)[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None])
    scores = tl.where(seen, scores, float("-inf"))
    most = tl.max(scores, 1)
    most = tl.where(most == float("-inf"), 0.0, most)  # padding has no keys
    powers = tl.exp2(scores - most[:, None])
    total = tl.sum(powers, 1)
    return powers / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def _keep_mask(i, j, s, STEP_SEED, call_seed, dropout, ROWS: tl.constexpr, COLS: tl.constexpr):
    both = s * tl.num_programs(1) + tl.program_id(1)
    return keep_mask(STEP_SEED, call_seed, (both * ROWS + i[:, None]) * COLS + j[None, :], dropout)


@kernel
def packed_forward_kernel(
    Q, K, V, OUT, START_Q, LENGTH_Q, START_K, LENGTH_K, COUNT, q_n, q_h, k_n, k_h, v_n, v_h, o_n, o_h,
    scale, dropout, STEP_SEED, call_seed,
    ROWS: tl.constexpr, COLS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i, j = tl.arange(0, ROWS), tl.arange(0, COLS)
    for s in range(tl.program_id(0), tl.load(COUNT), tl.num_programs(0)):
        start_q, length_q = tl.load(START_Q + s), tl.load(LENGTH_Q + s)
        start_k, length_k = tl.load(START_K + s), tl.load(LENGTH_K + s)
        q = _read(Q, start_q, length_q, i, q_n, q_h, D_K)
        k = _read(K, start_k, length_k, j, k_n, k_h, D_K)
        v = _read(V, start_k, length_k, j, v_n, v_h, D_V)
        weights = _weights(q, k, length_k, i, j, scale, CAUSAL, PRECISION)
        if DROPS:
            weights = tl.where(
                _keep_mask(i, j, s, STEP_SEED, call_seed, dropout, ROWS, COLS), weights / (1 - dropout), 0.0
            )
        out = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        _write(OUT, start_q, length_q, i, o_n, o_h, out, D_V)


@kernel
def packed_backward_kernel(
    Q, K, V, D_OUT, D_Q, D_KEYS, D_VALUES, START_Q, LENGTH_Q, START_K, LENGTH_K, COUNT,
    q_n, q_h, k_n, k_h, v_n, v_h, o_n, o_h, dq_n, dq_h, dk_n, dk_h, dv_n, dv_h,
    scale, factor, dropout, STEP_SEED, call_seed,
    ROWS: tl.constexpr, COLS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i, j = tl.arange(0, ROWS), tl.arange(0, COLS)
    for s in range(tl.program_id(0), tl.load(COUNT), tl.num_programs(0)):
        start_q, length_q = tl.load(START_Q + s), tl.load(LENGTH_Q + s)
        start_k, length_k = tl.load(START_K + s), tl.load(LENGTH_K + s)
        q = _read(Q, start_q, length_q, i, q_n, q_h, D_K)
        k = _read(K, start_k, length_k, j, k_n, k_h, D_K)
        d_out = _read(D_OUT, start_q, length_q, i, o_n, o_h, D_V)
        v = _read(V, start_k, length_k, j, v_n, v_h, D_V)
        weights = _weights(q, k, length_k, i, j, scale, CAUSAL, PRECISION)
        d_weights = tl.dot(d_out, tl.trans(v), input_precision=PRECISION)
        used = weights
        if DROPS:
            keep = _keep_mask(i, j, s, STEP_SEED, call_seed, dropout, ROWS, COLS)
            used = tl.where(keep, weights / (1 - dropout), 0.0)
            d_weights = tl.where(keep, d_weights / (1 - dropout), 0.0)
        d_values = tl.dot(tl.trans(used.to(d_out.dtype)), d_out, input_precision=PRECISION)
        _write(D_VALUES, start_k, length_k, j, dv_n, dv_h, d_values, D_V)
        inner = tl.sum(weights * d_weights, 1)
        d_scores = (weights * (d_weights - inner[:, None]) * factor).to(q.dtype)
        _write(D_Q, start_q, length_q, i, dq_n, dq_h, tl.dot(d_scores, k, input_precision=PRECISION), D_K)
        d_keys = tl.dot(tl.trans(d_scores), q, input_precision=PRECISION)
        _write(D_KEYS, start_k, length_k, j, dk_n, dk_h, d_keys, D_K)
