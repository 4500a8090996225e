"""Activation patching: what a layer or head gives for one text, put into a run on another, and what becomes of it.

A head's output is replaced where its attention computes it (`Attention.attend`), a layer's by a hook, at the tokens
that the texts share or exchange (`match_tokens`). Both texts are read with one target (Meng 2022; Vig 2020).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import nearest
from regard.errors import RegardError
from regard.look.ablation import recorded_attentions
from regard.look.model_inputs import ModelInput, prepare_input
from regard.look.pair import Aligned, match_tokens
from regard.look.quantize import Json
from regard.look.scoring import ScoredInput, scored_input
from regard.nn.attention import Attention
from regard.nn.layers import DecoderLayer, EncoderLayer
from regard.nn.record import AttentionRecorder
from regard.predict.base import Predictor
from regard.predict.chat import ChatPredictor
from regard.predict.translation import Translator

SWEEPS = ("heads", "layers", "positions")
SITE = re.compile(r"(\w+)\.(\d+)(?:\.(\d+))?(?:@(\d+))?")
Place = tuple[str, int]  # role and layer, from 0


@dataclass(frozen=True)
class Site:
    """A layer's output, or a head's; at one token of the second text, or at all that have a counterpart. From 0."""

    role: str
    layer: int
    head: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        head = "" if self.head is None else f".{self.head + 1}"
        return f"{self.role}.{self.layer + 1}{head}" + ("" if self.position is None else f"@{self.position + 1}")


@dataclass
class _Outputs:
    """Of one run: what heads give [H, Q, d_v], and what layers give [Q, D]."""

    heads: dict[Place, Tensor] = field(default_factory=dict)
    layers: dict[Place, Tensor] = field(default_factory=dict)


@torch.inference_mode()
def patch_activations(
    predictor: Predictor,
    text: str,
    other: str,
    patches: Sequence[str] = ("heads",),
    target: str | None = None,
    answer: str | None = None,
) -> Json:
    """Outputs for `text` put into a run on `other`: how much of the difference of their scores comes back.

    A patch is `encoder.1.3` (layer 1, head 3), `encoder.1` (the whole layer; of cross-attention all heads), either with
    `@4` (the fourth token of the second text alone), several joined by +, or `heads`, `layers` or `positions`: every
    one of them, by itself. The target is the first text's own output, unless it is given. What is followed is the token
    of that output whose probability falls most from the first text to the second, or `answer`.
    """
    predictor.model.eval()
    unfused = predictor.unfused()
    first = prepare_input(unfused, text, target)
    forced = first.output if target is None and isinstance(predictor, Translator | ChatPredictor) else target
    inputs = first, prepare_input(unfused, other, forced)
    scored = [scored_input(unfused, each) for each in inputs]
    run = _Patching(predictor.model, inputs, scored)
    wanted = run.parse(patches)
    comparison = run.comparison(answer)
    rows = [run.patched(sites, comparison) for sites in wanted]
    if len(rows) > 1:
        rows.sort(key=lambda row: -abs(float(row["recovered"] or 0)))
    head: Json = {"version": 1, "model": {"kind": predictor.recipe.model.kind, "task": predictor.recipe.task.kind}}
    head |= {"texts": [text, other], "output": first.output, "unmatched": run.unmatched()}
    return head | comparison.json() | {"patches": rows}


@dataclass(frozen=True)
class _Comparison:
    """The row of scores at which the two texts differ most, and what the first text says there."""

    rows: tuple[int, int]
    at: str
    answer: int
    names: tuple[str, str]  # of the answer, and of what the second text says
    log_probabilities: tuple[float, float]

    def json(self) -> Json:
        first, second = (round(float(torch.tensor(each).exp()), 4) for each in self.log_probabilities)
        return {"at": self.at, "answer": self.names[0], "other": self.names[1], "first": first, "second": second}


class _Patching:
    """Two inputs of one model: the outputs for the first, and runs on the second into which they are put."""

    def __init__(self, model: nn.Module, inputs: tuple[ModelInput, ModelInput], scored: Sequence[ScoredInput]) -> None:
        self.model, self.inputs, self.scored = model, inputs, scored
        record = AttentionRecorder(keep_inputs=True)
        inputs[0].run(record)
        self.attentions = recorded_attentions(record)
        self.heads = {place: each.weights[0].shape[1] for place, each in record.records.items()}
        self.stacks = _layers(model, self.attentions)
        self.aligned = {role: match_tokens(*(_queries(each, role) for each in inputs)) for role, _ in self.attentions}
        self.outputs = _Outputs()
        with _watched(self.attentions, self.stacks, self.outputs):
            self.first = scored[0].run().double().log_softmax(-1)
        self.second = scored[1].run().double().log_softmax(-1)

    def comparison(self, wanted: str | None) -> _Comparison:
        """Where the answer of the first text loses most in the second; of those of this name, if one is given."""
        pairs, names = match_tokens(self.scored[0].rows, self.scored[1].rows), self.scored[0].names
        if not pairs:
            raise RegardError("the two texts share no place at which their scores could be compared; change one word")
        answers = {a: int(self.first[a].argmax()) for a, _ in pairs}
        if wanted is not None:
            shown = {a: names([answer])[0] for a, answer in answers.items()}
            pairs = [pair for pair in pairs if shown[pair[0]] == wanted]
            if not pairs:
                raise RegardError(f"the first text is answered without {wanted!r}; {nearest(wanted, shown.values())}")
        a, b = max(pairs, key=lambda rows: float(self.first[rows[0]].max() - self.second[rows[1], answers[rows[0]]]))
        answer = answers[a]
        said = names([answer])[0], names([int(self.second[b].argmax())])[0]
        both = float(self.first[a, answer]), float(self.second[b, answer])
        return _Comparison((a, b), self.scored[1].rows[b], answer, said, both)

    def unmatched(self) -> dict[str, list[str]]:
        """By role the tokens of the second text that nothing of the first stands for: they keep their own outputs."""
        found = {}
        for role, pairs in self.aligned.items():
            seen, tokens = {b for _, b in pairs}, _queries(self.inputs[1], role)
            if alone := [token for n, token in enumerate(tokens) if n not in seen]:
                found[role] = alone
        return found

    def patched(self, sites: Sequence[Site], comparison: _Comparison) -> Json:
        """One run on the second text with these outputs of the first."""
        with self._put(sites):
            scores = self.scored[1].run().double().log_softmax(-1)[comparison.rows[1]]
        before, after = comparison.log_probabilities[1], float(scores[comparison.answer])
        whole = comparison.log_probabilities[0] - before
        return {
            "patch": "+".join(map(str, sites)),
            "probability": round(float(scores[comparison.answer].exp()), 4),
            "recovered": round((after - before) / whole, 4) if abs(whole) > 1e-9 else None,
            "says": self.scored[0].names([int(scores.argmax())])[0],
        }

    @contextmanager
    def _put(self, sites: Sequence[Site]) -> Iterator[None]:
        with ExitStack() as stack:
            for place in dict.fromkeys((site.role, site.layer) for site in sites):
                own = [site for site in sites if (site.role, site.layer) == place]
                if layer := [site for site in own if site.head is None and place in self.stacks]:
                    pairs = self._pairs(layer, place[0])
                    hook = _layer_put(self.outputs.layers[place], pairs)
                    stack.callback(self.stacks[place].register_forward_hook(hook).remove)
                if heads := {
                    head: self._pairs([site for site in own if site.head in (None, head)], place[0])
                    for head in range(self.heads[place])
                    if any(site.head == head or (site.head is None and not layer) for site in own)
                }:
                    stack.enter_context(_heads_put(self.attentions[place], self.outputs.heads[place], heads))
            yield

    def _pairs(self, sites: Sequence[Site], role: str) -> Aligned:
        wanted = {site.position for site in sites}
        return [(a, b) for a, b in self.aligned[role] if None in wanted or b in wanted]

    # --- names -----------------------------------------------------------------------------------------------------

    def parse(self, patches: Sequence[str]) -> list[list[Site]]:
        found: list[list[Site]] = []
        for name in dict.fromkeys(patches):
            found += [[site] for site in self._sweep(name)] if name in SWEEPS else [self._sites(name)]
        if not found:
            raise RegardError(f"say what is patched: encoder.1.3, or {' or '.join(SWEEPS)}")
        return found

    def _sweep(self, name: str) -> list[Site]:
        places = sorted(self.attentions)
        if name == "heads":
            return [Site(*place, head) for place in places for head in range(self.heads[place])]
        if name == "layers":
            return [Site(*place) for place in places]
        return [
            Site(role, layer, None, b)
            for role, layer in places
            if (role, layer) in self.stacks
            for _, b in self.aligned[role]
        ]

    def _sites(self, text: str) -> list[Site]:
        return [self._site(name.strip()) for name in text.split("+")]

    def _site(self, name: str) -> Site:
        found = SITE.fullmatch(name)
        if not found:
            raise RegardError(
                f"the patch {name!r} is not PLACE.LAYER, PLACE.LAYER.HEAD or one of {', '.join(SWEEPS)}; "
                "write it as encoder.1.3, or encoder.1@4"
            )
        role, layer = found[1], int(found[2]) - 1
        head, position = (None if number is None else int(number) - 1 for number in (found[3], found[4]))
        roles = list(dict.fromkeys(each for each, _ in self.attentions))
        if role not in roles:
            raise RegardError(f"the patch {name!r}: this model has no attention {role!r}; {nearest(role, roles)}")
        layers = sum(each == role for each, _ in self.attentions)
        if not 0 <= layer < layers:
            raise RegardError(f"the patch {name!r}: there is no layer {found[2]}; write 1 to {layers}")
        if head is not None and not 0 <= head < self.heads[role, layer]:
            raise RegardError(f"the patch {name!r}: there is no head {found[3]}; write 1 to {self.heads[role, layer]}")
        if position is not None and position not in {b for _, b in self.aligned[role]}:
            tokens = _queries(self.inputs[1], role)
            if not 0 <= position < len(tokens):
                raise RegardError(f"the patch {name!r}: there is no token {found[4]}; write 1 to {len(tokens)}")
            raise RegardError(f"the patch {name!r}: the first text has nothing in the place of {tokens[position]!r}")
        return Site(role, layer, head, position)


def _queries(model_input: ModelInput, role: str) -> list[str]:
    """The tokens at which the queries of a role stand: a cross-attention's are those that the decoder reads."""
    return model_input.names["decoder" if role == "cross" else role][0]


