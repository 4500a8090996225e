"""The words of the table that `all.py --table` writes, in English and Chinese: docs/results.md, docs/zh/results.md.

Both tables have the same figures, read once from the same JSON. A part has its English words in `parts.py`, its Chinese
ones here: its title, and its figure cell as a format string over the same figures. `tests/test_benchmarks.py` holds the
two together.
"""

import re
from typing import TypeVar

from parts import LEADS, Part
from parts import PARTS as ENGLISH_PARTS

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
T = TypeVar("T")


class English:
    head = ("what", "figure", "hardware", "commit", "date", "command")
    seeds = " (mean of seeds {seeds}: {each})"
    comma, semicolon = ", ", "; "
    by = "by {commit}"  # the commit was not noted when it was measured
    signature = "Signature of {names}: `{signature}`"

    def title(self, part: Part) -> str:
        return part.title

    def figure(self, part: Part) -> str:
        return part.figure

    def note(self, text: str) -> str:
        return text

    def hardware(self, text: str) -> str:
        return text


class Chinese(English):
    head = ("项目", "数字", "硬件", "提交", "日期", "命令")
    seeds = "（种子 {seeds} 的平均：{each}）"
    comma, semicolon = "、", "；"
    by = "不晚于 {commit}"
    signature = "{names} 的签名：`{signature}`"

    def title(self, part: Part) -> str:
        return _chinese(PARTS, part.name)[0]

    def figure(self, part: Part) -> str:
        return _chinese(PARTS, part.name)[1]

    def note(self, text: str) -> str:
        """A note of the JSON is looked up without its numbers, which are then filled in."""
        return _chinese(NOTES, NUMBER.sub("{}", text)).format(*NUMBER.findall(text))

    def hardware(self, text: str) -> str:
        text = re.sub(r"(\d+) CPU cores \((\S+), (\S+)\)", r"\1 个 CPU 核（\2、\3）", text)
        return re.sub(r"CPU, (\d+) threads", r"CPU，\1 个线程", text).replace(", torch", "，torch")


def _chinese(table: dict[str, T], words: str) -> T:
    if words not in table:
        raise SystemExit(f"all.py: benchmarks/languages.py has no Chinese for {words}")
    return table[words]


_TRAINING = "{tokens_per_second:,.0f} 目标词元/秒，最快的其他库的 {times:.2f} 倍，峰值的 {of_peak:.0%}"
_PRETRAINING = _TRAINING.replace("目标词元", "词元")
_MINILM = "：regard {regard:.2f}，transformers {transformers:.2f}；一步 {step_ms:.1f} 和 {their_step_ms:.1f} 毫秒"
_BLEU = "{bleu:.2f} BLEU；训练 {minutes:.1f} 分钟"

_PAIR = "{bleu:.2f} BLEU，{chrf:.2f} chrF；训练 {minutes:.1f} 分钟"
_PAIRS = {
    "multi30k-fr-en": "Multi30k 法→英，原始文本，`test_2016_flickr`",
    "tatoeba-en-zh": "Tatoeba 英→中，`valid`",
    "tatoeba-zh-en": "Tatoeba 中→英，`valid`",
    "classical-modern-zh": "文言→白话，`valid`",
}


def _beside_marian(name: str, title: str) -> dict[str, tuple[str, str]]:
    return {name: (title, _PAIR), f"{name}-marian": (f"{title}：Hugging Face 的 Marian，批次相同", _PAIR)}


_SST2 = {
    "gpt-pretraining": ("WikiText-2 上的 GPT，4 层，512", "困惑度 {perplexity:.2f}"),
    "bert-pretraining": ("WikiText-2 上的 BERT-small", "填空准确率 {gap_accuracy:.2f}"),
    "ulmfit-pretraining": ("WikiText-2 上的 LSTM 语言模型", "困惑度 {perplexity:.2f}"),
    "ulmfit-text": ("该模型再读 SST-2 的文本", "困惑度 {perplexity:.2f}"),
    "gpt": ("预训练的 GPT", "准确率 {accuracy:.2f}"),
    "gpt-scratch": ("同样的 GPT，从零训练", "准确率 {accuracy:.2f}"),
    "bert": ("BERT-small", "准确率 {accuracy:.2f}"),
    "ulmfit": ("ULMFiT", "准确率 {accuracy:.2f}"),
}

_CHARACTERS = "每字符 {bits_per_character:.3f} 比特；训练 {minutes:.1f} 分钟"

_LONG = (
    "完整 {full:.2f} ± {full_error:.2f}，window(256) {window:.2f} ± {window_error:.2f}，BigBird {bigbird:.2f} ± "
    "{bigbird_error:.2f}，Linformer {linformer:.2f} ± {linformer_error:.2f}，步长卷积 "
    "{strided_conv:.2f} ± {strided_conv_error:.2f}，段落记忆 {memory:.2f} ± {memory_error:.2f}"
)

