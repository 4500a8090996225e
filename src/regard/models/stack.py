"""Stacks of attention layers: the config that the Transformer, the language model and BERT share.

It knows no batch and no vocabulary.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from torch import Tensor, nn

from regard.config import at_least, below_one, field_values, option, parse_config, to_node
from regard.errors import RegardError
from regard.models.contract import ModelConfig
from regard.nn.attention import AttentionConfig
from regard.nn.compress import CompressConfig, Compressor
from regard.nn.dropout import Dropout
from regard.nn.embedding import ProposalHeads
from regard.nn.feed_forward import Activation, FeedForward, feed_forward
from regard.nn.layers import RESIDUALS, DecoderLayer, EncoderLayer, ModuleList
from regard.nn.layout import Layout
from regard.nn.multi_head import MultiHeadAttention, build_attention
from regard.nn.norm import BatchNorm, NoNorm, NormKind, build_norm
from regard.nn.pattern import Pattern
from regard.nn.position import Position, PositionConfig
from regard.nn.record import ROLES, AttentionRecorder
from regard.nn.recurrence import DecoderSelfConfig, Recurrence
from regard.nn.sizes import Sizes

C = TypeVar("C", bound="StackConfig")
M = TypeVar("M", bound=nn.Module)
Positions = PositionConfig | list[PositionConfig]


@dataclass(frozen=True)
class StackConfig(ModelConfig):
    """The config of a stack of layers; each model has its own defaults."""

    preset: str | None = option(None, "named sizes; any key given beside it wins")
    layers: int = option(6, "how many of them")
    size: int = option(512, "D, the width of the model")
    inner: int = option(2048, "width inside the feed-forward network")
    heads: int = option(8, "H; each has size/heads dimensions")
    dropout: float = option(0.1, "on every sub-layer's output and on the embeddings")
    inner_dropout: float = option(
        0.0, "inside sub-layers: on queries, keys and values, and between the products of the feed-forward network"
    )
    residual: Literal["post_norm", "pre_norm", "none"] = option(
        "post_norm", "the paper's order, norm first, or no residual at all"
    )
    norm: NormKind = option("layer", "LayerNorm, or RMSNorm, BatchNorm or nothing in its place")
    norm_gain: bool = option(True, "a learned factor for each feature, after layer and rms")
    norm_bias: bool = option(True, "a learned addend for each feature, after layer; rms has none")
    epsilon: float = option(1e-5, "ε of the norm, added to the variance")
    feed_forward: Literal["dense", "none"] = option("dense", "the network after attention, or attention alone")
    activation: Activation = option("relu", "in the feed-forward network; swiglu adds a gate")

    def __post_init__(self) -> None:
        at_least(self, 1, "layers", "size", "inner", "heads")
        below_one(self, "dropout", "inner_dropout")
        if self.epsilon <= 0:
            raise ValueError(f"epsilon must be above 0, not {self.epsilon}")
        for name, kinds in (("norm_gain", ("layer", "rms")), ("norm_bias", ("layer",))):
            if not field_values(self)[name] and self.norm not in kinds:
                raise ValueError(f"{name}: false belongs to norm: {' or '.join(kinds)}, not {self.norm}")

    # --- the parts ---------------------------------------------------------------------------------------------

    @property
    def rolls_back(self) -> bool:
        return True

    def build_dropout(self, rate: float) -> Dropout:
        """Dropout between and inside sub-layers."""
        return Dropout(rate)

    def build_attentions(
        self, choices: AttentionConfig, layers: int, positions: ModuleList[Position], base_pattern: Pattern
    ) -> list[MultiHeadAttention]:
        """One a layer; `base_pattern` masks in addition to the chosen one."""
        shared: dict[CompressConfig, Compressor] = {}  # a compressor that layers share is built once
        attentions = []
        for n in range(layers):
            compress = choices.layer(n).compress
            position = positions[n % len(positions)]
            layer = build_attention(choices, self.size, self.heads, position, base_pattern, n, shared.get(compress))
            layer.inner_dropout = self.build_dropout(self.inner_dropout)
            if compress.shared_by_layers:
                shared[compress] = layer.compress
            attentions.append(layer)
        return attentions

    def build_decoder_self(
        self,
        chosen: DecoderSelfConfig,
        choices: AttentionConfig,
        layers: int,
        positions: ModuleList[Position],
        base_pattern: Pattern,
    ) -> Sequence[MultiHeadAttention | Recurrence]:
        """What each layer of a decoder does with its own past: attention by these choices, or what was chosen."""
        built = [chosen.build(self.size, self.inner, self.build_dropout(self.inner_dropout)) for _ in range(layers)]
        recurrent = [layer for layer in built if layer is not None]
        return recurrent or self.build_attentions(choices, layers, positions, base_pattern)

    def build_feed_forward(self) -> FeedForward | None:
        if self.feed_forward == "none":
            return None
        return feed_forward(self.size, self.inner, self.activation, self.build_dropout(self.inner_dropout))

    def build_residuals(self, count: int) -> list[nn.Module]:
        """For `count` sub-layers, of which the feed-forward network is one."""
        count -= self.feed_forward == "none"
        return [RESIDUALS[self.residual](self.build_norm(), self.build_dropout(self.dropout)) for _ in range(count)]

    def build_norm(self) -> nn.Module:
        return build_norm(self.norm, self.size, self.epsilon, self.norm_gain, self.norm_bias)

    def build_final_norm(self) -> nn.Module:
        """The norm at the end of the stack, where the residuals need one."""
        return self.build_norm() if RESIDUALS[self.residual].needs_final_norm else NoNorm()


# --- proposals -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProposalsConfig:
    """Heads that score the tokens after the next one too, for blockwise decoding (Stern 2018)."""

    heads: int = option(4, "k: how many tokens are predicted at each place, the next one among them")
    loss: Literal["random", "mean"] = option("random", "of one head, drawn at each batch as in the paper, or of all")
    frozen: bool = option(False, "only the heads learn, and all else stays as it is")

    def __post_init__(self) -> None:
        if not 2 <= self.heads <= 64:
            raise ValueError(f"heads must be from 2 to 64, not {self.heads}")

    @classmethod
    def shorthand(cls, value: object) -> dict[str, object]:
        return {"heads": value}

    def build(self, size: int, inner: int) -> ProposalHeads:
        return ProposalHeads(self.heads, size, inner, self.loss == "mean", self.frozen)


def freeze_but_proposals(model: nn.Module, heads: ProposalHeads | None) -> None:
    """Where only the heads learn, the rest of the model has no gradient."""
    if heads is not None and heads.frozen:
        model.requires_grad_(False)
        heads.requires_grad_(True)


def config_from_preset(cls: type[C], preset: str, keys: Mapping[str, object]) -> C:
    """The config of a model by the name of its sizes; `keys` are a recipe's, and win: position="rotary"."""
    return parse_config(cls, to_node({"preset": preset, **keys}, cls.__name__))


