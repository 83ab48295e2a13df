from typing import Annotated, Literal

import pytest
from pydantic import Field
from typing_extensions import TypeAliasType

from service.api.json_body import decode_value, parse_json, pointer_of
from service.api.problems import ProblemError, ProblemKind
from service.core.value import Count, Fraction, Text, TokenCount, Value


class GpuCountSizing(Value):
    kind: Literal["gpu_count"]
    gpu_count: Count


class FinishSizing(Value):
    kind: Literal["finish_by"]
    finish_date: Text


Sizing = TypeAliasType(
    "Sizing", Annotated[GpuCountSizing | FinishSizing, Field(discriminator="kind")]
)


class Run(Value):
    name: Text
    tokens: TokenCount = 1
    share: Fraction = 1.0
    sizing: Sizing | None = None


class Body(Value):
    runs: Annotated[tuple[Run, ...], Field(max_length=3)]


def refusal(call, *arguments):
    with pytest.raises(ProblemError) as caught:
        call(*arguments)
    return caught.value


def places(error):
    return [(each.pointer, each.detail) for each in error.errors]


@pytest.mark.parametrize(
    ("body", "pointer", "word"),
    [
        (b'{"a": NaN}', "/a", "NaN"),
        (b'{"a": [1, Infinity]}', "/a/1", "Infinity"),
        (b'{"a": {"b": -Infinity}}', "/a/b", "-Infinity"),
        (b'{"a": 1e999}', "/a", "largest double"),
        (b'{"a": -1e999}', "/a", "largest double"),
        (b'{"gpus": 8, "gpus": -8}', "/gpus", "more than once"),
        (b'{"a": [{"b": 1}, {"b/c": 1, "b/c": 2}]}', "/a/1/b~1c", "more than once"),
        (b'{"a": "\\ud800"}', "/a", "surrogate"),
        (b'{"\\udc00": 1}', "/?", "surrogate"),
        (b"NaN", "", "NaN"),
    ],
)
def test_what_json_forbids_is_refused_with_its_place(body, pointer, word):
    error = refusal(parse_json, body)
    assert (error.kind, error.kind.status) == (ProblemKind.MALFORMED_BODY, 400)
    [(found_pointer, detail)] = places(error)
    assert found_pointer == pointer
    assert word in detail


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "line 1, column 2"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 01}', "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b'{"a": "b\x00"}', "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8: invalid start byte at byte 7"),
        (b'\xef\xbb\xbf{"a": 1}', "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "too deep"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "too deep"),
        (b"1" * 5000, "thousand digits"),
        (b'{"a": 1} {"a": 2}', "not JSON"),
    ],
)
def test_what_is_not_json_is_refused_with_the_reason(body, words):
    error = refusal(parse_json, body)
    assert error.kind is ProblemKind.MALFORMED_BODY
    assert words in error.detail


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (b'{"a": [1, 2.5, -0.0, true, null, "x"]}', {"a": [1, 2.5, -0.0, True, None, "x"]}),
        (b"9007199254740993", 2**53 + 1),
        (b"9223372036854775808", 2**63),
        (b"1e308", 1e308),
        ('"\N{GRINNING FACE}"'.encode(), "\N{GRINNING FACE}"),
        (b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        (b'"a\\u0000b"', "a\x00b"),
        (b' \t\r\n{"a": {"b": 1}, "b": {"b": 1}} ', {"a": {"b": 1}, "b": {"b": 1}}),
    ],
)
def test_json_is_read_exactly(body, document):
    assert parse_json(body) == document


def test_many_duplicate_keys_are_found_in_little_time():
    body = b"{" + b",".join(b'"k%d":1' % index for index in range(90_000)) + b',"k89999":2}'
    assert places(refusal(parse_json, body))[0][0] == "/k89999"


