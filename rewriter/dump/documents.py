"""The types of the files of a dump beside its events: `manifest.json`, `run.json`,
`launches.json`, `names.json` and `ended.json`.

The schemas of the site are made of these types, as with `rows`. Every field
has a default that some version of the runtimes, or a test by hand, leaves out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from rewriter.core.exit_status import Scope
from rewriter.dump.rows import Count

# A value that a line of the wrapper passes: role, name and, if it is another one, the expression.
Label = Annotated[tuple[str, ...], Meta(min_length=2, max_length=3)]


class FingerprintName(Struct, frozen=True, kw_only=True):
    """What the fingerprints of a dump's rows are: two of other names or versions say nothing of
    each other."""

    name: str
    version: int


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`manifest.json`: what the first process to write the dump was. `allow` names values that may
    be NaN or infinite (`--allow`), `tf32` the products of float32 that CUDA may compute in TF32,
    `host` is the machine that it ran on, and `ranks` how many processes its job had.
    `inputs` and `seed` are of a wrapper that `rewriter run` ran by itself."""

    format: Literal["rewriter.dump"] | UnsetType = UNSET
    version: int | UnsetType = UNSET
    artifact: str | UnsetType = UNSET
    sha256: str | UnsetType = UNSET
    rewriter: str | UnsetType = UNSET
    probes: tuple[str, ...] | UnsetType = UNSET
    allow: tuple[str, ...] = ()
    torch: str | UnsetType = UNSET
    device: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    ranks: Count | UnsetType = UNSET
    tf32: tuple[str, ...] | UnsetType = UNSET
    command: str | UnsetType = UNSET
    fingerprint: FingerprintName | UnsetType = UNSET
    trigger: str = ""
    inputs: Literal["random", "file", "recorded"] | UnsetType = UNSET
    seed: int | UnsetType | None = UNSET


class LaunchRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A probed launch in `run.json`: what is known of it without running it.

    `repeats` says that it may run several times in a call. `buffers` has the memory behind the
    names that are views of it. `before` and `after` are what the line there hands over, unset where
    there is no such line; `reads` are the tensors that it is given and no line hands over. Of an
    operator that only the program knows, `schema` is its schema, and `parameters` are the positions
    or names in it that the values are.
    """

    launch: Count
    kernel: str = ""
    kind: str = ""
    scope: str = ""
    line: Count = 0
    source_nodes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    repeats: bool = False
    buffers: dict[str, str] = {}
    before: tuple[Label, ...] | UnsetType = UNSET
    after: tuple[Label, ...] | UnsetType = UNSET
    reads: tuple[Label, ...] = ()
    schema: str = ""
    parameters: dict[str, tuple[str, ...]] = {}


class RunLaunches(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`launches.json`: what all calls of a wrapper have in common, under a name in each. `outputs`
    are the variables that each scope returns."""

    format: Literal["rewriter.run-launches"] | UnsetType = UNSET
    version: int | UnsetType = UNSET
    outputs: dict[str, tuple[str, ...]] = {}
    launches: tuple[LaunchRow, ...] = ()


class RunFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`run.json`: one call of one wrapper.

    `sha256` is that of the wrapper without probes, `call` counts its calls in this process from 0,
    `started` is in seconds of the clock. `outputs` and `launches` are those of `launches.json`,
    which a dump of an early version has here.
    """

    format: Literal["rewriter.run"] | UnsetType = UNSET
    version: int | UnsetType = UNSET
    artifact: str = ""
    sha256: str = ""
    label: str = ""
    host: str = ""
    call: Count | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    thread: int | UnsetType = UNSET
    # No reader needs it: a value that is not a valid time is not shown.
    started: Annotated[Any, Meta(extra_json_schema={"type": "number"})] = UNSET
    outputs: dict[str, tuple[str, ...]] = {}
    launches: tuple[LaunchRow, ...] = ()


class WrapperNames(Struct, frozen=True, kw_only=True):
    """The model's names of one wrapper: source nodes of launches by their index, and of inputs the
    name, where it is first used, and what it is: a parameter, a buffer, a shard of a distributed
    tensor, or data; empty if that is not known.

    `lines` are those of the model that launches compute: file, number, function, text. `computes`
    are the nodes of Inductor's graph, `graph` says which part of the model the wrapper is,
    `direction` is that of its graph, `partner` is the wrapper of the other direction, and `saved`
    says of inputs of a backward which variable of its forward they are.
    """

    source_nodes: dict[str, tuple[str, ...]] = {}
    inputs: dict[str, tuple[str, ...]] = {}
    lines: dict[str, tuple[tuple[str, Count, str, str], ...]] = {}
    computes: dict[str, tuple[str, ...]] = {}
    graph: str = ""
    direction: str = ""
    partner: str = ""
    saved: dict[str, str] = {}


class NamesFile(Struct, frozen=True, kw_only=True):
    """`names.json`: by the hashes of the wrappers without probes."""

    format: Literal["rewriter.names"] = "rewriter.names"
    version: int = 1
    wrappers: dict[str, WrapperNames]


class ProcessFacts(Struct, frozen=True, kw_only=True):
    """A process of the program: its name there, and its rank by the files that it loaded.

    `pieces` are those of the model that a wrapper is for, by its hash without probes: the name, the
    sizes that it was compiled for, its layers, and what its inputs are in the model.
    """

    name: str = ""
    rank: str = ""
    pieces: dict[str, tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...]] = {}


class ProcessesFile(Struct, frozen=True, kw_only=True):
    """`processes.json`: by the ids of the processes."""

    format: Literal["rewriter.processes"] = "rewriter.processes"
    version: int = 1
    processes: dict[str, ProcessFacts]


class StoppedFile(Struct, frozen=True, kw_only=True):
    """`stopped.json`: the first NaN, at which the program was ended, as `--stop` asks for.

    `run` is the call of the dump, `launch` the launch that wrote it, `null` for the inputs of the
    call, and `arg` the value.
    """

    format: Literal["rewriter.stopped"] = "rewriter.stopped"
    version: int = 1
    run: str = ""
    pid: int = 0
    launch: Count | None = None
    kernel: str = ""
    arg: str = ""


class EndedStatus(Struct, frozen=True, kw_only=True):
    """How a program ended: see `rewriter.core.exit_status.ExitStatus`."""

    code: int | None = None
    signal: str = ""
    timed_out: bool = False
    interrupted: str = ""
    message: str = ""
    place: str = ""
    scope: Scope = ""
    check: str = ""
    stacks: tuple[str, ...] = ()


class EndedFile(Struct, frozen=True, kw_only=True):
    """`ended.json`: how the program ended that left the dump, and what runs it again."""

    format: Literal["rewriter.ended"] = "rewriter.ended"
    version: int = 1
    ended: EndedStatus
    blocking: bool = False
    again: str = ""
