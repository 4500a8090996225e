"""A `torch.nn.ModuleList` whose modules have a type, for type checkers."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from torch import nn

M = TypeVar("M", bound=nn.Module)


class ModuleList(nn.ModuleList, Generic[M]):
    if TYPE_CHECKING:

        def __init__(self, modules: Iterable[M]) -> None: ...

        def __iter__(self) -> Iterator[M]: ...

        @overload
        def __getitem__(self, index: slice) -> "ModuleList[M]": ...

        @overload
        def __getitem__(self, index: int) -> M: ...

        def __getitem__(self, index: int | slice) -> "M | ModuleList[M]": ...
