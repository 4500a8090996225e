"""How fast a Transformer learns: regard, torch.nn.Transformer and Hugging Face's Marian on the same batches.

Each step is forward, backward and update (fused Adam, label smoothing 0.1). The figure is real target tokens a second,
the median over rounds in which all take turns. On a GPU: base with WMT-like lengths and bf16; on a CPU: tiny with
caption-like lengths, float32, and bf16 products where the processor has them.

    python benchmarks/training.py [--preset base] [--attention-dropout 0.1] [--only regard Marian] [--json FILE]
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from common import arguments, hardware, marian, write_json
from torch import Tensor, nn

from regard import config
from regard.data.loader import StepBatches
from regard.device import has_bf16
from regard.models.batch import RaggedRows, PairBatch, collate_pairs
from regard.models.transformer import TransformerConfig
from regard.nn import dispatch
from regard.nn.position import sinusoids
from regard.tasks.contract import BaseTask
from regard.training.config import TrainingConfig
from regard.training.loop import Trainer

MARKS = SimpleNamespace(pad=0, bos=2, eos=3)
Learn = Callable[[Any], Tensor]  # a batch -> its loss, summed over the targets


def batches(count: int, budget: int, entries: int, median: float, spread: float, seed: int = 0) -> list[PairBatch]:
    """Sentences of log-normal lengths, sorted, in batches of at most `budget` padded target tokens."""
    draw = np.random.default_rng(seed)
    lengths = np.sort(np.exp(draw.normal(np.log(median), spread, 200_000)).clip(4, 250).astype(int))
    made = []
    for start in draw.integers(0, len(lengths) - budget, count):
        longest, rows = 0, []
        while (len(rows) + 1) * (max(longest, lengths[start + len(rows)]) + 1) <= budget:
            longest = max(longest, lengths[start + len(rows)])
            rows.append(draw.integers(4, entries, lengths[start + len(rows)]))
        made.append(
            collate_pairs(RaggedRows.of(rows), RaggedRows.of([draw.permutation(r) for r in rows]), MARKS, MARKS)
        )
    return made


class Torch(nn.Module):
    """torch.nn.Transformer with tied embeddings, as its tutorial builds it."""

    def __init__(self, c: TransformerConfig, entries: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(entries, c.size)
        self.net = nn.Transformer(c.size, c.heads, c.layers, c.layers, c.inner, c.dropout, batch_first=True)
        self.dropout, self.scale = nn.Dropout(c.dropout), c.size**0.5
        self.register_buffer("waves", sinusoids(torch.arange(512), c.size).float())

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * self.scale + self.waves[: ids.shape[1]])

    def forward(self, batch: PairBatch) -> Tensor:
        hidden_source = None if batch.source_real is None else ~batch.source_real
        hidden_target = ~batch.target_real
        future = nn.Transformer.generate_square_subsequent_mask(batch.target.shape[1], batch.device).isinf()
        x = self.net(self.embed(batch.source), self.embed(batch.target), tgt_mask=future, tgt_is_causal=True,
                     src_key_padding_mask=hidden_source, tgt_key_padding_mask=hidden_target,
                     memory_key_padding_mask=hidden_source)  # fmt: skip
        return F.linear(x, self.embedding.weight).flatten(0, 1)


class Marian(nn.Module):
    def __init__(self, c: TransformerConfig, entries: int) -> None:
        super().__init__()
        dropouts = {"dropout": c.dropout, "attention_dropout": c.attention.encoder.dropout, "activation_dropout": 0.0}
        self.net = marian(c, entries, activation_function="relu", **dropouts)

    def forward(self, batch: PairBatch) -> Tensor:
        real = torch.ones_like(batch.source) if batch.source_real is None else batch.source_real.long()
        out = self.net(input_ids=batch.source, attention_mask=real, decoder_input_ids=batch.target, use_cache=False)
        return out.logits.flatten(0, 1)


def everywhere(model: nn.Module) -> Learn:
    """The loss as peers compute it: scores at every place, padding ignored."""

    def learn(batch: PairBatch) -> Tensor:
        labels = torch.full((batch.target.numel(),), -100, device=batch.device)
        labels[batch.label_positions] = batch.labels
        return F.cross_entropy(model(batch), labels, label_smoothing=0.1, reduction="sum")

    return learn


class Peer:
    """A step as people write it: autocast, backward, fused Adam."""

    def __init__(self, model: nn.Module, options: argparse.Namespace, learn: Learn, bf16: bool = False) -> None:
        self.model, self.bf16, self.learn = model.to(options.device).train(), options.bf16 or bf16, learn
        self.adam = torch.optim.AdamW(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, 0.0, fused=True)

    def step(self, batch: Any) -> None:
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.learn(batch) / len(batch.labels)
        loss.backward()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)


class Loop(BaseTask):
    """A step of regard's own training loop."""

    fingerprint = ""

    def __init__(
        self,
        model: nn.Module,
        options: argparse.Namespace,
        fast: bool = True,
        smoothing: float = 0.1,
        bf16: bool = False,
    ) -> None:
        self.model, self.fast, self.smoothing = model.to(options.device).train(), fast, smoothing
        precision = "bf16" if options.bf16 or bf16 else "float32"
        settings = config.parse_config(
            TrainingConfig, {"precision": precision, "fast": fast, "schedule": {"kind": "constant"}}
        )
        self.trainer = Trainer(self, model, settings, 1, Path("runs/none"), options.device)

    def loss(self, model: nn.Module, batch: Any, carry: None) -> tuple[Tensor, None]:
        return model(batch, None, self.smoothing), carry

    def static_batch(self, model: nn.Module, batch: Any) -> Any:
        return batch.fixed() if getattr(model, "takes_packed", lambda _: True)(batch) else None

    def step(self, batch: Any) -> None:
        with dispatch.disabled(not self.fast), self.trainer.stream():
            self.trainer.step(StepBatches(0, 0, [batch], (0, 1), len(batch.labels)))
        self.trainer.state.step += 1
        self.trainer.recent.clear()


