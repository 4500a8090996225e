"""The catalog as data: description, files, terms and download addresses of each public dataset. Reads nothing."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Download:
    """One download: saved as `file`, or made into files by the converter of that name."""

    url: str
    file: str = ""
    sha256: str = ""
    convert: str = ""
    members: dict[str, str] = field(default_factory=dict)  # of an archive: member → file; "a.zip!b" is b in a.zip


@dataclass(frozen=True)
class Dataset:
    name: str  # also the folder
    description: str
    layout: str  # a key of `formats.LAYOUTS`
    splits: dict[str, tuple[str, ...]]  # files; with or without .gz
    languages: tuple[str, ...]
    size: str
    terms: str
    homepage: str
    downloads: tuple[Download, ...] = ()
    manual: str = ""  # how to lay it out where there is no download, or what `get` does differently
    columns: dict[str, int] = field(default_factory=dict)  # of the layout `table`: key → column from 0
    header: bool = True


def _multi30k() -> tuple[Download, ...]:
    base = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
    sums = {
        "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
        "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
        "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
        "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    }
    return tuple(Download(f"{base}/{name}", name, sha256) for name, sha256 in sums.items())


def _glue(
    name: str, description: str, size: str, columns: dict[str, int], header: bool = True, manual: str = ""
) -> Dataset:
    members = {f"{name}/{split}.tsv": f"{split}.tsv" for split in ("train", "dev")}
    download = Download(f"https://dl.fbaipublicfiles.com/glue/data/{name}.zip", convert="unzip", members=members)
    return Dataset(
        f"glue/{name}", description, "table", {"train": ("train.tsv.gz",), "valid": ("dev.tsv.gz",)}, ("en",), size,
        "GLUE terms", "https://gluebenchmark.com/tasks", () if manual else (download,), manual,
        columns, header,
    )  # fmt: skip


GPT2 = "https://huggingface.co/openai-community/gpt2/resolve/main"
BERT = "https://huggingface.co/google-bert"
WIKITEXT = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"
DREAM = "https://raw.githubusercontent.com/nlpdata/dream/master/data"
SCITLDR = "https://raw.githubusercontent.com/allenai/scitldr/master/SciTLDR-Data/SciTLDR-A"

DATASETS: dict[str, Dataset] = {s.name: s for s in (
    Dataset(
        "embedded", "sentences written by a bilingual grammar, with trees", "embedded",
        {"train": (), "valid": (), "test": ()}, ("en", "de"), "none", "Apache-2.0", "part of regard",
    ),
    Dataset(
        "multi30k", "picture captions; 29,000 train", "lines",
        {split: tuple(f"{stem}.{language}.gz" for language in ("en", "de", "fr"))
         for split, stem in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))},
        ("en", "de", "fr"), "1.9 MB", "no terms stated for the text", "https://github.com/multi30k/dataset",
        _multi30k(),
    ),
    Dataset(
        "tatoeba-en-de", "everyday sentences; 166,438 train", "columns",
        {"train": ("train.tsv.gz",), "valid": ("valid.tsv.gz",)}, ("en", "de"), "3.8 MB", "CC-BY 2.0 FR",
        "https://www.manythings.org/anki/",
        (Download("https://www.manythings.org/anki/deu-eng.zip", convert="tatoeba", members={"deu.txt": ""}),),
        "split by the hash of the English sentence, 1 in 100 to valid; the download grows, so counts differ",
    ),
    Dataset(
        "tatoeba-en-zh", "everyday sentences, simplified and traditional; 28,077 train", "columns",
        {"train": ("train.tsv.gz",), "valid": ("valid.tsv.gz",)}, ("en", "zh"), "0.7 MB", "CC-BY 2.0 FR",
        "https://www.manythings.org/anki/",
        (Download("https://www.manythings.org/anki/cmn-eng.zip", convert="tatoeba", members={"cmn.txt": ""}),),
        "split by the hash of the English sentence, 1 in 100 to valid; the download grows, so counts differ",
    ),
    Dataset(
        "classical-modern-zh", "classical to modern Chinese; 190,099 train", "columns",
        {"train": ("train.tsv.gz",), "valid": ("valid.tsv.gz",)}, ("lzh", "zh"), "14 MB", "MIT",
        "https://github.com/NiuTrans/Classical-Modern", (),
        "clone it and write the pairs of its bitext.txt files as classical<TAB>modern: train.tsv, valid.tsv",
    ),
    Dataset(
        "dailydialog", "everyday dialogues; 11,017 train", "dialogue",
        {"train": ("train.txt.gz",), "valid": ("valid.txt.gz",)}, ("en",), "2.1 MB", "research use",
        "http://yanran.li/dailydialog",
        (Download("https://yanran.li/files/ijcnlp_dailydialog.zip", convert="unzip", members={
            "ijcnlp_dailydialog/train.zip!train/dialogues_train.txt": "train.txt",
            "ijcnlp_dailydialog/validation.zip!validation/dialogues_validation.txt": "valid.txt"}),),
    ),
    Dataset(
        "wikitext-2", "Wikipedia articles, word level with <unk>; 36,718 lines train", "text",
        {"train": ("train.txt.gz",), "valid": ("valid.txt.gz",)}, ("en",), "3.9 MB", "CC BY-SA 3.0",
        "https://github.com/pytorch/examples/tree/main/word_language_model",
        tuple(Download(f"{WIKITEXT}/{split}.txt", f"{split}.txt") for split in ("train", "valid")),
    ),
    Dataset(
        "stories", "English fiction of the public domain; 11.3 M words, 150 books", "text",
        {"train": ("train.txt.gz",), "valid": ("valid.txt.gz",)}, ("en",), "23 MB",
        "public domain in the US, the editions CC0", "https://standardebooks.org", (),
        "in a checkout, `python -m tools.stories.make OUT` downloads the books of its SOURCES.tsv and makes the set",
    ),
    Dataset(
        "tinyshakespeare", "plays of Shakespeare, 1.1 M characters; valid is the last tenth of all", "text",
        {"train": ("input.txt.gz",), "valid": ("input.txt.gz",), "all": ("input.txt.gz",)}, ("en",), "0.4 MB",
        "public domain", "https://github.com/karpathy/char-rnn",
        (Download("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
               "input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),),
    ),
    Dataset(
        "stories", "public-domain English fiction, much of it science fiction; 3,566 documents train", "text",
        {"train": ("train.txt.gz",), "valid": ("valid.txt.gz",)}, ("en",), "23 MB",
        "public domain in the US, edition CC0", "https://standardebooks.org", (),
        "write books of github.com/standardebooks as plain text, a paragraph a line and a blank line between stories "
        "or chapters: train.txt, valid.txt",
    ),
    _glue("SST-2", "sentiment of film reviews; 67,349 train", "1.5 MB", {"sentence": 0, "label": 1}),
    _glue("CoLA", "is the sentence grammatical; 8,551 train", "0.1 MB",
          {"sentence": 3, "label": 1}, header=False),
    _glue(
        "MRPC", "do two sentences mean the same; 3,667 train", "0.4 MB",
        {"sentence1": 3, "sentence2": 4, "label": 0},
        manual="make train.tsv and dev.tsv with the columns Quality, #1 ID, #2 ID, #1 String, #2 String",
    ),
    _glue("RTE", "does one sentence follow from another; 2,490 train", "0.4 MB",
          {"sentence1": 1, "sentence2": 2, "label": 3}),
    _glue("STS-B", "how alike are two sentences, 0 to 5; 5,749 train", "0.4 MB",
          {"sentence1": 7, "sentence2": 8, "score": 9}),
    Dataset(
        "conll2003", "named entities in news, BIO2; 14,041 sentences train", "conll",
        {"train": ("train.txt.gz",), "valid": ("valid.txt.gz",)}, ("en",), "0.8 MB",
        "Reuters terms, research use",
        "https://www.clips.uantwerpen.be/conll2003/ner/",
        (Download("https://data.deepai.org/conll2003.zip", convert="unzip",
               members={"train.txt": "train.txt", "valid.txt": "valid.txt"}),),
    ),
    Dataset(
        "squad-dev-split", "SQuAD 1.1 dev articles cut in two; 7,757 questions train", "squad",
        {"train": ("train.json.gz",), "valid": ("valid.json.gz",)}, ("en",), "0.9 MB", "CC BY-SA 4.0",
        "https://rajpurkar.github.io/SQuAD-explorer/",
        (Download("https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json", convert="squad"),),
        "six articles are valid, all others train: a few more than the set this catalog describes",
    ),
    Dataset(
        "dream", "multiple-choice questions about dialogues; 6,116 train", "dream",
        {"train": ("train.json.gz",), "valid": ("dev.json.gz",)}, ("en",), "1.1 MB",
        "non-commercial research",
        "https://github.com/nlpdata/dream",
        tuple(Download(f"{DREAM}/{split}.json", f"{split}.json") for split in ("train", "dev")),
    ),
    Dataset(
        "scitldr", "abstracts of papers and one-line summaries; 1,992 train", "scitldr",
        {"train": ("train.jsonl.gz",), "valid": ("dev.jsonl.gz",)}, ("en",), "1.3 MB", "Apache-2.0",
        "https://github.com/allenai/scitldr",
        tuple(Download(f"{SCITLDR}/{split}.jsonl", f"{split}.jsonl") for split in ("train", "dev")),
    ),
    Dataset(
        "tokenizers", "vocabularies of GPT-2 and BERT", "vocabulary",
        {"gpt2": ("gpt2/vocab.json", "gpt2/merges.txt"),
         "bert-base-uncased": ("bert-base-uncased/vocab.txt",),
         "bert-base-chinese": ("bert-base-chinese/vocab.txt",)},
        ("en", "zh"), "1.8 MB", "MIT, Apache-2.0", "https://huggingface.co",
        (Download(f"{GPT2}/vocab.json", "gpt2/vocab.json",
               "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
         Download(f"{GPT2}/merges.txt", "gpt2/merges.txt",
               "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
         Download(f"{BERT}/bert-base-uncased/resolve/main/vocab.txt", "bert-base-uncased/vocab.txt",
               "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
         Download(f"{BERT}/bert-base-chinese/resolve/main/vocab.txt", "bert-base-chinese/vocab.txt",
               "45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c")),
    ),
)}  # fmt: skip

SPLIT_ALIASES = {"val": "valid", "validation": "valid", "dev": "valid", "test_2016_flickr": "test"}  # of splits
