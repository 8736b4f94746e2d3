"""What a function can reach: tensors, and Python's containers, whose contents are restored after
the plain call."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import random
import sys
import types
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import torch

from .record import NotComparedError

_MOST = 200_000  # objects
_OURS = ("torch", "numpy", "triton", "builtins", "functorch")
_ATOMS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
# Objects of other libraries that hold what a program gives them in attributes.
_HOLDERS = ("SimpleNamespace", "Namespace", "UserDict", "UserList", "ChainMap", "_local")
# What other threads or processes may have taken before it could be restored.
_QUEUES = ("Queue", "LifoQueue", "PriorityQueue", "SimpleQueue", "JoinableQueue")
# Reads the state of a generator, and sets it.
_Access = tuple[Callable[[], Any], Callable[[Any], Any]]
# Whose methods are called, not those that a user's class has in their place.
_BASES = (OrderedDict, dict, deque, list, set, bytearray)


@dataclass
class Container:
    """A mutable object that holds others: how its contents are read and written."""

    kind: str  # list, dict, set, array, cell, names, slots or class
    held: Any
    names: tuple[str, ...] = ()
    path: str = ""
    before: Any = None

    def read(self) -> Any:
        held = self.held
        if self.kind == "cell":
            return [held.cell_contents] if _is_filled(held) else []
        if self.kind == "names":
            return {name: held[name] for name in self.names if name in held}
        if self.kind == "slots":
            return {name: getattr(held, name) for name in self.names if hasattr(held, name)}
        if self.kind == "class":
            return {name: value for name, value in vars(held).items() if not _is_special(name)}
        if self.kind == "array":
            return copy.copy(held)
        return {"dict": dict, "set": set, "list": list}[self.kind](_contents(held))

    def write(self, contents: Any) -> None:
        held = self.held
        if self.kind == "array":
            held[slice(None) if isinstance(held, array) else ...] = contents
            return
        present = self.read()
        if _is_same(present, contents):
            return
        if self.kind == "cell":
            held.cell_contents = contents[0]
        elif self.kind == "names":
            for name in present.keys() - contents.keys():
                del held[name]
            held.update(contents)
        elif self.kind in ("slots", "class"):
            # Not what a user's class makes of it.
            base: Any = type if self.kind == "class" else object
            for name in present.keys() - contents.keys():
                base.__delattr__(held, name)
            for name, value in contents.items():
                if name not in present or present[name] is not value:
                    base.__setattr__(held, name, value)
        else:
            builtin = _builtin(held)
            builtin.clear(held)
            if self.kind == "dict":  # `OrderedDict.update` calls the class's own `__setitem__`
                for key, value in contents.items():
                    builtin.__setitem__(held, key, value)
            else:
                (builtin.extend if self.kind == "list" else builtin.update)(held, contents)


class Held:
    """A tensor that a call can reach, and what it is before the call."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.tensor = name, tensor
        self.storage = tensor.untyped_storage()
        self.place = (tensor.storage_offset(), tensor.size(), tensor.stride())
        self.requires_grad, self.is_leaf = tensor.requires_grad, tensor.is_leaf
        self.grad = tensor.grad if tensor.is_leaf else None
        # Where gradients go: the node and its input, of a tensor that was computed.
        self.edge = (tensor.grad_fn, tensor.output_nr)