# --- positions -----------------------------------------------------------------------------------------------------


def as_list(chosen: Positions) -> list[PositionConfig]:
    return chosen if isinstance(chosen, list) else [chosen]


def check_positions(chosen: Positions, role: str, sizes: Sizes) -> None:
    """Raise ValueError where a position cannot serve this role, or not with these sizes."""
    for position in as_list(chosen):
        if role not in position.roles:
            raise ValueError(f"{position.kind} positions belong to the {position.roles[0]}, not the {role}")
        position.check(sizes)


def check_decoder_self(chosen: DecoderSelfConfig, choices: AttentionConfig, positions: Positions, key: str) -> None:
    """Raise ValueError where `attention`, named `key`, or positions say what a layer without attention cannot have."""
    if chosen.build(1, 1, nn.Identity()) is None:
        return
    usual = AttentionConfig()
    for name in ("score", "pattern", "normalise", "compress", *choices.projection_keys()):
        if vars(choices)[name] != vars(usual)[name]:
            roles = " and ".join(key.replace("decoder", role) for role in ("encoder", "cross"))
            instead = f"write it for {roles} alone" if "decoder" in key else "leave it out"
            raise ValueError(f"decoder_self: {chosen.kind} has no attention for {key}.{name} to change; {instead}")
    for position in as_list(positions):
        if not position.embeds:
            raise ValueError(
                f"decoder_self: {chosen.kind} has no attention for {position.kind} positions to act in; give the "
                "decoder none, sinusoidal or learned ones"
            )


