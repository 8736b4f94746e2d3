"""`rewriter.probing`: probes around what `torch.compile` made in this process, for one block."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from rewriter.core.types import ArgsMode, When
from rewriter.execution.loaded.block import Block
from rewriter.execution.loaded.exchange import Exchange
from rewriter.execution.loaded.find import entry_of, loaded_entries
from rewriter.execution.loaded.recording import ProbedCalls
from rewriter.execution.loaded.temporary import TemporaryDump
from rewriter.instrumentation.select import select

_LOADER = "load_by_key_path"


@contextmanager
def probing(
    probe: str | Iterable[str] = "print",
    *,
    kernels: str | Iterable[str] | None = None,
    launches: Iterable[int | range] | None = None,
    when: When | None = None,
    values: bool = False,
    roles: str | Iterable[str] | None = None,
    tensors: str | Iterable[str] | None = None,
    calls: str = "",
    args: ArgsMode | None = None,
    max_bytes: str = "",
    allow: str | Iterable[str] = (),
    directory: str | Path | None = None,
    echo: bool = False,
) -> Iterator[ProbedCalls]:
    """Probe every call of what `torch.compile` made in this process, while the block runs.

        with rewriter.probing("print", kernels="triton_*") as dump:
            model(x)
        print(dump)

    It does not matter when a model was compiled, and no kernel is compiled again. Calls in all
    threads are probed, those of models that are compiled meanwhile, too. Blocks may be nested: each
    has its own probes and its own dump. Afterwards everything is as before: the functions have the
    very code that they had.

    The options are those of `rewriter.select`; `calls` counts from the start of the block. The dump
    goes to `directory`, or to a temporary one that is removed with the object. With `echo`, what
    probes print goes to standard output as well.

    What was captured into a CUDA graph before is replayed without a call of the wrapper: it is not
    probed. Nor is what is captured within the block.
    """
    selection = select(
        probe,
        kernels=kernels,
        launches=launches,
        when=when,
        values=values,
        roles=roles,
        tensors=tensors,
        calls=calls,
        args=args,
        max_bytes=max_bytes,
        allow=allow,
    )
    temporary = None
    if directory is None:
        temporary = TemporaryDump()
        directory = temporary.path
    block = Block(selection, Path(directory).absolute(), echo)
    dump = ProbedCalls(block, temporary)
    try:
        _PROCESS.add(block)
        yield dump
    finally:
        _PROCESS.remove(block)


class _Process:
    """The wrappers of this process as long as there are blocks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._blocks: tuple[Block, ...] = ()
        self._exchanges: dict[FunctionType, Exchange] = {}
        self._loader: Any = None

    def add(self, block: Block) -> None:
        """Begin a block."""
        with self._lock:
            self._blocks += (block,)
            self._listen()
            for entry in loaded_entries():
                self._exchanges.setdefault(entry, Exchange(entry))
            self._set()

    def remove(self, block: Block) -> None:
        """End a block."""
        with self._lock:
            self._blocks = tuple(running for running in self._blocks if running is not block)
            try:
                self._set()
            finally:
                if not self._blocks:
                    self._exchanges.clear()
                    self._leave()
        if not block.calls and _may_replay():
            block.note(
                "no wrapper was called; what was captured into a CUDA graph before the block is "
                "replayed without a call"
            )

    def _set(self) -> None:
        with ExitStack() as setting:  # each, also if another one raises
            for exchange in self._exchanges.values():
                setting.callback(exchange.set_blocks, self._blocks)

    def _listen(self) -> None:
        """Also probe wrappers that are loaded from now on."""
        if self._loader is not None:
            return
        from torch._inductor.codecache import PyCodeCache

        self._loader = PyCodeCache.__dict__[_LOADER]
        load = getattr(PyCodeCache, _LOADER)

        def load_probed(cls: type, *args: Any, **kwargs: Any) -> Any:
            module = load(*args, **kwargs)
            self._loaded(vars(module))
            return module

        setattr(PyCodeCache, _LOADER, classmethod(load_probed))

    def _leave(self) -> None:
        if self._loader is None:
            return
        from torch._inductor.codecache import PyCodeCache

        setattr(PyCodeCache, _LOADER, self._loader)
        self._loader = None

    def _loaded(self, namespace: dict[str, Any]) -> None:
        entry = entry_of(namespace)
        if entry is None:
            return
        with self._lock:
            if self._blocks and entry not in self._exchanges:
                exchange = self._exchanges[entry] = Exchange(entry)
                exchange.set_blocks(self._blocks)


def _may_replay() -> bool:
    """Whether this process may have CUDA graphs of Inductor's."""
    torch = sys.modules.get("torch")
    is_used = torch is not None and torch.cuda.is_initialized()
    return is_used and "torch._inductor.cudagraph_trees" in sys.modules


_PROCESS = _Process()
