"""How fast a Transformer translates: regard, Hugging Face generate and CTranslate2 with the same weights and sources.

A base model with random weights and a vocabulary of 32,000; nothing ever ends by itself, so every sentence says as many
tokens as its source has, by all engines alike (CTranslate2 knows one length for a batch: it says that of the longest).
Engines take turns; figures are medians over rounds: target tokens a second, latency of a call (median and 99th
percentile), and the most memory that a call took beyond what was held before. `same` is the share of sentences whose
words are those of Hugging Face.

    python benchmarks/decoding.py [--device cpu] [--beam 1 4] [--batch 1 64] [--file 128] [--rounds 2] [--json FILE]
    python benchmarks/decoding.py --device cuda --file 0 --profile    # and what a GPU does in a step
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from common import arguments, process_status, write_json
from common import marian as marian_of
from torch import Tensor, nn

from regard import config
from regard.decoding import Beam, Engine, Greedy, RequestQueue, Symbols
from regard.decoding.contract import GenerationRequest
from regard.models.batch import PairBatch, RaggedRows, collate_sources
from regard.models.transformer import TransformerConfig
from regard.accel.inference_weights import inference_weights
from regard.accel.int8 import int8_unsupported_reason, use_int8

ENTRIES, PAD, BOS, EOS = 32_000, 0, 2, 3
Rows = list[list[int]]
Run = Callable[[Rows, int], Rows]  # sources without their end, and the size of the beam -> what was said, end included


# --- the model -----------------------------------------------------------------------------------------------------


def marian(preset: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    model = marian_of(
        SimpleNamespace(**preset), ENTRIES, dropout=0.0, activation_function="relu", init_std=0.15,
        forced_eos_token_id=None, tie_word_embeddings=True, share_encoder_decoder_embeddings=True).eval()  # fmt: skip
    with torch.no_grad():  # wild enough that what is said depends on the source, and on what was said before
        table = model.model.shared.weight
        table.copy_(3 * nn.functional.normalize(torch.randn_like(table), dim=-1))
        table[[PAD, BOS, EOS]] = 0.0  # far from the best of so many words: they are never said
    return model


def ours(theirs: nn.Module, preset: dict[str, Any]) -> nn.Module:
    """Our Transformer with Marian's weights."""
    keys = {**preset, "dropout": 0.0, "position": {"kind": "sinusoidal", "layout": "halves"}}
    model = config.parse_config(TransformerConfig, keys).build(ENTRIES, ENTRIES).eval()
    _, extra = model.load_state_dict(renamed(theirs.state_dict(), preset["layers"]), strict=False)
    assert not extra, extra
    return model