def operations(c: TransformerConfig, entries: int, batch: PairBatch) -> float:
    """Of the matrix products with weights, forward and backward: six for each weight and place."""
    layer, network = c.size**2, 2 * c.size * c.inner
    source, target = batch.source.numel(), len(batch.labels)
    source = source if batch.source_real is None else int(batch.source_real.sum())
    encoder, cross = c.layers * (4 * layer + network), c.layers * 2 * layer
    decoder = c.layers * (6 * layer + network) + c.size * entries
    return 6.0 * (source * (encoder + cross) + target * decoder)


def peak(size: int = 8192) -> float:
    """Of bf16 products, as this GPU does them, in operations a second."""
    a, b = torch.randn(2, size, size, device="cuda", dtype=torch.bfloat16)
    times = []
    for _ in range(13):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        a @ b
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * size**3 / statistics.median(times[3:])


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    cuda = torch.cuda.is_available()
    parser.add_argument("--preset", default="base" if cuda else "tiny")
    parser.add_argument("--budget", type=int, default=25_000 if cuda else 4096)
    parser.add_argument("--entries", type=int, default=37_000 if cuda else 10_000)
    parser.add_argument("--rounds", type=int, default=7 if cuda else 5)
    parser.add_argument("--batches", type=int, default=12 if cuda else 2)
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="the same for all")
    parser.add_argument("--only", nargs="*", help="rows to run, by their first words")
    return parser


