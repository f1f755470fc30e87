"""Quick values are frozen dataclasses in every respect but the time it takes to make one."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from coordinator_protocol.quick import changed, quick


@quick
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 7


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    name: str = "nobody"
    age: int


@quick
@dataclass(frozen=True, slots=True)
class Odd:
    value: str
    cls: str
    new: str = ""


def test_fields_may_have_any_name() -> None:
    made = Odd("v", "c", new="n")
    assert (made.value, made.cls, made.new) == ("v", "c", "n")


def test_arguments_defaults_and_keywords_are_those_of_the_dataclass() -> None:
    assert (Point(1).x, Point(1).y, Point(1, 2).y, Point(y=3, x=1).y) == (1, 7, 2, 3)
    assert (Named(age=3).name, Named(age=3, name="a").name) == ("nobody", "a")


@pytest.mark.parametrize("make", [Point, lambda: Point(1, 2, 3), lambda: Point(1, z=2), lambda: Named("a", 1)])
def test_wrong_arguments_are_refused(make: object) -> None:
    with pytest.raises(TypeError):
        make()  # type: ignore[operator]


def test_values_are_frozen_and_have_no_other_attributes() -> None:
    value = Point(1)
    with pytest.raises(FrozenInstanceError):
        value.x = 2  # type: ignore[misc]
    with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
        value.z = 2  # type: ignore[attr-defined]
    assert value == Point(1)


def test_values_are_of_their_class_and_equal_by_content() -> None:
    assert type(Point(1)) is Point
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(2, 1)
    assert hash(Point(1, 2)) == hash(Point(1, 2))
    assert repr(Point(1)) == "Point(x=1, y=7)"


def test_values_can_be_matched_replaced_copied_and_sent() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
    value = Named(name="a", age=1)
    assert replace(value, age=2) == Named(name="a", age=2)
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_what_it_would_break_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a frozen dataclass with slots"):

        @quick
        @dataclass(frozen=True, slots=True)
        class _Factory:
            items: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match="must be a frozen dataclass with slots"):

        @quick
        @dataclass(frozen=True)
        class _Roomy:
            x: int


def test_a_changed_value_is_another_one() -> None:
    value = Named(name="a", age=1)
    after = changed(value, age=2)
    assert (type(after), after, value.age) == (Named, Named(name="a", age=2), 1)
    with pytest.raises(FrozenInstanceError):
        after.age = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        changed(value, size=1)
