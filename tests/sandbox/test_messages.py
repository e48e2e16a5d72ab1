"""Messages between processes come out as they went in, and what has not its declared form is refused."""

import enum
import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from cutesmith.sandbox.messages import MalformedError, Request, decode, encode, phase_of, reply_type


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Small:
    number: int


@dataclass(frozen=True)
class Other:
    text: str


@dataclass(frozen=True)
class Large:
    parts: tuple[Small | Other, ...]
    by_name: dict[str, float]
    pair: tuple[int, str]
    maybe: Path | None
    colour: Colour
    data: bytes
    anything: object
    scalar: int | float | bool


@dataclass(frozen=True)
class WarmUp(Request[Small | None]):
    name: str


LARGE = Large(
    (Small(1), Other("é")), {"a": math.inf, "b": 2}, (1, "x"), None, Colour.RED, b"\xff", [1, {"k": None}], True
)


def test_a_message_comes_out_as_it_went_in():
    assert decode(json.loads(json.dumps(encode(LARGE, Large))), Large) == LARGE
    assert decode(encode(Small(3), Small | None), Small | None) == Small(3)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"number": "1"}, Small),
        ({"number": True}, Small),
        ({"number": 1.0}, Small),
        ({"number": 1, "more": 2}, Small),
        ({}, Small),
        ([1], Small),
        ("blue", Colour),
        ([1, "x", 2], tuple[int, str]),
        ({"1": "x"}, dict[str, float]),
        ({"Unknown": {"number": 1}}, Small | Other),
        ({"number": 1}, Small | Other),
        (None, Small),
        ("*", bytes),
    ],
)
def test_what_has_another_form_is_refused(data, kind):
    with pytest.raises(MalformedError):
        decode(data, kind)


def test_a_value_of_another_type_is_not_sent():
    with pytest.raises(MalformedError):
        encode(Small("1"), Small)
    with pytest.raises(MalformedError):
        encode(object(), object)


def test_a_request_knows_its_reply_and_its_phase():
    assert reply_type(WarmUp) == Small | None
    assert phase_of(WarmUp("x")) == "warm_up"
