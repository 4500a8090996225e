"""Marian folders that `transformers` has written, imported: the same logits and translations. And back again."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import config
from regard.cli.interop import export_model, import_model
from regard.decoding import Beam, Greedy
from regard.models.batch import RaggedRows, collate_pairs
from regard.predict.translation import Translator
from tests.interop import toy
from tests.interop.opus import LINES, make_checkpoint, make_trained

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

SHAPES: dict[str, dict[str, Any]] = {
    "opus": {},
    "one layer, no scale, relu": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "scale_embedding": False,
        "activation_function": "relu",
    },
    "wide, gelu": {"d_model": 40, "encoder_ffn_dim": 7, "decoder_ffn_dim": 7, "activation_function": "gelu"},
    "two heads, own output": {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "tie_word_embeddings": False,
        "activation_function": "gelu_new",
    },
    "apart, tied": {"share_encoder_decoder_embeddings": False},
}


def both_logits(theirs: Any, ours: Translator, lines: list[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of every real target place, with padding in the batch."""
    v = ours.vocabulary
    source, target = v.source.encode_batch([s for s, _ in lines]), v.target.encode_batch([t for _, t in lines])
    batch = collate_pairs(RaggedRows.of(source), RaggedRows.of(target), v.source, v.target)
    assert batch.source_real is not None
    with torch.no_grad():
        expected = theirs(
            input_ids=batch.source, attention_mask=batch.source_real.long(), decoder_input_ids=batch.target
        )
        return expected.logits.flatten(0, 1)[batch.label_positions], ours.model(batch)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits(tmp_path: Path, shape: str) -> None:
    theirs = make_checkpoint(tmp_path / "theirs", **SHAPES[shape])
    import_model("hf", str(tmp_path / "theirs"), tmp_path / "ours")
    wanted, found = both_logits(theirs, regard.load(tmp_path / "ours", "cpu"), LINES[:8])
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    assert wanted.std() > 0.3  # far from a flat model, where everything would agree


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Translator]:
    place = tmp_path_factory.mktemp("trained")
    theirs = make_trained(place / "theirs")
    import_model("hf", str(place / "theirs"), place / "ours")
    tokenizer = transformers.AutoTokenizer.from_pretrained(place / "theirs")
    return theirs, tokenizer, regard.load(place / "ours", "cpu")


def trained_folder(ours: Translator) -> Path:
    return Path(ours.recipe.text.path).parent  # type: ignore[union-attr]


@pytest.mark.parametrize("beams", [1, 4])
def test_translations(trained: tuple[Any, Any, Translator], beams: int) -> None:
    theirs, tokenizer, ours = trained
    assert ours.recipe.decoding == Beam(size=4)  # as generation_config.json says
    lines = [source for source, _ in LINES[:40]]
    given = tokenizer(lines, return_tensors="pt", padding=True)
    with torch.no_grad():
        rows = theirs.generate(**given, num_beams=beams, early_stopping=True, max_new_tokens=31, do_sample=False)
    texts = tokenizer.batch_decode(rows, skip_special_tokens=False)
    limits: dict[str, Any] = {"max_ratio": 0.0, "max_extra": 30}
    search = Beam(size=beams, **limits) if beams > 1 else Greedy(**limits)
    found = ours.nbest(lines, 1, search)
    pad, eos = ours.vocabulary.target.pad, ours.vocabulary.target.eos
    # At the limit the library ends a sentence free of charge, and so may choose another: those that end are compared.
    said = {n: [i for i in row[1:] if i not in (pad, eos)] for n, row in enumerate(rows.tolist())}
    ended = {n: words for n, words in said.items() if len(words) < 30}
    assert len(ended) >= 25
    assert len({tuple(words) for words in ended.values()}) > 8
    assert {n: found[n][0].tokens for n in ended} == ended
    plain = [text.replace("<pad>", "").replace("</s>", "").strip() for text in texts]
    known = [n for n in ended if "<unk>" not in plain[n]]
    assert [found[n][0].text for n in known] == [plain[n] for n in known]
    assert len(known) > 20


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"position": {"kind": "sinusoidal", "layout": "halves"}, "activation": "gelu", "output_bias": True},
        {"share": "target", "scale_embedding": False, "activation": "swish"},
        {"share": "none", "attention": {"projection": "shared"}, "activation": "gelu_tanh", "decoder_layers": 1},
    ],
)
def test_export_loads_there_and_comes_back(tmp_path: Path, keys: dict[str, Any]) -> None:
    """Our interleaved waves are Marian's halves once the features are permuted: exactly the same model."""
    ours = toy.make(tmp_path / "ours", **keys)
    export_model("hf", tmp_path / "ours", tmp_path / "theirs", "float32")
    theirs, told = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs", output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    said = theirs.generation_config
    assert (said.decoder_start_token_id, said.forced_eos_token_id, said.bad_words_ids) == (2, 3, [[0], [2]])
    wanted, found = both_logits(theirs.eval(), ours, LINES[:8])
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-5)
    assert wanted.std() > 0.3
    import_model("hf", str(tmp_path / "theirs"), tmp_path / "again")
    again = regard.load(tmp_path / "again", "cpu")
    torch.testing.assert_close(both_logits(theirs, again, LINES[:8])[1], found, atol=1e-4, rtol=1e-5)
    assert config.to_plain(again.recipe.text) == config.to_plain(ours.recipe.text)


def test_an_exported_model_generates_as_ours_without_being_told_how(
    trained: tuple[Any, Any, Translator], tmp_path: Path
) -> None:
    _, tokenizer, ours = trained
    export_model("hf", trained_folder(ours), tmp_path / "back", "float32")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back").eval()
    pad, eos = ours.vocabulary.target.pad, ours.vocabulary.target.eos
    said = back.generation_config
    assert (said.num_beams, said.bad_words_ids, said.decoder_start_token_id) == (4, [[pad]], pad)
    assert (said.eos_token_id, said.length_penalty, said.early_stopping) == (eos, 1.0, True)
    lines = [source for source, _ in LINES[:20]]
    rows = back.generate(**tokenizer(lines, return_tensors="pt", padding=True), max_length=60).tolist()
    same = [
        best[0].tokens == [i for i in row[1:] if i not in (pad, eos)]
        for best, row in zip(ours.nbest(lines, 1), rows, strict=True)
    ]
    assert sum(same) >= 18  # but for those that reach a limit


def test_import_then_export_gives_the_weights_back(tmp_path: Path) -> None:
    theirs = make_checkpoint(tmp_path / "theirs")
    import_model("hf", str(tmp_path / "theirs"), tmp_path / "ours")
    export_model("hf", tmp_path / "ours", tmp_path / "back", "float32")
    back = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    same = {name: torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in back.state_dict().items()}
    assert [name for name in same if not same[name]] == [  # tables of waves, which may be of any length
        f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")
    ]
    old, new = (transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("theirs", "back"))
    assert type(new) is type(old)
    assert new(LINES[0][0]).input_ids == old(LINES[0][0]).input_ids
