"""regard comes first: it settles how OpenMP's threads wait before torch is imported.

Where there is no GPU, Triton interprets our kernels, and must know before anything imports it.
"""

import regard as regard  # noqa: I001
import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
