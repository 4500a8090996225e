"""Outputs of old runs, as they were when translation, generation and chat had loops and samplers of their own.

`python -m tests.predict.test_recorded_outputs` records them anew, where a change of outputs is meant.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.decoding import Beam, DecodingConfig, Greedy, Sample

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDED = FIXTURES / "decoded.json"
SHAPED = Sample(temperature=0.8, top_k=9, top_p=0.95, min_p=0.01, seed=4)
SEARCHES: list[DecodingConfig] = [
    Greedy(max_extra=12), Beam(size=3, max_extra=12), Sample(seed=7, max_extra=12), SHAPED,
    Sample(repetition_penalty=1.6, seed=2, max_extra=12),
]  # fmt: skip
LINES = ["a cat sat", "the dog ran on a mat", "", "b c a d e", "the the the the the the the"]
PROMPTS = ["", "the c", "a dog ran on the m"]
HISTORIES = [["hello"], ["do you like tea", "yes"], ["a", "b", "the cat sat on the mat"]]


def translated(model: Any) -> list[Any]:
    nbest = [[[t.text for t in best] for best in model.nbest(LINES, 2, search)] for search in SEARCHES[1:]]
    return [[model.translate(LINES, search) for search in SEARCHES], nbest]


def generated(model: Any) -> list[Any]:
    """Past the context of 16, samples beside each other, and stop strings."""
    found: list[Any] = []
    for prompt in PROMPTS:
        for search in SEARCHES:
            count = 1 if isinstance(search, Greedy) else 3
            texts = model.generate(prompt, count, search, max_tokens=40, stop=["zz"], warn=lambda sentence: None)
            found.append([(t.tokens, t.ended, round(t.log_probability, 2)) for t in texts])
    return found


def replied(model: Any) -> list[Any]:
    together = [[r.tokens for r in model.replies(HISTORIES, search)] for search in SEARCHES]
    alone = [[model.reply(history, decoding=search) for history in HISTORIES] for search in SEARCHES]
    streamed = [["".join(model.stream(h, decoding=search)) for h in HISTORIES] for search in SEARCHES]
    return [together, alone, streamed]


RUNS: dict[str, Callable[[Any], list[Any]]] = {
    "transformer-bpe": translated, "transformer-rotary": translated, "rnn": translated, "conv": translated,
    "bytenet": translated, "lm": generated, "lstm_lm": generated, "chat": replied,
}  # fmt: skip


def outputs(name: str) -> list[Any]:
    model = regard.load(FIXTURES / "runs" / name / "run" / "last", device="cpu")
    model.model.double()  # no rounding error of another order of sums may decide a near-tie
    result: list[Any] = json.loads(json.dumps(RUNS[name](model)))
    return result


@pytest.mark.parametrize("name", RUNS)
def test_outputs_are_those_recorded(name: str) -> None:
    assert outputs(name) == json.loads(RECORDED.read_text(encoding="utf-8"))[name]


if __name__ == "__main__":
    RECORDED.write_text(
        json.dumps({name: outputs(name) for name in RUNS}, ensure_ascii=False, separators=(",", ":")) + "\n",
        encoding="utf-8",
    )