PARTS = {  # title, figure
    "tatoeba": ("Tatoeba 英→德，`valid`，small（13.1M 参数）", _BLEU),
    "tatoeba-marian": ("Tatoeba 英→德，Hugging Face 的 Marian，批次相同", _BLEU),
    "students": (
        "Tatoeba 英→德模型的学生，`valid`，1,000 行，同一设备",
        "教师 {teacher_bleu:.2f} BLEU，{teacher_speed:,.0f} 句/秒，{teacher_ms:.1f} 毫秒，{teacher_mb:.0f} MB；"
        "deep-shallow {shallow_bleu:.2f}、{shallow_speed:,.0f}、{shallow_ms:.1f}、{shallow_mb:.0f}；"
        "ssru {ssru_bleu:.2f}、{ssru_speed:,.0f}、{ssru_ms:.1f}、{ssru_mb:.0f}",
    ),
    "training-base": ("训练 Transformer base", _TRAINING),
    "training-big": ("训练 Transformer big", "{tokens_per_second:,.0f} 目标词元/秒，峰值的 {of_peak:.0%}"),
    "language-model": ("训练 GPT-2 small（124M），1,024 个词元", _PRETRAINING),
    "bert": ("预训练 BERT base，512 个词元", _PRETRAINING),
    "sparse-attention": (
        "稀疏注意力与完整注意力相比，16,384 和 65,536 个词元",
        "速度：window(256) 是 {window_16384:.1f} 倍和 {window_65536:.1f} 倍，"
        "BigBird 是 {bigbird_16384:.1f} 倍和 {bigbird_65536:.1f} 倍",
    ),
    "long-layer": ("一层，512 到 65,536 个词元：用时随长度增长的指数", _LONG),
    "long-model": (
        "用长序列训练 BERT base，BigBird 与完整注意力相比",
        "4,096 个词元时速度是 {times_4096:.2f} 倍，16,384 时是 {times_16384:.1f} 倍，{tokens_per_second:,.0f} 词元/秒，"
        "65,536 时是 {times_65536:.1f} 倍",
    ),
    "long-decode": (
        "65,536 个词元之后解码一步，GPT-2 small，四行",
        "完整 {full_ms:.1f} 毫秒，缓存 {full_mb:,.0f} MB；window(256) {window_ms:.1f} 毫秒，{window_mb:,.0f} MB；"
        "步长卷积 {strided_conv_ms:.1f} 毫秒，{strided_conv_mb:,.0f} MB",
    ),
    **{
        f"long-leads-{arm}-{length}-{choose}": (
            f"WikiText-2 的文章首段：{arm}，{length:,} 个词元，{choose}",
            "每个词元 {loss:.3f} 奈特，{low:.3f} 到 {high:.3f}",
        )
        for arm, length, choose in LEADS
    },
    **{
        part.name: (
            part.title.replace("SQuAD, answers after the first 512 words: ", "SQuAD，答案在前 512 个词之后："),
            part.figure.replace("; ", "；").replace(", ", "，").replace(" s；", " 秒；"),
        )
        for part in ENGLISH_PARTS
        if part.name.startswith("long-answers")
    },
    "long-memory": (
        "WikiText-2，每段 64 个词元，记忆 64 个",
        "困惑度比各段分开读低 {gain:.1%}，与每次滑动 8 个词元的窗口相差 {above_windows:+.2%}，"
        "速度是它的 {times:.0f} 倍",
    ),
    "long-characters": ("WikiText-2 逐字符，24 层，有辅助损失", _CHARACTERS),
    "long-characters-plain": ("WikiText-2 逐字符，24 层，没有", _CHARACTERS),
    "decoding-64": (
        "解码，base，批次 64，束宽 4",
        "{beam4_tokens_per_second:,.0f} 词元/秒，Hugging Face generate 的 {beam4_times:.1f} 倍",
    ),
    "decoding-1": (
        "解码，base，一次一句",
        "束宽 1：{beam1_tokens_per_second:,.0f} 词元/秒，{beam1_times:.1f} 倍，p50 {beam1_p50_ms:.1f} 毫秒；束宽 4："
        "{beam4_tokens_per_second:,.0f}，Hugging Face generate 的 {beam4_times:.1f} 倍，p50 {beam4_p50_ms:.1f} 毫秒",
    ),
    "parallel-multi30k": (
        "并行解码，base，Multi30k",
        "批次 1，解码器用时与贪心搜索相比：blockwise {frozen_1:.2f} 倍（冻结）、{along_1:.2f} 倍（一起训练）；"
        "speculative {student_1:.2f} 倍（学生模型）、{layers_1:.2f} 倍（前几层）、{ngrams_1:.2f} 倍（n-grams）",
    ),
    "parallel-distilled": (
        "并行解码，base，Multi30k；用模型自己的译文训练",
        "批次 1，解码器用时与贪心搜索相比：blockwise {frozen_1:.2f} 倍（冻结）、{along_1:.2f} 倍（一起训练）；"
        "speculative {student_1:.2f} 倍（学生模型）、{layers_1:.2f} 倍（前几层）、{ngrams_1:.2f} 倍（n-grams）",
    ),
    "multi30k": (
        "Multi30k 英→德，`test_2016_flickr`，7.8M 参数",
        "{bleu:.2f} BLEU，{chrf:.2f} chrF，{ter:.2f} TER；训练 {minutes:.1f} 分钟",
    ),
    **{name: words for pair in _PAIRS.items() for name, words in _beside_marian(*pair).items()},
    "tinyshakespeare": ("tinyshakespeare，10.7M 参数", "每个字符 {loss:.3f} nat"),
    "minilm-sst2": ("在 SST-2 上微调 MiniLM，与 `transformers` 对照", "准确率" + _MINILM),
    "minilm-mrpc": ("在 MRPC 上微调 MiniLM，与 `transformers` 对照", "准确率" + _MINILM),
    "minilm-conll2003": ("在 CoNLL-2003 上微调 MiniLM，与 `transformers` 对照", "F1" + _MINILM),
    "minilm-squad": ("在 squad-dev-split（SQuAD）上微调 MiniLM，与 `transformers` 对照", "F1" + _MINILM),
    "minilm-dream": ("在 DREAM 上微调 MiniLM，与 `transformers` 对照", "准确率" + _MINILM),
    **{f"sst2-{name}": (f"SST-2，全部标签：{title}", figure) for name, (title, figure) in _SST2.items()},
    "quickstart": (
        "quickstart，自带语料",
        "完全匹配 {exact_match:.2f}%，代词 {pronouns:.2f}%；训练时 {tokens_per_second:,.0f} 词元/秒",
    ),
    "training-tiny": (
        "训练 Transformer tiny",
        "float32：{tokens_per_second:,.0f} 目标词元/秒，最快的其他库的 {times:.2f} 倍；"
        "bf16：{bf16:,.0f}，{bf16_times:.2f} 倍",
    ),
    "decoding-cpu": (
        "解码，base，与 float32 的 Hugging Face generate 相比的倍数",
        "批次 1：束宽 1 时 {batch_1_beam_1_float32:.2f} 倍，bf16 {batch_1_beam_1_bf16:.2f} 倍；束宽 4 时 "
        "{batch_1_beam_4_float32:.2f} 倍，bf16 {batch_1_beam_4_bf16:.2f} 倍。批次 64：束宽 1 时 "
        "{batch_64_beam_1_float32:.2f} 倍，bf16 {batch_64_beam_1_bf16:.2f} 倍；束宽 4 时 "
        "{batch_64_beam_4_float32:.2f} 倍，bf16 {batch_64_beam_4_bf16:.2f} 倍",
    ),
    "long-cpu": ("一层，512 到 8,192 个词元：用时随长度增长的指数", _LONG),
    "serving": (
        "用 quickstart 的模型提供服务",
        "一个客户端每秒 {texts_1:,.0f} 句，p50 {p50_ms:.0f}、p99 {p99_ms:.0f} 毫秒；32 个客户端 {texts_32:,.0f} 句，"
        "{times:.1f} 倍；负载为其 70% 时 p99 {loaded_p99_ms:.0f} 毫秒；每个请求 16 句：{texts_lists:,.0f} 句，"
        "是 `regard translate` 的 {of_file:.2f}",
    ),
    "batches": ("4,096 个词元的批次，Multi30k", "目标端 {target:.1%} 是真实词元，两端合计 {both:.1%}"),
    "preparing": ("预处理 2,000,000 个句对", "{seconds:.0f} 秒，内存最多 {peak_gib:.2f} GiB"),
    "vocabulary": ("英、德、中文的 unigram 词表，留出的文本", "词元数最多比 sentencepiece 自己的多 {more:.2%}"),
    "look": (
        "`regard look` 的页面，60 × 60 个词元，6 层，8 个头",
        "最慢的交互：中位数 {median_ms:.0f} 毫秒，p95 {p95_ms:.0f} 毫秒，其中页面计算 {busy_ms:.0f} 毫秒；"
        "页面 {page_mb:.1f} MB",
    ),
}

NOTES = {  # of the JSON files, with {} for a number
    "{} s for the whole command": "整条命令 {} 秒",
    "Hugging Face's speed is its host's: {} tokens/s here, {} in a run shortly before, where regard made {}, {} ×": (
        "Hugging Face 的速度取决于主机：这次 {} 词元/秒，不久前的一次是 {}，那次 regard 为 {}，{} 倍"
    ),
    "beside other programs on the same two cores, so times are longer": "同样的两个核上还有别的程序，所以用时偏长",
    "beside other trainings on the same GPU, so its time is a share": "同一 GPU 上还有别的训练，所以用时偏长",
    "steps timed apart, {} of them alone on the GPU": "每步用时另测，GPU 上没有别的程序，共 {} 步",
    "this commit or one soon after": "测的是这个提交，或紧随其后的一个",
}

ENGLISH, CHINESE = English(), Chinese()
