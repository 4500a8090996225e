"""How fast a Transformer learns: regard, torch.nn.Transformer and Hugging Face's Marian on the same batches.

Each step is forward, backward and update (fused Adam, label smoothing 0.1). The figure is real target tokens a second,
the median over rounds in which all take turns. On a GPU: base with WMT-like lengths and bf16; on a CPU: tiny with
caption-like lengths, float32, and bf16 products where the processor has them.

    python benchmarks/training.py [--preset base] [--rounds 5] [--compile] [--out speed.json]
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import config
from regard.device import has_bf16
from regard.models.batch import Packed, Pairs, pairs
from regard.models.transformer import TransformerConfig
from regard.nn.position import sinusoids

MARKS = SimpleNamespace(pad=0, bos=2, eos=3)
Learn = Callable[[Pairs], Tensor]  # a batch -> its loss, summed over the targets


def batches(count: int, budget: int, entries: int, median: float, spread: float, seed: int = 0) -> list[Pairs]:
    """Sentences of log-normal lengths, sorted, in batches of at most `budget` padded target tokens."""
    draw = np.random.default_rng(seed)
    lengths = np.sort(np.exp(draw.normal(np.log(median), spread, 200_000)).clip(4, 250).astype(int))
    made = []
    for start in draw.integers(0, len(lengths) - budget, count):
        longest, rows = 0, []
        while (len(rows) + 1) * (max(longest, lengths[start + len(rows)]) + 1) <= budget:
            longest = max(longest, lengths[start + len(rows)])
            rows.append(draw.integers(4, entries, lengths[start + len(rows)]))
        made.append(pairs(Packed.of(rows), Packed.of([draw.permutation(r) for r in rows]), MARKS, MARKS))
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

    def forward(self, batch: Pairs) -> Tensor:
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
        from transformers import MarianConfig, MarianMTModel

        self.net = MarianMTModel(MarianConfig(
            vocab_size=entries, d_model=c.size, dropout=c.dropout, encoder_layers=c.layers, decoder_layers=c.layers,
            encoder_ffn_dim=c.inner, decoder_ffn_dim=c.inner, encoder_attention_heads=c.heads,
            decoder_attention_heads=c.heads, attention_dropout=0.0, activation_dropout=0.0,
            activation_function="relu", scale_embedding=True,
            max_position_embeddings=512, pad_token_id=0, eos_token_id=3, decoder_start_token_id=2))  # fmt: skip

    def forward(self, batch: Pairs) -> Tensor:
        real = torch.ones_like(batch.source) if batch.source_real is None else batch.source_real.long()
        out = self.net(input_ids=batch.source, attention_mask=real, decoder_input_ids=batch.target, use_cache=False)
        return out.logits.flatten(0, 1)


def everywhere(model: nn.Module) -> Learn:
    """The loss as peers compute it: scores at every place, padding ignored."""

    def learn(batch: Pairs) -> Tensor:
        labels = torch.full((batch.target.numel(),), -100, device=batch.device)
        labels[batch.places] = batch.labels
        return F.cross_entropy(model(batch), labels, label_smoothing=0.1, reduction="sum")

    return learn


def at_targets(model: nn.Module) -> Learn:
    return lambda batch: model(batch, None, 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--preset", default="base" if cuda else "tiny")
    parser.add_argument("--budget", type=int, default=25_000 if cuda else 4096)
    parser.add_argument("--entries", type=int, default=37_000 if cuda else 10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="Marian compiled, too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda" if cuda else "cpu")
    c = config.parse(TransformerConfig, {"preset": options.preset, "dropout": 0.1})
    lengths = (23, 0.6) if cuda else (13, 0.35)
    given = [b.to(device) for b in batches(8 if cuda else 2, options.budget, options.entries, *lengths)]
    torch.set_float32_matmul_precision("high")
    made: dict[str, tuple[nn.Module, Learn]] = {}
    for name, model, learn in (("regard", c.build(options.entries, options.entries), at_targets),
                               ("torch.nn.Transformer", Torch(c, options.entries), everywhere),
                               ("Marian", Marian(c, options.entries), everywhere)):  # fmt: skip
        made[name] = model.to(device).train(), learn(model)
    if not cuda and has_bf16(device):
        for name, model, learn in (("regard, bf16", c.build(options.entries, options.entries), at_targets),
                                   ("torch.nn.Transformer, bf16", Torch(c, options.entries), everywhere)):  # fmt: skip
            made[name] = model.train(), learn(model)
    if options.compile:
        model = Marian(c, options.entries).to(device).train()
        made["Marian, compiled"] = model, everywhere(torch.compile(model, dynamic=True))
    adam = {name: torch.optim.AdamW(m.parameters(), 1e-4, (0.9, 0.98), 1e-9, 0.0, fused=True)
            for name, (m, _) in made.items()}  # fmt: skip
    tokens = sum(len(b.labels) for b in given)

    def step(name: str, batch: Pairs) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda or name.endswith("bf16")):
            loss = made[name][1](batch) / len(batch.labels)
        loss.backward()
        adam[name].step()
        adam[name].zero_grad(set_to_none=True)

    speeds: dict[str, list[float]] = {name: [] for name in made}
    memory = {}
    for turn in range(options.rounds + 1):
        for name in made:
            if cuda:
                torch.cuda.reset_peak_memory_stats()
                torch.cuda.synchronize()
            began = time.perf_counter()
            for batch in given:
                step(name, batch)
            if cuda:
                torch.cuda.synchronize()
                memory[name] = torch.cuda.max_memory_allocated() / 2**30
            if turn:  # the first warms up, or compiles
                speeds[name].append(tokens / (time.perf_counter() - began))
    padded = sum(b.target.numel() for b in given)
    print(f"{options.preset}, {len(given)} batches of {options.budget:,}, {tokens / padded:.0%} real, "
          f"{torch.cuda.get_device_name() if cuda else f'CPU, {torch.get_num_threads()} threads'}")  # fmt: skip
    for name, found in speeds.items():
        best = max(
            statistics.median(s) for n, s in speeds.items() if not (n.startswith("regard") or n.endswith("bf16"))
        )
        speed = statistics.median(found)
        extra = f"  {memory[name]:.1f} GiB" if memory else ""
        print(f"{name:26} {speed:12,.0f} target tokens/s  {speed / best:5.2f} × the fastest peer{extra}")
    if options.out:
        options.out.write_text(json.dumps(speeds, indent=1))


if __name__ == "__main__":
    main()
