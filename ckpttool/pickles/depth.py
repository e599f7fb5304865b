"""How deep a value is nested, measured without recursion."""

from collections.abc import Iterable, Sized
from typing import Any

from ckpttool.errors import LimitExceeded
from ckpttool.pickles.budget import Budget
from ckpttool.pickles.numpy_dtypes import NumpyDtype
from ckpttool.values import Opaque, Record, TensorRef, children

_MUCH = 16  # values that a container may be looked through for again and again
_CHECK_EVERY = 65_536  # containers remembered between two looks at the memory
_NESTING = frozenset({dict, list, tuple, set, frozenset, Opaque, Record, NumpyDtype})


def check_depth(value: Any, budget: Budget) -> None:
    """Walk level by level, each container once.

    Only containers that hold containers, or much else, are remembered as seen: a file may hold millions of the rest.

    Raises:
        LimitExceeded: there are more than `limits.depth` levels, or remembering them takes too much memory.
    """
    level, limits = [value], budget.limits
    seen: set[int] = set()
    for _ in range(limits.depth):
        below: list[Any] = []
        for container in level:
            if id(container) in seen:
                continue
            inner = [v for v in _inside(container) if type(v) in _NESTING or _has_parts(v)]
            if inner or (isinstance(container, Sized) and len(container) > _MUCH):
                seen.add(id(container))
                below += inner
                if len(seen) % _CHECK_EVERY == 0:
                    budget.check_memory()
        level = below
        if not level:
            return
    raise LimitExceeded(
        f"values are nested more than {limits.depth:,} deep", hint=f"raise it with --limit depth={10 * limits.depth}"
    )


def _has_parts(value: Any) -> bool:
    return type(value) is TensorRef and (bool(value.parts) or value.attributes is not None)


def _inside(container: Any) -> Iterable[Any]:
    if type(container) is dict:
        return container.values()
    if type(container) in (list, tuple):
        return container  # type: ignore[no-any-return]
    return [child for _, child in children(container)]
