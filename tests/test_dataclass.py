"""Data classes do what the standard library's do, which makes them slower."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from itertools import product

import pytest

from kraftcore.dataclass import dataclass

SETTINGS = [
    dict(zip(("frozen", "slots", "kw_only", "eq"), choice, strict=True)) for choice in product((False, True), repeat=4)
]


def make(decorate, **settings):
    @decorate(**settings)
    class Sample:
        """A sample."""

        first: int
        second: str = field(default="two", repr=False)
        third: list[int] = field(default_factory=list, hash=False)
        fourth: int = field(default=4, compare=False)
        total: int = field(init=False, default=0)
        parts: list[int] = field(init=False, default_factory=lambda: [7], hash=False)
        last: int = field(default=5, kw_only=True)

        def __post_init__(self):
            object.__setattr__(self, "total", 2 * self.first)

    return Sample


def outcome(work, kind):
    try:
        return work(kind)
    except Exception as error:
        return type(error), str(error).replace("make.<locals>.", "")


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_is_as_the_standard_one(settings):
    ours, theirs = make(dataclass, **settings), make(dataclasses.dataclass, **settings)
    for work in (
        lambda kind: repr(kind(first=1)),
        lambda kind: repr(kind(first=1, second="x", third=[3], fourth=2, last=6)),
        lambda kind: repr(kind(1)),
        lambda kind: repr(kind(1, "x", [3], 2)),
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3, 4, 5),
        lambda kind: kind(first=1, unknown=2),
        lambda kind: kind(first=1) == kind(first=1),
        lambda kind: kind(first=1, fourth=1) == kind(first=1, fourth=2),
        lambda kind: kind(first=1) == kind(first=2),
        lambda kind: kind(first=1) == (1, "two", []),
        lambda kind: hash(kind(first=1, third=[1])) == hash(kind(first=1, third=[2])),
        lambda kind: hash(kind(first=1)) == hash(kind(first=2)),
        lambda kind: kind(first=1).third is kind(first=1).third,
        lambda kind: kind(first=1).parts,
        lambda kind: setattr(kind(first=1), "first", 2),
        lambda kind: setattr(kind(first=1), "other", 2) if not settings["slots"] else None,
        lambda kind: delattr(kind(first=1), "first"),
        lambda kind: repr(replace(kind(first=1, last=9), first=2)),
        lambda kind: dataclasses.asdict(kind(first=1)),
        lambda kind: [(each.name, each.init, each.kw_only, each.compare) for each in fields(kind)],
        lambda kind: kind.__match_args__,
        lambda kind: kind.__doc__,
        lambda kind: repr(copy.copy(kind(first=1, third=[2]))),
        lambda kind: [each.name for each in inspect.signature(kind).parameters.values()],
        lambda kind: kind.__init__.__annotations__,
        lambda kind: getattr(kind, "__slots__", None),
    ):
        assert outcome(work, ours) == outcome(work, theirs), inspect.getsource(work)


@dataclass(frozen=True, slots=True)
class Place:
    """Pickled by its name."""

    host: str
    port: int = 9092


@dataclass(slots=True, eq=False)
class Node:
    """May be part of itself."""

    next: Node | None = None


@dataclass(frozen=True)
class Named:
    """What a class says itself stays."""

    name: str

    def __repr__(self):
        return "named"

    def __eq__(self, other):
        return isinstance(other, Named)

    def __hash__(self):
        return 1


def test_frozen_objects_are_pickled():
    assert pickle.loads(pickle.dumps(Place("h", 1))) == Place("h", 1)


def test_what_is_part_of_itself_can_be_shown():
    node = Node()
    node.next = node
    assert repr(node) == "Node(next=...)"
    assert node == node
    assert Node() != Node()
    assert hash(node) == object.__hash__(node)


def test_methods_of_the_class_stay():
    assert (repr(Named("a")), Named("a") == Named("b"), hash(Named("a"))) == ("named", True, 1)


def test_a_subclass_may_have_attributes_of_its_own():
    class More(Named):
        pass

    more = More("a")
    more.other = 1
    del more.other
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        more.name = "b"


def test_a_data_class_may_extend_another():
    @dataclass(frozen=True, slots=True)
    class Rack(Place):
        rack: str = "r"

    assert Rack("h") == Rack("h", 9092, "r") != Rack("h", 9092, "s")
    assert Place("h") != Rack("h")
    assert hash(Rack("h")) == hash(Rack("h"))
