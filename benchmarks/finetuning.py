"""Fine-tuning beside Hugging Face's own models: the same weights, batches, rates and seeds, quality and time per step.

The recipes of MiniLM are run as they are, by regard's loop, and by `transformers`' BertFor… with the settings of its
own examples: fused AdamW without decay of biases and norms, a linear schedule, clipping, bf16 on a GPU. Both
begin with the same weights, heads included, and take turns. What they say is measured by the same code.

    python benchmarks/finetuning.py runs/minilm [--task sst2 mrpc] [--seeds 1 2 3] [--steps 100] [--json FILE]

runs/minilm is the folder that Hugging Face's weights were brought into. REGARD_DATA names the data.
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import arguments, hardware, write_json
from torch import Tensor, nn

from regard import recipe as recipes
from regard.data.loader import Loader, StepBatches
from regard.errors import RegardError
from regard.interop import bert
from regard.models.heads import IGNORE_INDEX
from regard.models.batch import TextBatch
from regard.nn import dispatch
from regard.tasks.choose import ChooseConfig
from regard.tasks.classify import ClassifyConfig
from regard.tasks.finetuning import FinetuningTask
from regard.tasks.tag import TagConfig
from regard.training.loop import PlannedEpoch, Trainer
from regard.io.tensors import load_weights, read_tensors, unique_state_dict

TASKS = ("sst2", "mrpc", "conll2003", "dream", "squad")
WHO = ("regard", "transformers")
BLOCK = 20  # steps between two looks at the clock

# --- theirs --------------------------------------------------------------------------------------------------------


class Theirs(nn.Module):
    """One of their models under the same head's interface: `scores` and `loss` of our batches."""

    def __init__(self, kind: str, keys: Any, mine: nn.Module, entries: int, outputs: int) -> None:
        import transformers

        super().__init__()
        said = bert.bert_config_to_hf(mine.config, entries, f"BertFor{kind}")
        config = transformers.BertConfig(**said, num_labels=outputs, attn_implementation="sdpa")
        self.model, self.kind = getattr(transformers, f"BertFor{kind}")(config), kind
        wanted = set(self.model.state_dict()) - {"bert.embeddings.position_ids"}
        given = keys.to_hf(unique_state_dict(mine), "here")
        assert set(given) == wanted, set(given) ^ wanted
        self.model.load_state_dict(given, strict=False)

    def ask(self, batch: TextBatch, **labels: Tensor) -> Any:
        given = {"input_ids": batch.ids, "attention_mask": batch.real.long(), "token_type_ids": batch.segments}
        if self.kind == "MultipleChoice":
            given = {key: value.view(len(batch.groups), -1, batch.ids.shape[1]) for key, value in given.items()}
        return self.model(**given, **labels)

    def scores(self, batch: TextBatch) -> Tensor:
        out = self.ask(batch)
        if self.kind == "QuestionAnswering":
            return torch.stack([out.start_logits, out.end_logits], -1).float()
        return out.logits.float()

    def loss(self, scores: Tensor, batch: TextBatch) -> Tensor:
        return scores.new_zeros(())  # only ours is reported

    def learn(self, batch: TextBatch) -> Tensor:
        """Their own mean."""
        if self.kind == "QuestionAnswering":
            return self.ask(batch, start_positions=batch.classes[:, 0], end_positions=batch.classes[:, 1]).loss
        assert IGNORE_INDEX == -100  # theirs too
        return self.ask(batch, labels=batch.classes).loss


FORMS = {
    "classify": ("SequenceClassification", bert.CLASSIFIER),
    "tag": ("TokenClassification", bert.TOKEN_CLASSIFIER),
    "answer": ("QuestionAnswering", bert.QUESTION_ANSWERING),
    "choose": ("MultipleChoice", bert.CLASSIFIER),
}


def their_steps(model: Theirs, task: FinetuningTask, options: argparse.Namespace) -> Callable[[StepBatches], None]:
    s = task.recipe.training
    plain = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    kept = {id(p) for p in plain}
    groups = [{"params": [p for p in model.parameters() if id(p) not in kept]}, {"params": plain, "weight_decay": 0.0}]
    o = s.optimiser
    optimiser = torch.optim.AdamW(
        groups, lr=0.0, betas=(o.beta1, o.beta2), eps=o.epsilon, weight_decay=o.weight_decay, fused=True
    )
    done = 0

    def learn(step: StepBatches) -> None:
        nonlocal done
        done += 1
        batch = step.batches[0].to(options.device)
        with torch.autocast(options.device.type, torch.bfloat16, enabled=s.precision == "bf16"):
            loss = model.learn(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), s.clip)
        for group in optimiser.param_groups:
            group["lr"] = s.schedule.rate(done, 0, s.steps)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return learn


# --- ours ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def our_steps(
    model: nn.Module, task: FinetuningTask, seed: int, options: argparse.Namespace
) -> Iterator[Callable[[StepBatches], None]]:
    s = task.recipe.training
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(task, model, s, seed, Path(folder), options.device)

        def learn(step: StepBatches) -> None:
            trainer.step(step)
            trainer.state.step += 1

        with trainer.stream(), dispatch.disabled(not s.fast):
            yield learn


# --- both ----------------------------------------------------------------------------------------------------------