@dataclass
class Reached:
    """The tensors, containers and generators that a call can reach, as they are before it."""

    tensors: dict[int, Held] = field(default_factory=dict)
    containers: list[Container] = field(default_factory=list)
    generators: list[_Access] = field(default_factory=list)  # of torch, numpy and `random`
    _seen: dict[int, Any] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)

    @property
    def known(self) -> set[int]:
        """The ids of the objects that were there before the call."""
        return {*self._seen}

    def visit(self, value: Any, name: str) -> None:
        """Add what can be reached from a value. Raises `NotComparedError`."""
        waiting = [(value, name)]
        while waiting:
            value, name = waiting.pop()
            if isinstance(value, _ATOMS) or id(value) in self._seen:
                continue
            if len(self._seen) > _MOST:
                raise NotComparedError(f"it reaches more than {_MOST:,} objects")
            self._seen[id(value)] = value
            waiting += reversed(list(self._inside(value, name)))

    def _inside(self, value: Any, name: str) -> Iterator[tuple[Any, str]]:
        if isinstance(value, torch.Tensor):
            _require_plain(value, name)
            self.tensors[id(value)] = Held(self._unique(name), value)
            if value.is_leaf and value.grad is not None:
                yield value.grad, f"{name}.grad"
        elif isinstance(value, random.Random):
            self.generators.append((value.getstate, value.setstate))
        elif isinstance(value, torch.Generator) or _is_numpy(value, "random.RandomState"):
            self.generators.append((value.get_state, value.set_state))
        elif _is_numpy(value, "random.Generator"):
            bits = value.bit_generator
            self.generators.append((lambda: bits.state, functools.partial(setattr, bits, "state")))
        elif _is_numpy(value, "ndarray"):
            if value.flags.writeable:
                self._hold("array", value)
        elif isinstance(value, array):
            self._hold("array", value)
        elif isinstance(value, bytearray):
            self._hold("list", value)
        elif isinstance(value, dict):
            self._hold("dict", value, path=name)
            items = list(_contents(value))
            yield from ((key, name) for key, _ in items)
            yield from ((x, _part(name, key)) for key, x in items)
        elif isinstance(value, (list, deque)):
            self._hold("list", value, path=name)
            yield from ((x, f"{name}[{at}]") for at, x in enumerate(_contents(value)))
        elif isinstance(value, set):
            self._hold("set", value, path=name)
            yield from ((x, name) for x in _contents(value))
        elif isinstance(value, (tuple, frozenset)):
            yield from ((x, f"{name}[{at}]") for at, x in enumerate(value))
        elif isinstance(value, Iterator) and not is_users(type(value).__module__):
            # Nothing is taken from what is only written to, such as the standard error of a bar.
            if isinstance(value, io.IOBase) and not value.closed and not value.readable():
                return
            raise NotComparedError(f"{name} is an iterator, which can be gone through only once")
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value, name)
        elif isinstance(value, types.MethodType):
            yield from ((value.__self__, "self"), (value.__func__, name))
        elif isinstance(value, functools.partial):
            yield from ((value.func, name), (value.args, name), (value.keywords, name))
        elif isinstance(value, functools._lru_cache_wrapper):
            yield value.__wrapped__, name
        elif isinstance(value, type):
            yield from self._of_class(value, name) if is_users(value.__module__) else ()
        elif not isinstance(value, types.ModuleType):
            yield from self._of_object(value, name)

    def _of_object(self, value: Any, name: str) -> Iterator[tuple[Any, str]]:
        kind = type(value)
        if (
            kind.__name__ in _QUEUES
            and kind.__module__.partition(".")[0] in sys.stdlib_module_names
        ):
            raise NotComparedError(f"{name} is a queue, from which other threads may take")
        is_known = isinstance(value, (torch.nn.Module, torch.optim.Optimizer)) or (
            kind.__name__ in _HOLDERS and kind.__module__ in sys.stdlib_module_names
        )
        if not is_known and not is_users(kind.__module__):
            return
        if kind.__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
            raise NotComparedError(f"{name} is a {kind.__name__}, which talks to other processes")
        slots = tuple(
            x
            for base in kind.__mro__
            for x in _names(base.__dict__.get("__slots__", ()))
            if x not in ("__dict__", "__weakref__")
        )
        if slots:
            self._hold("slots", value, slots, name)
            yield from ((getattr(value, x), f"{name}.{x}") for x in slots if hasattr(value, x))
        if hasattr(value, "__dict__"):
            held = value.__dict__
            self._seen[id(held)] = held
            self._hold("dict", held, path=name)
            for key, item in held.items():
                inner = name if key in ("_parameters", "_buffers", "_modules") else f"{name}.{key}"
                yield item, inner
        for base in kind.__mro__:
            if is_users(base.__module__):
                yield base, name

    def _of_function(self, function: Any, name: str) -> Iterator[tuple[Any, str]]:
        inner = getattr(function, "_torchdynamo_orig_callable", None)
        if inner is not None:
            yield inner, name
            return
        names = _globals_of(function.__code__)
        if names and is_users(function.__globals__.get("__name__")):
            place = function.__globals__
            there = tuple(x for x in names if x in place)
            self._hold("names", place, names)
            yield from ((place[x], x) for x in there)
            for module in (place[x] for x in there):
                if isinstance(module, types.ModuleType) and is_users(module.__name__):
                    inside = tuple(x for x in names if x in vars(module))
                    self._hold("names", vars(module), inside)
                    yield from ((vars(module)[x], f"{module.__name__}.{x}") for x in inside)
        for cell, of in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
            if _is_filled(cell):
                self._hold("cell", cell)
                yield cell.cell_contents, of
        yield function.__defaults__, name
        yield function.__kwdefaults__, name

    def _of_class(self, kind: type, name: str) -> Iterator[tuple[Any, str]]:
        self._hold("class", kind)
        for key, value in vars(kind).items():
            if isinstance(value, (staticmethod, classmethod)):
                yield value.__func__, name
            elif isinstance(value, property):
                yield value.fget, name
            elif isinstance(value, types.FunctionType) or not _is_special(key):
                yield value, _part(kind.__name__, key)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[Callable[[], bool]]:
        """Give containers their contents back after this block, and random numbers their state.
        Yields what tells whether numbers were drawn in it."""
        current = [container.read() for container in self.containers]
        generators = [(get, put, get()) for get, put in (*_generators(), *self.generators)]

        def draws() -> bool:
            return not all(is_equal(get(), state) for get, _, state in generators)

        try:
            yield draws
        finally:
            for container, contents in zip(self.containers, current, strict=True):
                container.write(contents)
            for _, put, state in generators if draws() else ():
                put(state)

    def _unique(self, name: str) -> str:
        taken = self._names.get(name, 0) + 1
        self._names[name] = taken
        return name if taken == 1 else f"{name} ({taken})"

    def _hold(self, kind: str, held: Any, names: tuple[str, ...] = (), path: str = "") -> None:
        one = Container(kind, held, names, path)
        one.before = one.read()
        self.containers.append(one)


