"""Saves the tensors around launches, one file each."""

from . import Probe

PROBE = Probe(
    summary="save every tensor to the dump, loadable by torch.load(weights_only=True)",
    of_results=True,
    reads_values=True,
    idle=True,
    saves=True,
)
