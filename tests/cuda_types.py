"""CUDA's rules for types, on a CPU: what autocast casts there, and products that refuse operands of two types.

Autocast has a list of operations for each kind of device, and kernels differ in which mixtures they take: a model that
runs under autocast on a CPU may raise on a GPU. Within `cuda_types()` the list of CUDA takes the place of the CPU's in
torch's dispatcher, so that products inside torch's own C++ follow it too. Which operations are on it is asked of the
dispatcher itself (`test_cuda_types.py`); what is done with them is written here. It does not know streams, graphs,
memory or speed: tests/gpu has those.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops", and ATen/autocast_mode.h
LOWER = """
_convolution _convolution.deprecated _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell
addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose einsum gru_cell linalg_multi_dot
linalg_vecdot linear lstm_cell matmul mm mv prelu rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention
""".split()
FLOAT32 = """
_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
_upsample_nearest_exact3d acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity
cumprod cumsum dist erfinv exp expm1 frobenius_norm.dim group_norm hinge_embedding_loss huber_loss kl_div l1_loss
layer_norm linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm log log10 log1p log2 log_softmax.int
logsumexp margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss native_layer_norm nll_loss nll_loss2d
norm.Scalar norm.ScalarOpt_dim nuclear_norm nuclear_norm.dim pdist poisson_nll_loss pow.Scalar pow.Tensor_Scalar
pow.Tensor_Tensor prod prod.dim_int reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmax.int
softplus sum sum.dim_IntList tan triplet_margin_loss upsample_bicubic2d upsample_bilinear2d upsample_linear1d
upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
""".split()
WIDEST = "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot".split()
REFUSED = ["binary_cross_entropy"]
OF_A_CPU = ["_addmm_activation", "cat", "cross_entropy_loss", "index_copy", "stack"]  # cast there, not on a GPU
# Kernels whose operands must be of one type on a GPU; some of a CPU's are less strict.
ONE_TYPE = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_addmm_activation", "convolution",
    "native_layer_norm", "_fused_rms_norm", "_scaled_dot_product_flash_attention_for_cpu",
}  # fmt: skip
READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive"}  # the host waits for it
FROM_HOST = {"lift_fresh", "randint", "randperm"}  # numbers made on the host, which a graph would repeat for ever
PRODUCTS_TO_FLOAT32 = {"mm.dtype": torch.mm, "addmm.dtype": torch.addmm, "bmm.dtype": torch.bmm}


@contextlib.contextmanager
def cuda_types() -> Iterator[None]:
    """CUDA's rules for what runs on the CPU within."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")  # that kernels are replaced
        library = torch.library.Library("aten", "IMPL")
        stack.callback(library._destroy)
        for names, rule in ((LOWER, _lower), (FLOAT32, _float32), (WIDEST, _widest), (REFUSED, None)):
            for name in names:
                library.impl(name, _casting(name, rule), "AutocastCPU")
        for name in OF_A_CPU:
            library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
        stack.enter_context(products_to_float32())
        stack.enter_context(_OneType())
        yield


@contextlib.contextmanager
def products_to_float32() -> Iterator[None]:
    """Products of half precision whose result is float32, which a GPU alone has."""
    library = torch.library.Library("aten", "IMPL")
    for name, product in PRODUCTS_TO_FLOAT32.items():
        library.impl(name, _wide(product), "CPU")
    try:
        yield
    finally:
        library._destroy()


def _lower(tensors: list[Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype("cpu")


def _float32(tensors: list[Tensor]) -> torch.dtype:
    return torch.float32


def _widest(tensors: list[Tensor]) -> torch.dtype:
    return torch.float32 if any(x.dtype == torch.float32 for x in tensors) else torch.get_autocast_dtype("cpu")


def _casting(name: str, rule: Callable[[list[Tensor]], torch.dtype] | None) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def call(*arguments: Any, **options: Any) -> Any:
        if rule is None:
            raise RuntimeError(f"{name} is unsafe to autocast")
        floats = [x for x in tree_leaves((arguments, options)) if _casts(x)]
        wanted = rule(floats) if floats else torch.float32
        arguments, options = tree_map(lambda x: x.to(wanted) if _casts(x) else x, (arguments, options))
        below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        with torch._C._ExcludeDispatchKeyGuard(below):
            return operation(*arguments, **options)

    return call


def _casts(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64


def _wide(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*arguments: Any, **options: Any) -> Tensor:
        *tensors, dtype = arguments
        kinds = {x.dtype for x in tensors}
        if len(kinds) > 1 or dtype != torch.float32:
            raise RuntimeError(f"a product of {kinds} cannot be {dtype}")
        return product(*(x.float() for x in tensors), **options)

    return call


class _OneType(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        if func.namespace == "mkldnn":  # an LSTM of a CPU is one of its own, as cuDNN's is there
            raise RuntimeError(f"{func} runs on a CPU alone")
        if name in ONE_TYPE:
            kinds = {str(x.dtype) for x in args if isinstance(x, Tensor) and x.is_floating_point()}
            if len(kinds) > 1:
                raise RuntimeError(f"{func}: operands must have the same dtype, but are {' and '.join(sorted(kinds))}")
        return func(*args, **(kwargs or {}))


class NoHostReads(TorchDispatchMode):
    """What a CUDA graph cannot have: operations whose result the host must see to go on, or that begin on the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        indices = args[1] if name in ("index", "index_put", "index_put_", "_index_put_impl_") else []
        by_mask = any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)
        if name in READS | FROM_HOST or by_mask:
            raise RuntimeError(f"{func}: operation not permitted when stream is capturing")
        return func(*args, **(kwargs or {}))
