"""A Marian folder as OPUS-MT ships it, made here: two SentencePiece models, one table of ids, random weights."""

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from regard.data.embedded import pairs

LINES = [(pair.source, pair.target) for pair in pairs("valid")]
CODES = (">>deu<<", ">>fra<<")


def make_tokenizer(folder: Path, size: int = 220, **options: Any) -> dict[str, int]:
    """Pieces of both sides, numbered as OPUS-MT does it: </s>, <unk>, the pieces by name, <pad> last."""
    folder.mkdir(parents=True, exist_ok=True)
    models = _trained(size, tuple(options.items()))
    for side, (content, _) in models.items():
        (folder / f"{side}.spm").write_bytes(content)
    pieces = sorted({piece for _, names in models.values() for piece in names})
    kept = [piece for n, piece in enumerate(pieces) if n % 60 != 50]  # some have no id: they are unknown
    table = {piece: i for i, piece in enumerate(["</s>", "<unk>", *kept, *CODES, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(table), encoding="utf-8")
    languages = {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(languages), encoding="utf-8")
    return table


@cache
def _trained(size: int, options: tuple[tuple[str, Any], ...]) -> dict[str, tuple[bytes, list[str]]]:
    """By side, a SentencePiece model and the names of its pieces."""
    import sentencepiece

    made = {}
    for n, side in enumerate(("source", "target")):
        file = BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([pair[n] for pair in LINES]),
            model_writer=file,
            vocab_size=size,
            minloglevel=2,
            **dict(options),
        )
        model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
        made[side] = (file.getvalue(), [model.id_to_piece(i) for i in range(3, len(model))])
    return made


def make_model(entries: int, spread: float = 0.5, target_entries: int | None = None, **keys: Any) -> Any:
    """Random weights, biases and norms too; wild enough that sentences differ."""
    import transformers

    torch.manual_seed(0)
    pad = (target_entries or entries) - 1
    usual = {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 64,
    }
    shape = {"vocab_size": entries, "decoder_vocab_size": target_entries or entries}
    marks = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    made = transformers.MarianMTModel(transformers.MarianConfig(**usual | shape | marks | {"init_std": spread} | keys))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        for table in {made.get_input_embeddings(), made.model.decoder.embed_tokens, made.lm_head}:
            table.weight.copy_(torch.nn.functional.normalize(torch.randn_like(table.weight), dim=-1))
        made.final_logits_bias.copy_(torch.randn_like(made.final_logits_bias))
    made.generation_config.bad_words_ids = [[pad]]
    made.generation_config.num_beams = 4
    made.generation_config.max_length = 40
    return made.eval()


def make_checkpoint(folder: Path, **keys: Any) -> Any:
    table = make_tokenizer(folder)
    made = make_model(len(table), **keys)
    made.save_pretrained(folder)
    return made


def make_trained(folder: Path, steps: int = 100) -> Any:
    """One that has learned a little, so that its sentences differ and end."""
    import transformers

    table = make_tokenizer(folder)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    made = make_model(len(table), spread=0.1, **sizes).train()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    optimiser = torch.optim.Adam(made.parameters(), 1e-2)
    for step in range(steps):
        lines = LINES[step % 25 * 32 : step % 25 * 32 + 32]
        source, target = [s for s, _ in lines], [t for _, t in lines]
        batch = tokenizer(source, text_target=target, return_tensors="pt", padding=True)
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        loss = made(**batch).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    made.eval().save_pretrained(folder)
    return made