def _builtin(held: Any) -> Any:
    return next(base for base in _BASES if isinstance(held, base))


def _contents(held: Any) -> Iterator[Any]:
    """The items of a dictionary, or what else is in a container."""
    builtin = _builtin(held)
    return iter(builtin.items(held) if isinstance(held, dict) else builtin.__iter__(held))


def _require_plain(tensor: torch.Tensor, name: str) -> None:
    kind = type(tensor)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        raise NotComparedError(f"{name} is a {kind.__name__}, of which no copy is made")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise NotComparedError(f"{name} is no tensor with plain memory")
    if tensor.is_conj() or tensor.is_neg():
        raise NotComparedError(f"{name} is conjugated or negated when it is read")
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise NotComparedError(f"{name} belongs to a transform such as vmap")


def is_users(module: str | None) -> bool:
    """Whether a module is the program's, or of a library that is neither torch nor Python."""
    top = (module or "").partition(".")[0]
    return top == "__main__" or (top not in _OURS and top not in sys.stdlib_module_names)


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_special(name: str) -> bool:
    return name.startswith("__")


def _is_numpy(value: Any, *kinds: str) -> bool:
    """Whether a value is an object of numpy, which is not imported for this."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, tuple(attrgetter(x)(numpy) for x in kinds))


def _globals_of(code: types.CodeType) -> tuple[str, ...]:
    """The names in a function and in those that are defined in it."""
    inner = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return tuple(dict.fromkeys([*code.co_names, *(x for body in inner for x in _globals_of(body))]))


def _part(name: str, key: Any) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{name}.{key}"
    return f"{name}[{key!r}]" if isinstance(key, (str, int)) else name


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_same(one: Any, other: Any) -> bool:
    """Whether two copies of contents hold the same objects, in the same order."""
    sides = (chain(*x.items()) if isinstance(x, dict) else x for x in (one, other))
    first, second = (list(map(id, side)) for side in sides)
    return first == second


def _generators() -> Iterator[_Access]:
    """Those that a program has without naming them."""
    yield torch.get_rng_state, torch.set_rng_state
    yield random.getstate, random.setstate
    if torch.cuda.is_initialized():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
    if (numpy := sys.modules.get("numpy.random")) is not None:
        yield numpy.get_state, numpy.set_state


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict):
        return is_equal(list(one.values()), list(other.values()))
    return bool((one == other).all()) if hasattr(one, "all") else bool(one == other)
