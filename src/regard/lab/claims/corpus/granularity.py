"""C20: words, subwords or characters, by the loss of a character, at equal parameters."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data import embedded
from regard.lab.claim import Claim, Figure, Measurement, Setup, TextExperiment, lower_bound
from regard.lab.corpus import PAD, UNKNOWN, drawn, next_words, same_size
from regard.lab.tiny import TinyEncoder, fit, points
from regard.models.batch import RaggedRows
from regard.text import Tokenizer
from regard.text.config import Bpe, Char, TextConfig, Word
from regard.text.training import train_tokenizer

SENTENCES, TEST, STEPS, PARAMETERS, ROWS = 3000, 300, 250, 60_000, 16
KINDS: dict[str, TextConfig] = {"words": Word(), "subwords": Bpe(size=400), "characters": Char()}
LETTERS = 27  # an unknown word is spelled, by letters that are equally likely


def rows_of(tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor:
    """Ids with </s>, padded."""
    return torch.from_numpy(RaggedRows.of(tokenizer.encode_batch(list(texts))).padded(PAD, after=tokenizer.eos)[0])


@torch.no_grad()
def loss_per_character(model: TinyEncoder, tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    inputs, labels = next_words(rows_of(tokenizer, texts))
    nats = float(F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"))
    known = {word for word in {w for text in texts for w in text.split()} if UNKNOWN not in tokenizer.encode(word)}
    spelled = sum(len(word) + 1 for text in texts for word in text.split() if word not in known)
    return (nats + spelled * float(torch.tensor(LETTERS).log())) / sum(len(text) + 1 for text in texts)


def trained_loss(seed: int, kind: TextConfig) -> float:
    """Per character, of a language model of texts that are cut so."""
    torch.manual_seed(seed)
    texts = [pair.source for pair in embedded.pairs("train")[:SENTENCES]]
    tokenizer = train_tokenizer(kind, texts)
    rows = rows_of(tokenizer, texts)

    def reader(size: int) -> TinyEncoder:
        return TinyEncoder(tokenizer.size, size, layers=2, heads=2, causal=True)

    model = reader(same_size(reader, PARAMETERS, range(8, 96, 4)))
    fit(model, lambda: next_words(drawn(rows, ROWS)), STEPS, 5e-3)
    return loss_per_character(model, tokenizer, [pair.source for pair in embedded.pairs("test")[:TEST]])


def _measure(seed: int, setup: Setup) -> Measurement:
    losses = {name: trained_loss(seed, KINDS["characters"] if setup.fault else kind) for name, kind in KINDS.items()}
    numbers = {name: losses[name] - losses["subwords"] for name in ("words", "characters")}
    return Measurement(numbers, {"loss": {"": points(range(len(losses)), [*losses.values()])}})


CLAIM = Claim(
    title="Subwords",
    sentence="Subwords are better than words and than characters.",
    source="notes 000 and 001; Sennrich 2016",
    predictions=(
        lower_bound("words", "loss of a character with words less that with subwords", 0.01, "words"),
        lower_bound("characters", "loss of a character with characters less that with subwords", 0.01, "characters"),
    ),
    measure=_measure,
    seconds=6.0,
    seeds=(3, 6),
    depends_on="Language models of 60,000 parameters, 3,000 sentences, as many steps of as many sentences for each. "
    "The embedded corpus has few rare words, which are what subwords are for: a word that was not seen is spelled "
    "here, at the price of equally likely letters. Equal compute would give characters fewer steps.",
    figures=(Figure("loss", "loss by what is read", "", "nats a character", names=tuple(KINDS)),),
    faults={"characters for all": "all three read characters"},
    on_text=TextExperiment(
        "multi30k-en-de",
        {kind: (f"text={{kind: {kind}{', size: 10000' if kind != 'char' else ''}, moses: true, lower: true}}",)
         for kind in ("bpe", "word", "char")},
        (
            lower_bound("bpe less word", "chrF, subwords less words", 0.5, "words"),
            lower_bound("bpe less char", "chrF, subwords less characters", 0.5, "characters"),
        ),
        metric="chrf",
        control="parameters",
        seconds=110,
    ),
)  # fmt: skip
