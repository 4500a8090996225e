"""Claims without an experiment yet, each with its reason, and with the commands that would take its verdict."""

from regard.lab.claim import PlannedClaim

_ON_TEXT = "its verdict needs real text, and no tiny constructed task shows it without building the answer in"

_ROWS = (
    PlannedClaim(
        "C5", "Dot and additive scores", "dot and additive are alike for small d_k; additive wins unscaled for large",
        "needs rates tuned for every size of head, on text",
        ("regard compare multi30k-en-de --vary model.attention.score='[dot, additive, scaled_dot]' --tune-rates",),
    ),
    PlannedClaim(
        "C10", "How many heads", "neither too few nor too many heads", _ON_TEXT,
        ("regard compare multi30k-en-de --vary model.heads='[4, 1, 2, 8, 16]' --tune-rates --seeds 5 --up-to 10",),
    ),
    PlannedClaim(
        "C17", "Sparse attention keeps quality", "Linformer and BigBird keep quality at lower cost",
        "the gain begins at some thousand tokens, where a training takes minutes on a GPU",
    ),
    PlannedClaim(
        "C18", "80/10/10", "BERT's 80/10/10 removes the mismatch", "a pretraining and a fine-tuning for every arm",
    ),
    PlannedClaim(
        "C19", "What `it` attends to", "`it` attends to what it refers to",
        "needs a trained translator and its minimal pairs: a head counts only if its weight moves with the meaning",
    ),
    PlannedClaim(
        "C20", "Subwords", "subwords beat words and characters", _ON_TEXT,
        ("regard compare multi30k-en-de --vary text.kind='[bpe, word, char]' --metric chrf --control parameters",),
    ),
    PlannedClaim(
        "C22", "Learned positions need much text", "learned positions need a large corpus, else sines", _ON_TEXT,
        ("regard compare multi30k-en-de --vary model.position='[sinusoidal, {kind: learned, length: 512}]'",),
    ),
    PlannedClaim(
        "C23", "One head looks at itself", "one head looks too much at itself; W^O weighs heads",
        "needs trained models of several numbers of heads",
    ),
    PlannedClaim(
        "C25", "Both directions", "bidirectional RNNs beat one-way ones", _ON_TEXT,
        ("regard compare quickstart-rnn --vary model.bidirectional='[true, false]' --control parameters --seeds 5",),
    ),
    PlannedClaim(
        "C26", "Syntax in heads", "self-attention finds syntax",
        "needs a trained model, and baselines by distance, beside the trees of the embedded corpus",
    ),
    PlannedClaim(
        "C27", "Masked against left-to-right", "a masked LM learns more slowly; deep bidirectionality matters",
        "a pretraining for each arm at equal compute, and a fine-tuning",
    ),
    PlannedClaim(
        "C28", "Size helps small tasks", "with pretraining, larger models help tiny tasks",
        "pretrainings of several sizes",
    ),
    PlannedClaim(
        "C29", "Heads of cross-attention", "heads help cross-attention more than self-attention, and four are enough",
        _ON_TEXT,
        ("regard compare multi30k-en-de --vary model.attention.cross.heads='[4, 1, 2, 8]' --seeds 5 --up-to 10",
         "regard compare multi30k-en-de --vary model.attention.encoder.heads='[4, 1, 2, 8]' --seeds 5 --up-to 10"),
    ),
)  # fmt: skip

PLANNED = {claim.id: claim for claim in _ROWS}
