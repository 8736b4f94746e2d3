"""Finds launches that are given a copy of a tensor to write to: what they write there is lost.

Inductor generates no such launch: in a wrapper that was edited, `kernel(buf3, buf5.clone())` leaves
`buf5` as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rewriter.artifact.kernel_sources import kernel_sources
from rewriter.artifact.types import Wrapper
from rewriter.core.errors import RewriterError
from rewriter.locate import kernels
from rewriter.locate.kernels import Parameter
from rewriter.locate.types import Argument, Launch

_NAME = re.compile(r"[A-Za-z_]\w*")


def given_copy(
    wrapper: Wrapper, name: str, extra: Mapping[str, bytes] | None = None
) -> tuple[Launch, Argument] | None:
    """The last launch that may write to a copy of a tensor, and its argument that is the copy.
    `extra` is as in `kernel_sources`."""
    found = [
        (launch, position, argument)
        for launch in wrapper.located.launches
        for position, argument in enumerate(launch.args)
        if ".clone(" in argument.expr and name in _NAME.findall(argument.expr)
    ]
    try:
        sources = kernel_sources(wrapper, extra) if found else {}
    except RewriterError:
        sources = {}
    for launch, position, argument in reversed(found):
        roles = [x[position].role for x in signatures(sources.get(launch.kernel, ""), position)]
        if "in" not in roles:
            return launch, argument
    return None


def signatures(text: str, position: int) -> Iterator[tuple[Parameter, ...]]:
    """The parameters of a kernel, as far as its text shows them, if it has one there."""
    from rewriter.locate.python.kernel_functions import triton

    for parameters in (triton(text), kernels.cpp(text)):
        if parameters is not None and position < len(parameters):
            yield parameters