def _layers(model: nn.Module, attentions: Mapping[Place, Attention]) -> dict[Place, nn.Module]:
    """By role and layer the whole layer of a self-attention."""
    owners = {each.attention: each for each in model.modules() if isinstance(each, EncoderLayer | DecoderLayer)}
    return {place: owners[each] for place, each in attentions.items() if each in owners}


# --- hooks ---------------------------------------------------------------------------------------------------------


@contextmanager
def _attending(attention: Attention, change: Any) -> Iterator[None]:
    """`attention.attend` gives what `change` makes of its output; recurrent models call it once a step."""
    plain = attention.attend

    def attend(*args: Any, **keys: Any) -> Tensor:
        changed: Tensor = change(plain(*args, **keys))
        return changed

    vars(attention)["attend"] = attend
    try:
        yield
    finally:
        del vars(attention)["attend"]


@contextmanager
def _watched(
    attentions: Mapping[Place, Attention], stacks: Mapping[Place, nn.Module], found: _Outputs
) -> Iterator[None]:
    """What heads and layers give while one text runs through the model."""

    def heads(place: Place) -> Any:
        def keep(out: Tensor) -> Tensor:
            before = [found.heads[place]] if place in found.heads else []
            found.heads[place] = torch.cat([*before, out[0]], 1)  # [H, Q, d_v]
            return out

        return keep

    def layer(place: Place) -> Any:
        return lambda module, args, out: found.layers.__setitem__(place, out[0])

    with ExitStack() as stack:
        for place, attention in attentions.items():
            stack.enter_context(_attending(attention, heads(place)))
        for place, module in stacks.items():
            stack.callback(module.register_forward_hook(layer(place)).remove)
        yield


def _layer_put(states: Tensor, pairs: Aligned) -> Any:
    def hook(module: nn.Module, args: object, out: Tensor) -> Tensor:
        out = out.clone()
        for a, b in pairs:
            out[0, b] = states[a]
        return out

    return hook


@contextmanager
def _heads_put(attention: Attention, outputs: Tensor, heads: Mapping[int, Aligned]) -> Iterator[None]:
    """These heads give what they gave for the first text, at these positions."""
    seen = 0

    def change(out: Tensor) -> Tensor:
        nonlocal seen
        out, width = out.clone(), out.shape[2]
        for head, pairs in heads.items():
            for a, b in pairs:
                if seen <= b < seen + width:
                    out[0, head, b - seen] = outputs[head, a]
        seen += width
        return out

    with _attending(attention, change):
        yield
