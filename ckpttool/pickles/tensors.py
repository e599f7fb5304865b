"""Tensors that BUILD completes: their place in the file's object graph is known before what they hold."""

import dataclasses

from ckpttool.values import TensorRef


class OpenTensor(TensorRef):
    """A tensor whose BUILD is still to come; BUILD turns it into a `TensorRef` in place."""

    __slots__ = ()


def fill(tensor: OpenTensor, filled: TensorRef) -> None:
    """Give an open tensor all fields of another, and close it; who refers to it already sees the result."""
    for field in dataclasses.fields(TensorRef):
        object.__setattr__(tensor, field.name, getattr(filled, field.name))
    object.__setattr__(tensor, "__class__", TensorRef)
