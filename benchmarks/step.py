"""Where a step of a language model goes on a GPU: its time as one recorded launch, and its kernels by what they take.

    python benchmarks/step.py wikitext2-lm [model.inner_dropout=0 …]

Words are random: what they are does not change what a step costs.
"""

import sys
import time
from collections import defaultdict
from typing import Any, cast

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from regard import recipe as recipes
from regard.models.batch import collate_blocks
from regard.training.optimiser import build_optimiser

STEPS, SHOWN = 30, 36


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("benchmarks/step.py: there is no GPU")
    recipe, device = recipes.load_recipe(sys.argv[1], sys.argv[2:]), torch.device("cuda")
    training, length = recipe.training, cast(Any, recipe.task).length
    rows, entries = training.tokens_per_batch // length, getattr(recipe.text, "size", 40_000)
    model = cast(Any, recipe.model).build(entries).to(device).train()
    optimiser = build_optimiser(model, training, device, capturable=True)
    ids = np.random.default_rng(0).integers(0, entries, (rows, length + 1))
    batch = collate_blocks(ids, names=tuple(range(rows)))
    batch = (batch.fixed() or batch).to(device)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=training.precision == "bf16"):
            loss = model(batch, None, training.label_smoothing)
        (loss / (rows * length)).backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), training.clip or torch.inf, norm)
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(6):
            step()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step()
    recorded.replay()
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(STEPS):
        recorded.replay()
    torch.cuda.synchronize()
    took = (time.monotonic() - began) / STEPS
    print(f"step {took * 1e3:.2f} ms, {rows * length / took / 1e3:.0f} thousand words a second")
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = defaultdict(list)
    for event in seen.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name].append(event.self_device_time_total / 3e3)
    print(f"kernels {sum(map(sum, found.values())):.2f} ms")
    for name, times in sorted(found.items(), key=lambda entry: -sum(entry[1]))[:SHOWN]:
        print(f"{sum(times):8.3f} ms {len(times) // 3:5} × {name[:130]}")


if __name__ == "__main__":
    main()
