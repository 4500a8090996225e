"""What is wrong with a checkpoint is one sentence; nothing is left behind, and nothing in it is run."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.cli.interop import import_model
from regard.cli.main import main
from regard.errors import RegardError
from tests.interop.opus import LINES, make_checkpoint

pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    make_checkpoint(tmp_path / "theirs")
    return tmp_path / "theirs"


def change_config(**keys: Any) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        path = place / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))

    return change


def change_weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def run(place: Path) -> None:
        tensors = load_file(place / "model.safetensors")
        change(tensors)
        save_file(tensors, place / "model.safetensors", {"format": "pt"})

    return run


def cut(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).write_bytes((place / name).read_bytes()[:-40]) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).unlink()


def forget_a_piece(place: Path) -> None:
    table = json.loads((place / "vocab.json").read_text())
    kept = sorted(table, key=table.__getitem__)[:-2]
    (place / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate([*kept, "<pad>"])}))


FC1 = "model.decoder.layers.1.fc1.bias"


@pytest.mark.parametrize(
    "harm, said",
    [
        (remove("config.json"), r"not a Hugging Face checkpoint \(config\.json is missing\)"),
        (lambda place: (place / "config.json").write_text("{"), "not JSON"),
        (lambda place: (place / "config.json").write_text("[]"), "another kind of JSON"),
        (change_config(model_type="albert"), "family albert; these can be imported: marian"),
        (change_config(architectures=["MarianForCausalLM"]), "the architecture MarianForCausalLM"),
        (change_config(normalize_before=True), "normalize_before True"),
        (change_config(static_position_embeddings=False), "static_position_embeddings False"),
        (change_config(quantization_config={"bits": 4}), "quantization_config"),
        (change_config(activation_function="tanh"), "activation_function 'tanh'"),
        (change_config(decoder_ffn_dim=32), "encoder_ffn_dim 24 beside decoder_ffn_dim 32"),
        (change_config(decoder_attention_heads=2), "decoder_attention_heads 2"),
        (change_config(d_model="16"), "d_model is '16', not a whole number"),
        (change_config(eos_token_id=[0, 3]), "eos_token_id is"),
        (change_config(encoder_attention_heads=3, decoder_attention_heads=3), "3 heads do not divide the size 16"),
        (remove("model.safetensors"), "no weights"),
        (cut("model.safetensors"), "truncated, or not a safetensors file"),
        (change_weights(lambda t: t.pop(FC1)), f"missing: {FC1}"),
        (change_weights(lambda t: t.update({"model.extra": torch.ones(2)})), "unknown: model.extra"),
        (change_weights(lambda t: t.update({FC1: torch.ones(25)})), r"decoder\.1\.feed_forward\.expand\.bias \[25\]"),
        (
            change_weights(lambda t: t.update({"lm_head.weight": torch.ones_like(t["model.shared.weight"])})),
            "lm_head.weight is not the same as model.shared.weight",
        ),
        (
            change_weights(lambda t: t.update({"model.encoder.embed_positions.weight": torch.rand(64, 16)})),
            "not the table of sines and cosines",
        ),
        (change_weights(lambda t: t[FC1].fill_(float("nan"))), r"decoder\.1\.feed_forward\.expand\.bias holds numbers"),
        (change_config(decoder_layers=4), r"missing: model\.decoder\.layers\.3\.encoder_attn"),
        (change_config(decoder_layers=2), r"not in the model: decoder\.2"),
        (forget_a_piece, "the vocabulary does not match: .* pieces, where vocab_size"),
        (remove("vocab.json"), r"the vocabulary is not whole \(vocab\.json not there\)"),
        (remove("target.spm"), r"target\.spm not there"),
        (cut("vocab.json"), "not JSON, or cut short"),
        (lambda place: (place / "source.spm").write_bytes(b"nonsense"), "not a SentencePiece"),
    ],
)
def test_each_is_one_sentence(theirs: Path, harm: Callable[[Path], Any], said: str) -> None:
    harm(theirs)
    out = theirs.parent / "ours"
    with pytest.raises(RegardError, match=said) as error:
        import_model("hf", str(theirs), out)
    assert "\n" not in str(error.value)
    assert os.listdir(theirs.parent) == ["theirs"]  # nothing half made


def test_names_that_are_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="no such folder, and it is not a name on the hub"):
        import_model("hf", str(tmp_path / "nowhere"), tmp_path / "out")
    with pytest.raises(RegardError, match="there is no such form; write hf"):
        import_model("fairseq", str(tmp_path), tmp_path / "out")


def test_a_name_on_the_hub_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")

    def fail(*args: Any, **keys: Any) -> None:
        raise OSError("no network\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(RegardError, match=r"cannot be downloaded \(no network\)"):
        import_model("hf", "Helsinki-NLP/opus-mt-en-de", tmp_path / "out")


def test_a_name_on_the_hub(theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: str(theirs))
    import_model("hf", "Helsinki-NLP/opus-mt-en-de", tmp_path / "out")
    assert regard.load(tmp_path / "out", "cpu").recipe.task.target == "de"


# --- pickles --------------------------------------------------------------------------------------------------------


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harm-was-done",)


def as_pickle(place: Path, content: Any) -> None:
    (place / "model.safetensors").unlink()
    torch.save(content, place / "pytorch_model.bin")


def test_a_pickle_of_tensors_is_read(theirs: Path) -> None:
    """As older checkpoints have it: copies of shared matrices, tables of waves, float16."""
    import_model("hf", str(theirs), theirs.parent / "first")
    made = {name: tensor.clone() for name, tensor in load_file(theirs / "model.safetensors").items()}
    shared = made["model.shared.weight"]
    made |= dict.fromkeys(("model.encoder.embed_tokens.weight", "lm_head.weight"), shared)
    as_pickle(theirs, made)
    import_model("hf", str(theirs), theirs.parent / "second")
    both = [regard.load(theirs.parent / name, "cpu") for name in ("first", "second")]
    lines = [line for line, _ in LINES[:5]]
    assert both[0].translate(lines) == both[1].translate(lines)
    as_pickle_again = {name: tensor.half() for name, tensor in made.items()}
    torch.save(as_pickle_again, theirs / "pytorch_model.bin")
    import_model("hf", str(theirs), theirs.parent / "third")
    assert regard.load(theirs.parent / "third", "cpu").translate(lines)


def test_a_pickle_that_would_run_code_is_refused(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(theirs.parent)
    as_pickle(theirs, {"model.shared.weight": torch.ones(3), "more": Harm()})
    monkeypatch.setattr("sys.argv", ["regard", "import", "hf", str(theirs), str(theirs.parent / "ours")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "a pickle that would run code when it is loaded (posix.mkdir)" in capsys.readouterr().err
    (theirs / "pytorch_model.bin").write_bytes(pickle.dumps(Harm()))  # without torch's zip around it
    with pytest.raises(RegardError, match="would run code"):
        import_model("hf", str(theirs), theirs.parent / "ours")
    assert not (theirs.parent / "harm-was-done").exists()


@pytest.mark.parametrize(
    "content, said", [([torch.ones(2)], "something else than named"), ({"a": 1}, "something else")]
)
def test_a_pickle_of_something_else(theirs: Path, content: Any, said: str) -> None:
    as_pickle(theirs, content)
    with pytest.raises(RegardError, match=said):
        import_model("hf", str(theirs), theirs.parent / "ours")


def test_a_truncated_pickle(theirs: Path) -> None:
    as_pickle(theirs, {"a": torch.ones(1000)})
    cut("pytorch_model.bin")(theirs)
    with pytest.raises(RegardError, match="truncated, or not a file of weights"):
        import_model("hf", str(theirs), theirs.parent / "ours")


# --- parts, and places ----------------------------------------------------------------------------------------------


def test_weights_in_parts(theirs: Path) -> None:
    import_model("hf", str(theirs), theirs.parent / "whole")
    tensors = load_file(theirs / "model.safetensors")
    (theirs / "model.safetensors").unlink()
    names = sorted(tensors)
    index = {}
    for n, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, theirs / f"model-{n}.safetensors")
        index |= dict.fromkeys(part, f"model-{n}.safetensors")
    (theirs / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    import_model("hf", str(theirs), theirs.parent / "parts")
    assert (theirs.parent / "parts" / "model.safetensors").read_bytes() == (
        theirs.parent / "whole" / "model.safetensors"
    ).read_bytes()
    (theirs / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret"}}))
    with pytest.raises(RegardError, match=r"\.\./secret is not a file of this folder"):
        import_model("hf", str(theirs), theirs.parent / "again")


def test_a_place_that_is_taken_stays(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("precious")
    with pytest.raises(RegardError, match="is there already, and not empty"):
        import_model("hf", str(theirs), tmp_path / "taken")
    assert (tmp_path / "taken" / "mine").read_text() == "precious"


def test_an_imported_model_cannot_be_trained_without_data(theirs: Path, tmp_path: Path) -> None:
    from regard import recipe

    import_model("hf", str(theirs), tmp_path / "ours")
    with pytest.raises(RegardError, match=r"data\.train names no corpus"):
        recipe.load_recipe(tmp_path / "ours" / "config.yaml")


def test_separate_tables_of_ids(tmp_path: Path) -> None:
    """Each side has its own table where the library says so."""
    make_checkpoint(tmp_path / "theirs", share_encoder_decoder_embeddings=False)
    place = tmp_path / "theirs"
    (place / "target_vocab.json").write_text((place / "vocab.json").read_text())
    about = json.loads((place / "tokenizer_config.json").read_text())
    (place / "tokenizer_config.json").write_text(json.dumps(about | {"separate_vocabs": True}))
    import_model("hf", str(place), tmp_path / "ours")
    assert (tmp_path / "ours" / "tokenizer" / "target_vocab.json").exists()
    assert regard.load(tmp_path / "ours", "cpu").recipe.model.share == "target"
