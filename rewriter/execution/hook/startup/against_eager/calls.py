"""Where a compiled function is entered from plain Python: the call is made once more, and compared.

The plain call comes first, on copies; then everything is as it was, and the program gets what the
compiled call returns. A function that is compiled inside of another one is a part of that one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import io
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from . import record, values
from .copies import Copies
from .gradients import Backward
from .record import NotComparedError
from .state import Reached, is_equal
from .values import Problem, Rounded

_TRIALS = (3, 12)  # runs with small errors, if values differ; more if that explains it not
_KEPT = 8  # calls whose backward may still come
_WAIT = 60.0  # seconds that other threads wait for a comparison


@dataclass
class Function:
    """A compiled function, and how many of its calls were compared."""

    compiled: Callable[..., Any]
    plain: Callable[..., Any]
    calls: int = 0

    @property
    def name(self) -> str:
        owner = getattr(self.plain, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            return type(owner).__qualname__
        return str(getattr(self.plain, "__qualname__", type(self.plain).__qualname__))

    @property
    def code(self) -> types.CodeType | None:
        owner = getattr(self.plain, "__self__", None)
        place = owner.forward if isinstance(owner, torch.nn.Module) else self.plain
        try:
            inner = inspect.unwrap(place)
            found = getattr(inner, "__code__", getattr(type(inner).__call__, "__code__", None))
        except ValueError:
            return None  # it says that it wraps itself
        return found if isinstance(found, types.CodeType) else None

    def names(self, number: int) -> list[str]:
        """The names of so many arguments."""
        code = self.code
        known = list(code.co_varnames[: code.co_argcount]) if code is not None else []
        if not isinstance(self.plain, types.FunctionType):
            del known[:1]  # self
        return [known[at] if at < len(known) else f"args[{at}]" for at in range(number)]


@dataclass
class Call:
    """One call: what it can reach, and what plain Python made of it."""

    function: Function
    arguments: tuple[Any, ...]
    words: dict[str, Any]
    reached: Reached = field(default_factory=Reached)
    memory: dict[int, Any] = field(default_factory=dict)
    plain: dict[str, Any] = field(default_factory=dict)
    leaves: dict[str, torch.Tensor] = field(default_factory=dict)
    updated: int = 0

    def prepare(self) -> None:
        """Make the plain call. Raises `NotComparedError`."""
        _require_alone()
        self.reached.visit(self.function.plain, self.function.name)
        names = self.function.names(len(self.arguments))
        for name, value in [*zip(names, self.arguments, strict=True), *self.words.items()]:
            self.reached.visit(value, name)
        copies = Copies(self.reached)
        try:
            self.plain, draws = self._run(copies)
        except Exception as error:
            raise NotComparedError(f"as plain Python it raises {record.in_short(error)}") from error
        if draws:
            raise NotComparedError("it draws random numbers")
        self.leaves = copies.leaves
        self.memory = copies.memory()
        for held in self.reached.tensors.values():
            changed = not torch.equal(self.plain[held.name].detach(), held.tensor.detach())
            self.updated += changed

    def _run(self, copies: Copies) -> tuple[dict[str, Any], bool]:
        arguments = copies.of(self.arguments)
        words = {key: copies.of(value) for key, value in self.words.items()}

        def run() -> Any:
            # The function may leave another mode of gradients behind.
            mode = torch.set_grad_enabled(torch.is_grad_enabled())
            with mode, torch.compiler.set_stance("force_eager"):
                return self.function.compiled(*arguments, **words)

        result, contents, draws = copies.call(run)
        tensors = copies.tensors()
        return self._outcome(result, tensors, contents), draws

    def returned(self, result: Any) -> dict[str, Any]:
        """The tensors and numbers in a result. Objects that were there before are as they were."""
        return dict(values.leaves(result, "output", self.reached.known))

    def outcome(self, result: Any) -> dict[str, Any]:
        """What the compiled call returned and left."""
        tensors = {x.name: x.tensor for x in self.reached.tensors.values()}
        contents = [container.read() for container in self.reached.containers]
        return self._outcome(result, tensors, contents)

    def _outcome(
        self, result: Any, tensors: dict[str, torch.Tensor], contents: list[Any]
    ) -> dict[str, Any]:
        found = self.returned(result)
        known = {id(x) for x in tensors.values()}
        for container, held in zip(self.reached.containers, contents, strict=True):
            if isinstance(held, dict):
                new = ((f"{container.path}.{key}", value) for key, value in held.items())
                found |= {
                    name: value
                    for name, value in new
                    if isinstance(value, torch.Tensor) and id(value) not in known
                }
        for name, tensor in tensors.items():
            found[name] = tensor
            if tensor.is_leaf and tensor.grad is not None:
                found[f"{name}.grad"] = tensor.grad
        return found

    def trial(self, seed: int, backward: Backward | None) -> dict[str, Any]:
        """The plain call with small random errors; its gradients, if a backward is given."""
        mode = Rounded(seed)
        copies = Copies(self.reached, self.memory)
        with contextlib.redirect_stdout(io.StringIO()):
            for tensor in copies.tensors().values():
                mode.disturb(tensor)
            with mode:
                found, _ = self._run(copies)
                return found if backward is None else backward.plain(found, copies.leaves)


@dataclass
class Pending:
    """A call whose backward may still come."""

    call: Call
    backward: Backward
    about: dict[str, Any]


class Calls:
    """Compares the first calls of each compiled function."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._here = threading.local()  # `inside`: this thread is in a compiled function
        self._turn = threading.Condition()
        self._active, self._comparing = 0, False
        self._pending: list[Pending] = []
        atexit.register(self.flush)

    def watched(self, compiled: Any, module: Any) -> Any:
        """A compiled function whose first calls are compared."""
        here = self._here
        function = Function(compiled, _inner(compiled._torchdynamo_orig_callable))
        called = self._called

        @functools.wraps(compiled)
        def compiled_function(*args: Any, **kwargs: Any) -> Any:
            if getattr(here, "inside", False):
                return compiled(*args, **kwargs)
            here.inside = True
            try:
                return called(function, args, kwargs)
            finally:
                here.inside = False

        # Dynamo asks for the function inside by this, and is not to trace this one.
        compiled_function._torchdynamo_wrapper_id = id(compiled_function)  # type: ignore[attr-defined]
        module.skip_code(compiled_function.__code__)  # type: ignore[attr-defined]
        return compiled_function

    def _called(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch._guards.TracingContext.try_get() is not None or torch.compiler.is_compiling():
            return function.compiled(*args, **kwargs)
        with self._alone() as alone:
            function.calls += 1
            if function.calls > self._most:
                self.flush()
                return function.compiled(*args, **kwargs)
            return self._compared(Call(function, args, kwargs), alone)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other thread is in a compiled function; those that come wait."""
        with self._turn:
            self._turn.wait_for(lambda: not self._comparing, _WAIT)
            self._active += 1
            alone = self._active == 1
            self._comparing = self._comparing or alone
        try:
            yield alone
        finally:
            with self._turn:
                self._active -= 1
                if alone:
                    self._comparing = False
                self._turn.notify_all()

    def _compared(self, call: Call, alone: bool) -> Any:
        function = call.function
        code = function.code
        about: dict[str, Any] = {
            "function": function.name,
            "file": code.co_filename if code is not None else "",
            "line": code.co_firstlineno if code is not None else 0,
            "call": function.calls - 1,
        }
        reason = ""
        try:
            self.flush()
            if not alone:
                raise NotComparedError("other threads are in compiled functions")
            call.prepare()
        except Exception as error:  # the program goes on, whatever was met
            reason = record.reason(error)
        started = time.time()
        result = function.compiled(*call.arguments, **call.words)
        about |= {"started": started, "ended": time.time(), "thread": threading.get_ident()}
        if reason:
            record.write({**about, "part": "call", "reason": reason})
            return result
        with record.noted(about, "call"):
            self._judge(call, result, about)
        return result

    def _judge(self, call: Call, result: Any, about: dict[str, Any]) -> None:
        compiled = call.outcome(result)
        problems, names, notes = values.typed(compiled, call.plain)
        wrong = _explained(compiled, call.plain, names, lambda seed: call.trial(seed, None))
        outputs = sum(isinstance(x, torch.Tensor) for x in compiled.values())
        counts = {"outputs": outputs - len(call.reached.tensors), "updated": call.updated}
        row = {"part": "call", "problems": _rows([*problems, *wrong]), "notes": notes, **counts}
        record.write({**about, **row})
        returned = {
            name: x
            for name, x in call.returned(result).items()
            if isinstance(x, torch.Tensor) and x.requires_grad
        }
        if not returned or torch._dynamo.config.compiled_autograd:
            return
        backward = Backward()
        try:
            backward.watch(returned, call.reached)
        except NotComparedError as error:
            backward.close()
            record.write({**about, "part": "gradients", "reason": str(error)})
            return
        self._pending.append(Pending(call, backward, about))
        if len(self._pending) > _KEPT:
            self._pending.pop(0).backward.close()

    def flush(self) -> None:
        """Compare the gradients of the calls whose backward has run."""
        if not self._pending or torch._C._current_graph_task_id() != -1:
            return
        ran = [pending for pending in self._pending if pending.backward.given]
        self._pending = [pending for pending in self._pending if not pending.backward.given]
        for pending in ran:
            inside, self._here.inside = getattr(self._here, "inside", False), True
            try:
                with record.noted(pending.about, "gradients"):
                    self._gradients(pending)
            finally:
                self._here.inside = inside

    def _gradients(self, one: Pending) -> None:
        backward, call = one.backward, one.call
        backward.close()
        plain = backward.plain(call.plain, call.leaves)
        both = [name for name in plain if name in backward.left]
        problems, names, _ = values.typed(
            {name: backward.left[name] for name in both}, {name: plain[name] for name in both}
        )
        wrong = _explained(backward.left, plain, names, lambda seed: call.trial(seed, backward))
        when = {"started": backward.started, "ended": max(backward.ended, backward.started)}
        row = {"part": "gradients", "problems": _rows([*problems, *wrong]), "notes": []}
        record.write({**one.about, **when, **row, "outputs": len(both)})


def _inner(function: Any) -> Any:
    """What Dynamo put a frame around, such as a module of torch's own (`wrap_inline`)."""
    code = getattr(function, "__code__", None)
    if code is not None and code.co_filename.endswith("external_utils.py"):
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        inner = cells["fn"].cell_contents if "fn" in cells else function
        return inner.__call__ if isinstance(inner, torch.nn.Module) else inner
    return function


def _explained(
    compiled: dict[str, Any],
    plain: dict[str, Any],
    names: list[str],
    trial: Callable[[int], dict[str, Any]],
) -> list[Problem]:
    """The values that differ by more than rounding explains."""
    left = [name for name in names if not is_equal(compiled[name], plain[name])]
    left = [name for name in left if values.unequal(compiled[name], plain[name])[1]]
    tried: list[dict[str, Any]] = []
    runs: dict[str, list[Any]] = {}
    for number in _TRIALS if left else ():
        while len(tried) < number:
            try:
                tried.append(trial(len(tried)))
            except Exception as error:
                why = record.in_short(error)
                raise NotComparedError(
                    f"{left[0]} differs, and what rounding may do to it is not known: {why}"
                ) from error
        runs = {name: [outputs[name] for outputs in tried if name in outputs] for name in left}
        left = [x for x in left if values.unequal(compiled[x], plain[x], runs[x])[1]]
        if not left:
            return []
    wrong = {x: values.unequal(compiled[x], plain[x], runs[x])[0] for x in left}
    return [values.described(x, compiled[x], plain[x], wrong[x]) for x in left]


def _rows(problems: list[Problem]) -> list[dict[str, str]]:
    return [vars(problem) for problem in problems]


def _require_alone() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise NotComparedError("it is one of several processes, which have to call alike")
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise NotComparedError("a CUDA graph is being captured")
