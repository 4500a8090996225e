"""C19: does "it" attend to what it refers to? Minimal pairs, in which one word decides: a head counts only if it moves.

A small translator of the embedded corpus reads sentences that differ in one word (too tired, too wide). A head is
chosen on the validation pairs, and measured on the test pairs, whose nouns never compete in training.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data import embedded
from regard.data.embedded import MinimalPair
from regard.lab.claim import Claim, Figure, Measurement, Setup, lower_bound
from regard.lab.corpus import encoded, fit_translator, pair_batch, tiny_translator
from regard.lab.tiny import points
from regard.models.transformer import TransformerConfig
from regard.nn.record import AttentionRecorder

STEPS, SIZE, PAIRS, KIND = 450, 64, 120, "because_"
ROLES = ("encoder", "cross")


def because_pairs(split: embedded.Split) -> list[MinimalPair]:
    """Those in which both nouns stand before the pronoun."""
    found = [pair for pair in embedded.minimal_pairs(split) if pair.first.construction.startswith(KIND)]
    return found[:PAIRS]


@torch.no_grad()
def noun_mass(model: torch.nn.Module, pairs: Sequence[MinimalPair]) -> dict[str, Tensor]:
    """By role [pairs, sentences, nouns, heads of all layers] the weight on each noun with the article before it.

    It is that of the pronoun, or of where its German form is predicted.
    """
    sentences = [each for pair in pairs for each in (pair.first, pair.second)]
    record = AttentionRecorder(ROLES)
    model.eval()(pair_batch(sentences), record)
    found = {}
    for role in ROLES:
        weights = torch.stack(record.layers(role), 1).flatten(1, 2)  # [S, layers · H, Q, K]
        rows = []
        for n, sentence in enumerate(sentences):
            pair = pairs[n // 2]
            pronoun = sentence.pronouns[0]
            own = weights[n, :, pronoun.english if role == "encoder" else pronoun.german]  # [heads, K]
            nouns = (pair.first.pronouns[0].referent, pair.second.pronouns[0].referent)
            rows.append(torch.stack([own[:, max(0, noun - 1) : noun + 1].sum(-1) for noun in nouns]))
        found[role] = torch.stack(rows).unflatten(0, (-1, 2))
    return found


def evidence(mass: Tensor) -> tuple[Tensor, Tensor]:
    """Of each head how far its weight moves with the referent, and how often the referent has more than the other."""
    more = mass[:, :, 0] - mass[:, :, 1]  # of the first noun [pairs, sentences, heads]
    moved = (more[:, 0] - more[:, 1]).mean(0) / 2
    return moved, ((more[:, 0] > 0).double().mean(0) + (more[:, 1] < 0).double().mean(0)) / 2


@torch.no_grad()
def pronouns_predicted(model: torch.nn.Module, pairs: Sequence[MinimalPair]) -> float:
    """The share of sentences whose German pronoun the model predicts, after the words before it."""
    sentences = [each for pair in pairs for each in (pair.first, pair.second)]
    batch = pair_batch(sentences)
    assert batch.target is not None
    assert batch.label_positions is not None
    guesses = torch.full((batch.target.numel(),), -1)
    guesses[batch.label_positions] = model.eval()(batch).argmax(-1)
    at = torch.tensor([each.pronouns[0].german for each in sentences])
    wanted = torch.tensor([encoded(each.pronouns[0].form, "target")[0] for each in sentences])
    return float((guesses.view_as(batch.target)[torch.arange(len(at)), at] == wanted).double().mean())


def rules(pairs: Sequence[MinimalPair]) -> float:
    """How often the better of two rules is right, the subject and the nearest noun: in minimal pairs half the time."""
    right = {min: 0, max: 0}
    for pair in pairs:
        nouns = pair.first.pronouns[0].referent, pair.second.pronouns[0].referent
        for choose in right:
            right[choose] += nouns.count(choose(nouns))
    return max(right.values()) / (2 * len(pairs))


def _measure(seed: int, setup: Setup) -> Measurement:
    model = tiny_translator(
        TransformerConfig, layers=2, size=SIZE, inner=2 * SIZE, heads=4, dropout=0.0, init="xavier"
    )  # fmt: skip
    fit_translator(model, 1 if setup.fault else STEPS, 5e-3, 48, KIND)
    measuring = because_pairs("test")
    chosen, measured = noun_mass(model, because_pairs("valid")), noun_mass(model, measuring)
    numbers, curves = {"pronouns": pronouns_predicted(model, measuring), "rules": rules(measuring)}, {}
    for role in ROLES:
        best = int(evidence(chosen[role])[0].argmax())
        moved, right = evidence(measured[role])
        numbers |= {role: float(moved[best]), f"{role} right": float(right[best])}
        curves[role] = points(range(1, len(moved) + 1), moved.tolist())
    return Measurement(numbers, {"moved": curves})


CLAIM = Claim(
    title="What 'it' attends to",
    sentence="'it' attends to what it refers to.",
    source="notes 000 and 002; Uszkoreit 2017",
    predictions=(
        lower_bound("encoder",
                "weight from 'it' on a noun where it is the referent, less where the other is, best head "
                 "of the encoder", 0.1, "encoder"),
        lower_bound("cross",
                "the same of cross-attention, where the German pronoun is predicted", 0.1, "cross-attention"),
        lower_bound("cross right", "share of sentences in which that head has the referent above the other noun", 0.6,
                 "cross-attention"),
        lower_bound("pronouns", "share of German pronouns that are right, so that there is something to follow", 0.9,
                 "cross-attention", control=True),
    ),
    measure=_measure,
    seconds=14.0,
    seeds=(3, 6),
    depends_on="A small translator of the embedded corpus's sentences with 'because', whose German pronouns show the "
    "gender of the referent. A head counts only if its weight moves with the one word that decides. Rules that need no "
    "meaning, the subject and the nearest noun, are right in half of these sentences. An encoder may know the referent "
    "without any such weight: in what the pronoun's state holds.",
    figures=(Figure("moved", "how far each head's weight moves", "head, layer by layer", "moved"),),
    faults={"an untrained model": "the translator has first weights"},
    why_not_on_text="it needs minimal pairs, which the embedded corpus has",
)  # fmt: skip