def run(learn: Callable[[StepBatches], None], task: FinetuningTask, seed: int, options: argparse.Namespace) -> float:
    """Seconds of a step: the median over blocks of steps, without those in which things are compiled and recorded."""
    s = task.recipe.training

    def epoch(number: int) -> PlannedEpoch:
        return PlannedEpoch(
            task.view(seed, number), s.tokens_per_batch, seed, number, pinned=options.device.type == "cuda"
        )

    wait = torch.cuda.synchronize if options.device.type == "cuda" else (lambda: None)
    found: list[float] = []
    with contextlib.closing(Loader(epoch)) as loader:
        wait()
        began, counted = time.perf_counter(), 0
        for n in range(1, s.steps + 1):
            learn(next(loader))
            counted += 1
            if counted == BLOCK or n == s.steps:
                wait()
                now = time.perf_counter()
                found.append((now - began) / counted)
                began, counted = now, 0
    return statistics.median(found[len(found) // 4 :])


def measured(task: FinetuningTask, model: nn.Module) -> tuple[dict[str, float], list[Any]]:
    model.eval()
    said = task.codec.say(model, task.valid)[0]
    try:
        found = {k: v["value"] for k, v in task.settings.compute_metrics(task.valid, said, task.codec).items()}
    except RegardError:  # the machine has no seqeval
        found = fallback(task.valid, said)
    return found, [one.json() for one in said]


def fallback(examples: Sequence[Any], said: Sequence[Any]) -> dict[str, float]:
    """Entity F1 of tags, or accuracy of labels and choices, where the libraries are not there."""
    if not hasattr(said[0], "entities"):
        right = [getattr(e, "answer", None) if hasattr(e, "answer") else e.label for e in examples]
        given = [s.index if hasattr(s, "index") else s.label for s in said]
        return {"accuracy": 100 * sum(a == b for a, b in zip(right, given, strict=True)) / len(right)}
    pairs = [(set(replace(s, tags=e.tags).entities), set(s.entities)) for e, s in zip(examples, said, strict=True)]
    both, wanted, given = (sum(map(len, sets)) for sets in zip(*((a & b, a, b) for a, b in pairs), strict=True))
    return {"f1": 200 * both / max(1, wanted + given)}


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    overrides = [f"training.init={options.init}"]
    overrides += [f"training.steps={options.steps}"] if options.steps else []
    overrides += [] if options.device.type == "cuda" else ["training.precision=float32"]
    overrides += [f"training.validation.lines={options.lines}"] if options.lines else []
    recipe = recipes.load_recipe(f"{name}-minilm", [*overrides, *options.set])
    task: Any = recipe.task.prepare(recipe, options.init, lambda *_: None)
    entries, outputs = task.codec.tokenizer.size, len(task.codec.labels) or (2 if name == "squad" else 1)
    tensors, rows = read_tensors(options.init / "model.safetensors"), []
    for seed in options.seeds:
        torch.manual_seed(seed)
        mine = task.build_model()
        load_weights(mine, task.initial_weights(mine, tensors, options.init), options.init)
        kind, keys = FORMS[recipe.task.kind]
        theirs = Theirs(kind, keys, mine, entries, outputs)
        for who in options.who if seed % 2 else reversed(options.who):
            model = (mine if who == "regard" else theirs).to(options.device).train()
            torch.manual_seed(seed)
            if who == "regard":
                with our_steps(model, task, seed, options) as learn:
                    seconds = run(learn, task, seed, options)
            else:
                seconds = run(their_steps(theirs, task, options), task, seed, options)
            quality, said = measured(task, model)
            rows.append({"who": who, "seed": seed, "seconds_per_step": seconds, **quality})
            print(f"{name:10} {who:13} seed {seed}  {1000 * seconds:8.2f} ms a step  {shown(quality)}", flush=True)
            if options.predictions:
                options.predictions.mkdir(parents=True, exist_ok=True)
                path = options.predictions / f"{name}-{who}-{seed}.jsonl"
                path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in said), encoding="utf-8")
            model.cpu()
    return {"rows": rows, "steps": recipe.training.steps, "notes": task.train_notes.messages()}


def shown(quality: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.2f}" for name, value in quality.items())


def summary(name: str, rows: list[dict[str, Any]]) -> None:
    for who in dict.fromkeys(row["who"] for row in rows):
        own = [row for row in rows if row["who"] == who]
        parts = []
        for key in own[0]:
            if key not in ("who", "seed", "seconds_per_step"):
                values = [row[key] for row in own]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                parts.append(f"{key} {statistics.mean(values):.2f} ± {spread:.2f}")
        speed = statistics.median(row["seconds_per_step"] for row in own)
        print(f"{name:10} {who:13} {1000 * speed:8.2f} ms a step  {'  '.join(parts)}")


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("init", type=Path, help="the folder with the weights to begin from")
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--who", nargs="+", choices=WHO, default=WHO)
    parser.add_argument("--steps", type=int, default=0, help="0: as the recipe says")
    parser.add_argument("--lines", type=int, default=0, help="validation examples; 0: all")
    parser.add_argument("--set", nargs="+", default=[], help="keys of the recipes to change, as task.batch=16")
    parser.add_argument("--predictions", type=Path, help="a folder for what was said, line by line")
    return parser


def main() -> None:
    options = parser().parse_args()
    options.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    for settings in (ClassifyConfig, ChooseConfig, TagConfig):
        settings.required_packages = ()  # what is missing is counted by `fallback`
    found = {name: compare(name, options) for name in options.task}
    for name, result in found.items():
        summary(name, result["rows"])
    write_json(options.json, {"device": hardware(), "torch": torch.__version__, "tasks": found})


if __name__ == "__main__":
    main()
