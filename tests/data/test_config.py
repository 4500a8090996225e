import pytest

from regard import config
from regard.data.config import Corpus, DataConfig, Filters, expand_corpora
from regard.errors import RegardError


def parse(text: str) -> DataConfig:
    return config.parse_config(DataConfig, config.parse_yaml(text, "recipe.yaml"))


def test_two_plain_files_are_one_parallel_corpus():
    data = parse("train: [train.en, train.de]\nvalid: [data/val.en.gz, data/val.de.gz]")
    assert data.train == [Corpus(source="train.en", target="train.de")]
    assert data.valid == [Corpus(source="data/val.en.gz", target="data/val.de.gz")]


def test_two_whole_corpora_stay_two():
    assert parse("train: [multi30k:train, tatoeba-en-de:train]").train == [
        Corpus(set="multi30k:train"),
        Corpus(set="tatoeba-en-de:train"),
    ]
    assert parse("train: [a.tsv, b.jsonl.gz]").train == [Corpus(path="a.tsv"), Corpus(path="b.jsonl.gz")]


def test_one_corpus_needs_no_list():
    assert parse("train: multi30k:train").train == [Corpus(set="multi30k:train")]
    assert parse("train: {path: a.tsv, weight: 2}").train == [Corpus(path="a.tsv", weight=2.0)]


def test_mixed_list():
    data = parse("train: [[a.en, a.de], {path: b.tsv, columns: [2, 1]}, glue/SST-2:train]")
    assert [c.name for c in data.train] == ["a.en + a.de", "b.tsv", "glue/SST-2:train"]
    assert data.train[1].columns == [2, 1]


def test_column_names_stay_names():
    assert parse("train: {path: b.jsonl, columns: [en, de]}").train[0].columns == ["en", "de"]


def test_saved_config_reads_back_equal():
    data = parse("train: [[a.en, a.de], {path: b.tsv, columns: [2, 1], weight: 0.5}]\nfilters: {max_ratio: 3}")
    assert config.parse_config(DataConfig, config.to_plain(data)) == data


@pytest.mark.parametrize(
    "text, said",
    [
        ("train: {source: a.en}", "source and target belong together"),
        ("train: {source: a.en, target: a.de, path: a.tsv}", "exactly one"),
        ("train: {weight: 2}", "exactly one"),
        ("train: {set: multi30k}", "multi30k:train"),
        ("train: {path: a.tsv, columns: [0, 1]}", "counted from 1"),
        ("train: {path: a.tsv, weight: -1}", "weight"),
        ("train: a.tsv\nfilters: {max_length: 0}", "max_length"),
        ("train: a.tsv\nfilters: {max_ratio: 0.5}", "max_ratio"),
        ("train: a.tsv\nfilters: {max_lenght: 10}", "max_length"),
        ("train: {sources: a.en, target: a.de}", "source"),
    ],
)
def test_impossible_values_name_file_and_line(text: str, said: str):
    with pytest.raises(RegardError, match=said) as raised:
        parse(text)
    assert "recipe.yaml, line" in str(raised.value)


def test_corpora_of_nothing():
    assert expand_corpora(None) == []


def test_defaults():
    assert Filters() == Filters(256, 1, 0.0, True, False, "drop")
