"""How deep a value is nested, measured without recursion."""

from collections.abc import Iterable
from typing import Any

from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.pickles.numpy_dtypes import NumpyDtype
from ckpttool.values import Opaque, Record, TensorRef, children

_NESTING = frozenset({dict, list, tuple, set, frozenset, Opaque, Record, NumpyDtype})


def check_depth(value: Any, limits: Limits) -> None:
    """Walk level by level, each container once.

    Raises:
        LimitExceeded: there are more than `limits.depth` levels.
    """
    level = [value]
    seen: set[int] = set()
    for _ in range(limits.depth):
        below: list[Any] = []
        for container in level:
            if id(container) not in seen:
                seen.add(id(container))
                below += [v for v in _inside(container) if type(v) in _NESTING or _has_parts(v)]
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