def check_recorded(record: AttentionRecorder | None, layers: Iterable[EncoderLayer | DecoderLayer]) -> None:
    """Raise RegardError where weights of self-attention are requested by name, and a layer of the decoder has none."""
    if record is None or "decoder" not in record.roles or record.roles == ROLES:
        return
    for layer in layers:
        if not isinstance(layer.attention, MultiHeadAttention):
            raise RegardError(
                f"the decoder has {type(layer.attention).__name__} in the place of self-attention, which has no "
                "weights to record; leave out decoder"
            )


def check_max_length(
    chosen: Positions, key: str, longest: int, cause: str = "data.filters.max_length and the end"
) -> None:
    """Raise ValueError where a position ends before the longest input does."""
    for position in as_list(chosen):
        if position.max_length is not None and position.max_length < longest:
            raise ValueError(
                f"{key}.length is {position.max_length}, shorter than the longest input of {longest} tokens "
                f"({cause}); raise it, or lower the other"
            )


def build_positions(chosen: Positions, sizes: Sizes, role: str, layers: int) -> ModuleList[Position]:
    """The positions that layers take in turn: as many as are chosen, or one a layer where a choice is its layer's."""
    configs = as_list(chosen)
    built = [config.build(sizes, role) for config in configs]
    if any(config.per_layer for config in configs):
        for n in range(len(configs), layers):
            config = configs[n % len(configs)]
            built.append(config.build(sizes, role) if config.per_layer else built[n % len(configs)])
    return ModuleList(built)


def embed_positions(positions: ModuleList[Position], x: Tensor, layout: Layout) -> Tensor:
    for position in dict.fromkeys(positions):  # layers may share one, which joins the vectors once
        x = x if position.joins_layers else position.embed(x, layout)
    return x


def max_length(positions: ModuleList[Position]) -> int | None:
    """How many positions they can tell apart, where there is a limit."""
    return min((position.longest for position in positions if position.longest is not None), default=None)


# --- parts of a model ----------------------------------------------------------------------------------------------


def with_layers(model: M, name: str, count: int) -> M:
    """A model of the first layers of a stack of `model`; all modules are the same ones."""
    depth = len(list(model.get_submodule(name).children()))
    if not 0 < count < depth:
        raise RegardError(
            f"the draft layers({count}) needs a model of more layers than that, and this one has {depth}; take fewer"
        )
    part = copy.copy(model)
    part._modules = {**model._modules, name: ModuleList(list(model.get_submodule(name).children())[:count])}
    return part


# --- captured steps ------------------------------------------------------------------------------------------------


def capturable(model: nn.Module, layers: Iterable[EncoderLayer]) -> bool:
    """Whether padded batches of one shape take the same operations, as a CUDA graph needs.

    BatchNorm counts real positions, and random blocks follow each row's length: the host reads both.
    """
    attentions = [layer.attention for layer in layers if isinstance(layer.attention, MultiHeadAttention)]
    patterns = [part for attention in attentions for part in attention.pattern.parts()]
    return not any(part.by_head for part in patterns) and not any(isinstance(m, BatchNorm) for m in model.modules())
