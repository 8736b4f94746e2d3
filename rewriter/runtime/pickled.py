"""Makes the pickle that `torch.save` writes for a dense CPU tensor, without having the tensor.

The pickle holds no elements: these are another entry of the file.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch._utils import _rebuild_tensor_v2, _rebuild_tensor_v3


def pickled_tensor(dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int]) -> bytes:
    """The pickle of a tensor that fills its storage.

    As in `torch/_tensor.py` (`_reduce_ex_internal`) and `torch/serialization.py`: dtypes with a
    typed storage class are pickled with that, others with an untyped storage and the dtype.
    """
    numel = torch.Size(shape).numel()
    # The legacy storage class in torch: making a `TypedStorage` would warn of deprecation.
    name = torch.storage._dtype_to_storage_type_map().get(dtype)
    if name is not None and dtype not in _untyped():
        storage = _Storage(getattr(torch, name), numel)
        rebuild: tuple[Any, tuple[Any, ...]] = (_rebuild_tensor_v2, ())
    else:
        storage = _Storage(torch.UntypedStorage, numel * dtype.itemsize)
        rebuild = (_rebuild_tensor_v3, (dtype,))
    function, more = rebuild
    arguments = (storage, 0, tuple(shape), tuple(stride), False, OrderedDict(), *more)
    file = io.BytesIO()
    _Pickler(file, protocol=2).dump(_Call(function, arguments))
    return file.getvalue()


def _untyped() -> set[torch.dtype]:
    """The dtypes that the installed torch pickles with an untyped storage."""
    known = getattr(torch.storage, "_new_dtypes", None)
    return set(known()) if known is not None else set()


class _Storage:
    """Stands for a storage of `numel` elements in the pickle."""

    def __init__(self, kind: type, numel: int) -> None:
        self.reference = ("storage", kind, "0", "cpu", numel)


class _Call:
    """Pickled as a call of `function` with `arguments`."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self._parts = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._parts


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: object) -> object:
        return value.reference if isinstance(value, _Storage) else None
