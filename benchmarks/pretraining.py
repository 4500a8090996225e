"""How fast a language model and BERT learn: regard and Hugging Face's models, eager and compiled, on the same batches.

GPT-2 small (124M, 1,024 tokens) predicts every next word; BERT base (512 tokens) 15% of the words, and whether the
second sentence follows. bf16, dropout 0.1 but none on attention weights, fused Adam; tokens read a second.

    python benchmarks/pretraining.py [--model lm bert] [--rows 32] [--json FILE]
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from common import arguments, write_json
from torch import Tensor, nn
from training import Learn, Loop, Peer, compare

from regard import config
from regard.models.bert import BertConfig
from regard.models.lm import LanguageModelConfig
from regard.models.batch import TextBatch, collate_blocks

ENTRIES = {"lm": 50_257, "bert": 30_522}
LENGTH = {"lm": 1024, "bert": 512}


def blocks(count: int, rows: int, small: bool) -> list[TextBatch]:
    draw = np.random.default_rng(0)
    length = 64 if small else LENGTH["lm"]
    return [collate_blocks(draw.integers(0, ENTRIES["lm"], (rows, length + 1))) for _ in range(count)]


def masked(count: int, rows: int, small: bool) -> list[TextBatch]:
    """Two sentences a row; 15% of the places are to be guessed."""
    draw = np.random.default_rng(0)
    length, made = 64 if small else LENGTH["bert"], []
    for _ in range(count):
        ids = draw.integers(4, ENTRIES["bert"], (rows, length))
        places = np.sort(np.stack([draw.choice(length, int(0.15 * length), False) for _ in range(rows)]), 1)
        flat = (places + np.arange(rows)[:, None] * length).ravel()
        labels = ids.ravel()[flat].copy()
        ids.ravel()[flat] = 3
        segments = np.repeat((np.arange(length) >= length // 2)[None], rows, 0).astype(np.int64)
        given = (ids, segments, labels, flat, draw.integers(0, 2, rows))
        ids_, segments_, labels_, flat_, classes = map(torch.from_numpy, given)
        made.append(TextBatch(ids_, segments=segments_, labels=labels_, label_positions=flat_, classes=classes))
    return made


def gpt2(small: bool) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 128, "n_head": 4} if small else {}
    return GPT2LMHeadModel(GPT2Config(attn_pdrop=0.0, use_cache=False, **sizes))


def next_word(model: nn.Module) -> Learn:
    def learn(batch: TextBatch) -> Tensor:
        logits = model(input_ids=batch.ids).logits
        return F.cross_entropy(logits.flatten(0, 1), batch.labels, reduction="sum")

    return learn


def bert(small: bool) -> nn.Module:
    from transformers import BertConfig as Theirs
    from transformers import BertForPreTraining

    sizes = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
    return BertForPreTraining(Theirs(attention_probs_dropout_prob=0.0, **(sizes if small else {})))


def masked_words(model: nn.Module) -> Learn:
    """As `BertForPreTraining` has it: scores of all words at all places."""

    def learn(batch: TextBatch) -> Tensor:
        labels = torch.full((batch.ids.numel(),), -100, device=batch.device)
        labels[batch.label_positions] = batch.labels
        out = model(input_ids=batch.ids, token_type_ids=batch.segments)
        words = F.cross_entropy(out.prediction_logits.flatten(0, 1), labels, reduction="sum")
        return words + F.cross_entropy(out.seq_relationship_logits, batch.classes, reduction="sum")

    return learn


def ours(kind: str, small: bool) -> nn.Module:
    preset = "tiny" if small else {"lm": "small", "bert": "base"}[kind]
    if kind == "lm":
        return config.parse_config(LanguageModelConfig, {"preset": preset, "dropout": 0.1}).build(ENTRIES["lm"])
    return config.parse_config(BertConfig, {"preset": preset, "dropout": 0.1}).pretraining(ENTRIES["bert"])


THEIRS: dict[str, tuple[str, Callable[[bool], nn.Module], Callable[[nn.Module], Learn]]] = {
    "lm": ("GPT-2", gpt2, next_word),
    "bert": ("BERT", bert, masked_words),
}


def operations(model: nn.Module, batch: TextBatch, vocabulary: Tensor) -> float:
    """Of products with weights, six for each and place, those over the vocabulary at the places learned from."""
    inside = sum(p.numel() for n, p in model.named_parameters() if p.dim() == 2 and "embedding" not in n
                 and "position" not in n and p is not vocabulary)  # fmt: skip
    return 6.0 * (inside * batch.ids.numel() + vocabulary.numel() * len(batch.label_positions))


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--model", nargs="+", choices=list(THEIRS), default=list(THEIRS))
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--only", nargs="*", help="rows to run, by their first words")
    return parser


def main() -> None:
    options = parser().parse_args()
    cuda = torch.cuda.is_available()
    options.device, options.bf16 = torch.device("cuda" if cuda else "cpu"), cuda
    torch.set_float32_matmul_precision("high")
    found = {}
    for kind in options.model:
        make = blocks if kind == "lm" else masked
        given = [b.to(options.device) for b in make(options.batches, options.rows, not cuda)]
        name, build, learn = THEIRS[kind]
        example = ours(kind, not cuda)

        def peer(compiled: bool, build=build, learn=learn) -> Peer:
            model = build(not cuda)
            return Peer(model, options, learn(torch.compile(model) if compiled else model))

        rows = {
            "regard": lambda kind=kind: Loop(ours(kind, not cuda), options, smoothing=0.0),
            name: lambda peer=peer: peer(False),
        }
        if cuda:
            rows[f"{name}, compiled"] = lambda peer=peer: peer(True)
        tokens = sum(b.ids.numel() for b in given)
        output = example.output if kind == "lm" else example.words.output
        work = sum(operations(example, b, output.weight) for b in given)
        print(f"{kind}: {len(given)} batches of {options.rows} rows of {given[0].ids.shape[1]}")
        found[kind] = compare(rows, given, tokens, work, options)
    write_json(options.json, found)


if __name__ == "__main__":
    main()