def main() -> None:
    options, cuda = parser().parse_args(), torch.cuda.is_available()
    options.device, options.bf16 = torch.device("cuda" if cuda else "cpu"), cuda
    attention = {"dropout": options.attention_dropout}
    c = config.parse_config(TransformerConfig, {"preset": options.preset, "dropout": 0.1, "attention": attention})
    lengths = (23, 0.6) if cuda else (13, 0.35)
    given = [b.to(options.device) for b in batches(options.batches, options.budget, options.entries, *lengths)]
    torch.set_float32_matmul_precision("high")
    build = lambda: c.build(options.entries, options.entries)  # noqa: E731

    def peer(model: nn.Module, compiled: bool = False) -> Peer:
        return Peer(model, options, everywhere(torch.compile(model, dynamic=True) if compiled else model))

    rows: dict[str, Callable[[], Peer | Loop]] = {
        "regard": lambda: Loop(build(), options),
        "torch.nn.Transformer": lambda: peer(Torch(c, options.entries)),
        "Marian": lambda: peer(Marian(c, options.entries)),
    }
    if cuda:
        rows["Marian, compiled"] = lambda: peer(Marian(c, options.entries), compiled=True)
        rows["regard, training.fast false"] = lambda: Loop(build(), options, fast=False)
    elif has_bf16(options.device):
        rows["regard, bf16"] = lambda: Loop(build(), options, bf16=True)
        net = Torch(c, options.entries)
        rows["torch.nn.Transformer, bf16"] = lambda: Peer(net, options, everywhere(net), bf16=True)
    padded = sum(b.target.numel() for b in given)
    tokens, work = sum(len(b.labels) for b in given), sum(operations(c, options.entries, b) for b in given)
    print(f"{options.preset}, {len(given)} batches of {options.budget:,}, {tokens / padded:.0%} real, "
          f"attention dropout {options.attention_dropout}")  # fmt: skip
    write_json(options.json, compare(rows, given, tokens, work, options))


def compare(
    rows: dict[str, Callable[[], Peer | Loop]], given: list[Any], tokens: int, work: float, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """All take turns; the first two rounds warm up, and compile. `tokens` and operations are those of a round."""
    rows = {name: make for name, make in rows.items() if not options.only or name.startswith(tuple(options.only))}
    cuda = options.device.type == "cuda"
    made = {name: make() for name, make in rows.items()}
    times: dict[str, list[float]] = {name: [] for name in made}
    found: dict[str, dict[str, float]] = {name: {} for name in made}
    for _ in range(options.rounds + 2):
        for name, peer in made.items():
            if cuda:
                torch.cuda.reset_peak_memory_stats()
                torch.cuda.synchronize()
            began = time.perf_counter()
            for batch in given:
                peer.step(batch)
            found[name]["host"] = time.perf_counter() - began
            if cuda:
                torch.cuda.synchronize()
                found[name]["GiB"] = torch.cuda.max_memory_allocated() / 2**30
            times[name].append(time.perf_counter() - began)
    top = peak() if cuda else float("nan")
    print(f"torch {torch.__version__}, {hardware()}"
          + (f", peak {top / 1e12:.0f} TFLOP/s" if cuda else ""))  # fmt: skip
    best = min((statistics.median(t[2:]) for n, t in times.items()
                if not (n.startswith("regard") or n.endswith("bf16"))), default=0.0)  # fmt: skip
    for name, spent in times.items():
        usual = statistics.median(spent[2:])
        first = sum(spent[:2]) - 2 * usual
        found[name] |= {"tokens/s": tokens / usual, "of peak": work / usual / top, "compiling": first,
                        "times": best / usual, "spread": (max(spent[2:]) - min(spent[2:])) / usual}  # fmt: skip
        print(f"{name:28} {tokens / usual:10,.0f} target tokens/s  {best / usual:5.2f} x the fastest peer"
              + (f"  {work / usual / top:4.0%} of peak  {found[name]['GiB']:5.1f} GiB  {first:5.1f} s of compiling"
                 f"  ±{found[name]['spread'] / 2:.0%}" if cuda else ""), flush=True)  # fmt: skip
    return found


if __name__ == "__main__":
    main()