def renamed(theirs: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    found = {"source_embedding.weight": theirs["model.shared.weight"]}
    for side, names in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for n in range(layers):
            old, new = f"model.{side}.layers.{n}", f"{side}.{n}"
            for kind in ("weight", "bias"):
                for name, place in zip(names, ("attention", "cross"), strict=False):
                    part = {p: theirs[f"{old}.{name}.{p}_proj.{kind}"] for p in ("q", "k", "v", "out")}
                    found[f"{new}.{place}.query.{kind}"] = part["q"]
                    found[f"{new}.{place}.key_value.{kind}"] = torch.cat([part["k"], part["v"]])
                    found[f"{new}.{place}.output.{kind}"] = part["out"]
                found[f"{new}.feed_forward.expand.{kind}"] = theirs[f"{old}.fc1.{kind}"]
                found[f"{new}.feed_forward.contract.{kind}"] = theirs[f"{old}.fc2.{kind}"]
                for place, norm in enumerate([*(f"{name}_layer_norm" for name in names), "final_layer_norm"]):
                    found[f"{new}.residuals.{place}.norm.{kind}"] = theirs[f"{old}.{norm}.{kind}"]
    return found


# --- the engines ---------------------------------------------------------------------------------------------------


def by_regard(model: nn.Module, device: torch.device, dtype: torch.dtype | None, batch: int) -> Run:
    if dtype == torch.int8:
        use_int8(model := copy.deepcopy(model))
    else:
        model = inference_weights(model.to(device), dtype)
    engine, symbols = Engine(model), Symbols(BOS, EOS, (PAD, BOS))

    def run(rows: Rows, beam: int) -> Rows:
        order = sorted(range(len(rows)), key=lambda n: -len(rows[n]))
        ranked = [rows[n] for n in order]
        queue = RequestQueue(
            lambda chosen: PairBatch(*collate_sources(RaggedRows.of([ranked[n] for n in chosen]), PAD, EOS)).to(device),
            [GenerationRequest(len(row)) for row in ranked],  # and the end is one more, as it is in the source
            batch,
            dummy_batch=lambda count, length: PairBatch(torch.full((count, length), EOS, device=device), None),
            source_lengths=[len(row) + 1 for row in ranked],
        )
        found = engine.decode(queue, symbols, Greedy() if beam == 1 else Beam(size=beam))
        said = {n: [*hypotheses[0].tokens, EOS] for n, hypotheses in zip(order, found, strict=True)}
        return [said[n] for n in range(len(rows))]

    return run


def by_hugging_face(model: nn.Module, device: torch.device, dtype: torch.dtype | None, batch: int) -> Run:
    from transformers import StoppingCriteria

    class Limits(StoppingCriteria):
        """Every sentence has its own length; all its beams have the same."""

        def __init__(self, limits: list[int]) -> None:
            self.limits = torch.tensor(limits, device=device)

        def __call__(self, input_ids: Tensor, scores: Any, **keys: Any) -> Tensor:
            return input_ids.shape[1] - 1 >= self.limits.repeat_interleave(len(input_ids) // len(self.limits))

    model = model.to(device, dtype)

    @torch.inference_mode()
    def some(rows: Rows, beam: int) -> Rows:
        source, real = collate_sources(RaggedRows.of(rows), PAD, EOS)
        real = torch.ones_like(source) if real is None else real.long()
        limits = [len(row) + 1 for row in rows]
        out = model.generate(
            input_ids=source.to(device), attention_mask=real.to(device), num_beams=beam, do_sample=False,
            max_new_tokens=max(limits), stopping_criteria=[Limits(limits)], length_penalty=1.0)  # fmt: skip
        return [row[1 : 1 + limit] for row, limit in zip(out.tolist(), limits, strict=True)]

    def run(rows: Rows, beam: int) -> Rows:
        order = sorted(range(len(rows)), key=lambda n: -len(rows[n]))
        said: dict[int, list[int]] = {}
        for start in range(0, len(order), batch):
            now = order[start : start + batch]
            said |= dict(zip(now, some([rows[n] for n in now], beam), strict=True))
        return [said[n] for n in range(len(rows))]

    return run


def by_ctranslate2(model: nn.Module, device: torch.device, kind: str, batch: int) -> Run:
    import ctranslate2

    from regard.interop.ct2 import build_spec

    spec = build_spec(model.cpu(), 512)
    words = [f"w{n}" for n in range(ENTRIES)]
    words[EOS], words[BOS] = "</s>", "<s>"
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    for key in ("unk", "bos", "decoder_start"):
        setattr(spec.config, f"{key}_token", "<s>")
    spec.config.eos_token = "</s>"
    spec.validate()
    spec.optimize(quantization=kind)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(folder, device=device.type, compute_type=kind)

    def run(rows: Rows, beam: int) -> Rows:
        length = max(map(len, rows)) + 1
        found = translator.translate_batch(
            [[words[i] for i in (*row, EOS)] for row in rows], max_batch_size=batch, beam_size=beam,
            max_decoding_length=length, min_decoding_length=length)  # fmt: skip
        return [[int(word[1:]) if word[0] == "w" else EOS for word in row.hypotheses[0]] for row in found]

    return run


# --- measuring -----------------------------------------------------------------------------------------------------


class Memory:
    """The most that was held at once since it was last asked to forget, in MiB beyond what was held then."""

    def __init__(self, device: torch.device) -> None:
        self.cuda, self.start = device.type == "cuda", 0.0

    def forget(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.start = torch.cuda.memory_allocated() / 2**20
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
            self.start = process_status("VmRSS")

    def most(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated() / 2**20 - self.start
        return process_status("VmHWM") - self.start


def measure(
    runs: dict[str, Run], calls: list[Rows], beam: int, rounds: int, device: torch.device
) -> tuple[list[dict[str, Any]], dict[str, Rows]]:
    """All engines by turns, and what they said. A first round warms up: on a GPU a whole one, which compiles steps."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in runs}
    memory, said = dict.fromkeys(runs, 0.0), {}
    meter = Memory(device)
    for turn in range(rounds + 1):
        for name, run in runs.items():
            if not turn and device.type == "cpu":
                run(calls[0][:2], beam)
                continue
            meter.forget()
            times, outputs = [], []
            for rows in calls:
                began = time.perf_counter()
                outputs += run(rows, beam)
                times.append(time.perf_counter() - began)
            memory[name], said[name] = max(memory[name], meter.most()), outputs
            if turn:
                seconds[name].append(times)
    made = []
    for name in runs:
        each = sorted(t for times in seconds[name] for t in times)
        speed = sum(map(len, said[name])) / statistics.median(sum(times) for times in seconds[name])
        p50, p99 = (1e3 * each[min(len(each) - 1, int(share * len(each)))] for share in (0.5, 0.99))
        made.append({"engine": name, "tokens_per_second": speed, "p50_ms": p50, "p99_ms": p99,
                     "memory_mib": memory[name]})  # fmt: skip
    return made, said


def compare(
    groups: list[Callable[[], dict[str, Run]]], calls: list[Rows], beam: int, rounds: int, device: torch.device
) -> list[dict[str, Any]]:
    """Engines group by group, since some disturb others by being there; all are measured by the first."""
    made: list[dict[str, Any]] = []
    said: dict[str, Rows] = {}
    for group in groups:
        rows, outputs = measure(group(), calls, beam, rounds, device)
        made, said = [*made, *rows], said | outputs
    base = said[made[0]["engine"]]
    for row in made:
        same = [a[:-1] == b[: len(a) - 1] for a, b in zip(base, said[row["engine"]], strict=True)]
        row |= {"same": float(np.mean(same)), "times": row["tokens_per_second"] / made[0]["tokens_per_second"]}
    return made


def engines(device: torch.device, preset: dict[str, Any], batch: int) -> list[Callable[[], dict[str, Run]]]:
    theirs = marian(preset)
    model, bf16 = ours(theirs, preset), torch.bfloat16
    if device.type == "cuda":
        return [lambda: {"Hugging Face, bf16": by_hugging_face(theirs, device, bf16, batch),
                         "regard, bf16": by_regard(model, device, bf16, batch)}]  # fmt: skip
    torchs = {"Hugging Face, float32": by_hugging_face(theirs, device, None, batch),
              "regard, float32": by_regard(model, device, None, batch),
              "regard, bf16": by_regard(model, device, bf16, batch)}  # fmt: skip
    if reason := int8_unsupported_reason():
        print(f"without int8 of our own: {reason}")
    else:
        torchs["regard, int8"] = by_regard(model, device, torch.int8, batch)
    if find_spec("ctranslate2") is None:
        print("without CTranslate2, which is not installed")
        return [lambda: torchs]
    # Its idle threads wait busily beside torch's, so it comes last.
    return [lambda: torchs, lambda: {f"CTranslate2, {kind}": by_ctranslate2(model, device, kind, batch)
                                     for kind in ("float32", "int8")}]  # fmt: skip


def profile(device: torch.device, preset: dict[str, Any], rows: Rows, beam: int) -> None:
    """What the device does in a call of regard's: its largest kernels, and how many there are in a step."""
    run = by_regard(ours(marian(preset), preset), device, torch.bfloat16, len(rows))
    for _ in range(2):
        run(rows, beam)
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        began = time.perf_counter()
        run(rows, beam)
        took = time.perf_counter() - began
    steps = max(map(len, rows)) + 1
    kernels = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(event.device_time for event in kernels) / 1e3
    print(f"beam {beam}, batch {len(rows)}: {1e3 * took:.1f} ms of which {busy:.1f} ms in {len(kernels)} kernels, "
          f"{len(kernels) / steps:.0f} in each of {steps} steps")  # fmt: skip
    print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=30, max_name_column_width=90))


HEAD = f"{'work':21} {'engine':22} {'tokens/s':>9} {'× HF':>6} {'p50, ms':>9} {'p99, ms':>9} {'MiB':>6} {'same':>5}"


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--beam", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64], help="sentences a call")
    parser.add_argument("--file", type=int, default=2048 if cuda else 128, help="sentences of a whole file; 0: none")
    parser.add_argument("--calls", type=int, default=20 if cuda else 5, help="calls with a batch of one in each round")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3 if cuda else 2)
    parser.add_argument("--profile", action="store_true", help="on a GPU: show the kernels of the largest batch too")
    return parser


def main() -> None:
    options = parser().parse_args()
    device = torch.device(options.device)
    preset = {"layers": options.layers, "size": 512, "inner": 2048, "heads": 8}
    draw = np.random.default_rng(0)
    lengths = np.exp(draw.normal(np.log(23), 0.4, 20_000)).clip(4, 90).astype(int)
    rows = [draw.integers(4, ENTRIES, n).tolist() for n in lengths]
    results = []
    work = [(f"batch {n}", n, [rows[i * n : (i + 1) * n] for i in range(options.calls if n == 1 else 1)])
            for n in options.batch]  # fmt: skip
    if options.file:
        work.append((f"file of {options.file}", 64, [rows[: options.file]]))
    print(HEAD)
    for beam in options.beam:
        for name, batch, calls in work:
            for row in compare(engines(device, preset, batch), calls, beam, options.rounds, device):
                results.append({"work": name, "beam": beam, **row})
                print(f"{f'beam {beam}, {name}':21} {row['engine']:22} {row['tokens_per_second']:9,.0f} "
                      f"{row['times']:6.2f} {row['p50_ms']:9,.1f} {row['p99_ms']:9,.1f} {row['memory_mib']:6,.0f} "
                      f"{row['same']:5.0%}", flush=True)  # fmt: skip
    if options.profile:
        for beam in options.beam:
            profile(device, preset, rows[: max(options.batch)], beam)
    write_json(options.json, results)


if __name__ == "__main__":
    main()