GOOD_RUN = {"name": "a"}


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"runs": [{"name": "a", "tokens": 0}]}, "/runs/0/tokens", "greater than or equal to 1"),
        ({"runs": [{"name": "a", "tokens": 2**53}]}, "/runs/0/tokens", "9007199254740991"),
        ({"runs": [{"name": "a", "tokens": 2**63}]}, "/runs/0/tokens", "9007199254740991"),
        ({"runs": [{"name": "a", "tokens": 10**400}]}, "/runs/0/tokens", "9007199254740991"),
        ({"runs": [{"name": "a", "tokens": 1e308}]}, "/runs/0/tokens", "9007199254740991"),
        ({"runs": [{"name": "a", "tokens": 1.5}]}, "/runs/0/tokens", "whole number"),
        ({"runs": [{"name": "a", "tokens": "5"}]}, "/runs/0/tokens", "whole number"),
        ({"runs": [{"name": "a", "tokens": True}]}, "/runs/0/tokens", "whole number"),
        ({"runs": [{"name": "a", "share": 1.0001}]}, "/runs/0/share", "less than or equal to 1"),
        ({"runs": [{"name": "a\x00b"}]}, "/runs/0/name", "pattern"),
        ({"runs": [{"name": "a" * 201}]}, "/runs/0/name", "at most 200 characters"),
        ({"runs": [{}]}, "/runs/0/name", "required"),
        ({"runs": [GOOD_RUN | {"x/y~": 1}]}, "/runs/0/x~1y~0", "not permitted"),
        ({"runs": [GOOD_RUN] * 4}, "/runs", "at most 3 items"),
        ({"runs": {"length": 1e100}}, "/runs", "valid list"),
        ({"runs": [{}] * 100_000}, "/runs", "at most 1000 items"),
        ({"runs": [GOOD_RUN | {f"x{i}": 1 for i in range(5000)}]}, "/runs/0", "at most 1000 items"),
        ({}, "/runs", "required"),
        ([], "", "an object"),
        (None, "", "an object"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_place_and_the_bound(body, pointer, words):
    error = refusal(decode_value, Body, body)
    assert (error.kind, error.kind.status) == (ProblemKind.VALIDATION, 422)
    [(found_pointer, detail)] = places(error)
    assert found_pointer == pointer
    assert words in detail


@pytest.mark.parametrize(
    ("sizing", "pointer"),
    [
        ({"kind": "gpu_count", "gpu_count": 0}, "/runs/0/sizing/gpu_count"),
        ({"kind": "gpu_count"}, "/runs/0/sizing/gpu_count"),
        ({"kind": "gpu_count", "gpu_count": 8, "more": 1}, "/runs/0/sizing/more"),
        ({"kind": "finish_by", "finish_date": 1}, "/runs/0/sizing/finish_date"),
        ({"kind": "no_such"}, "/runs/0/sizing"),
        ({}, "/runs/0/sizing"),
    ],
)
def test_the_tag_of_a_union_is_no_part_of_the_pointer(sizing, pointer):
    error = refusal(decode_value, Body, {"runs": [GOOD_RUN | {"sizing": sizing}]})
    assert [each.pointer for each in error.errors] == [pointer]


def test_names_of_union_branches_are_no_part_of_the_pointer():
    document = {"gpu": {"name": 5}, "count": 7}
    assert pointer_of(("gpu", "Gpu", "name"), document) == "/gpu/name"
    assert pointer_of(("count", "constrained-str"), document) == "/count"
    assert pointer_of(("gpu", "function-before[f(), str]", "name"), document) == "/gpu/name"


def test_a_good_body_becomes_the_value():
    body = {"runs": [{"name": "a", "tokens": 5.0, "sizing": {"kind": "gpu_count", "gpu_count": 8}}]}
    [run] = decode_value(Body, body).runs
    assert (run.name, run.tokens, run.sizing.gpu_count) == ("a", 5, 8)


def test_a_body_with_very_many_faults_is_answered_with_the_first_hundred():
    body = {"runs": [GOOD_RUN | {f"x{index}": 1 for index in range(900)}]}
    assert len(refusal(decode_value, Body, body).errors) == 100


class Several(Value):
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]


def test_a_list_is_not_called_too_short_because_its_item_was_refused():
    with pytest.raises(ProblemError) as refused:
        decode_value(Several, {"runs": [{"name": "a", "share": 2}]})
    assert [each.pointer for each in refused.value.errors] == ["/runs/0/share"]


def test_a_list_that_is_too_short_is_refused():
    with pytest.raises(ProblemError) as refused:
        decode_value(Several, {"runs": []})
    assert [each.pointer for each in refused.value.errors] == ["/runs"]
