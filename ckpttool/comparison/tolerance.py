"""What counts as near."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When two elements count as near: `|right - left| <= atol + rtol * |left|`, or within `ulp` steps."""

    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0  # representable values of the type between the two

    def __bool__(self) -> bool:
        return bool(self.rtol or self.atol or self.ulp)


EXACT = Tolerance()
