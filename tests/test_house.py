"""The size limits of the house, and the one place where the environment is read."""

import ast
from pathlib import Path

import pytest

SERVICE = Path(__file__).resolve().parent.parent / "service"
MODULES = sorted(SERVICE.rglob("*.py"))


def path_in_service(path):
    return path.relative_to(SERVICE).as_posix()


@pytest.fixture(params=MODULES, ids=path_in_service)
def module(request):
    return request.param


def test_a_module_has_fewer_than_400_lines(module):
    assert len(module.read_text(encoding="utf-8").splitlines()) < 400


def code_line_count(function):
    """Lines of a function less its docstring, which may be as long as the equation needs."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring_line_count = first.end_lineno - first.lineno + 1 if is_docstring else 0
    return function.end_lineno - function.lineno + 1 - docstring_line_count


def test_a_function_has_fewer_than_40_lines_beside_its_docstring(module):
    tree = ast.parse(module.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [f.name for f in functions if code_line_count(f) >= 40] == []


def reads_environment(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return not names.isdisjoint({"environ", "getenv"})


def test_the_environment_is_read_in_settings_alone():
    assert [path_in_service(p) for p in MODULES if reads_environment(p)] == ["settings.py"]


def test_a_folder_has_fewer_than_16_files():
    folders = {path.parent for path in MODULES}
    counts = {folder: len([p for p in folder.iterdir() if p.is_file()]) for folder in folders}
    assert {path_in_service(f): n for f, n in counts.items() if n >= 16} == {}


def test_folders_are_fewer_than_4_deep():
    assert {
        path_in_service(p) for p in MODULES if len(p.relative_to(SERVICE).parents) >= 4
    } == set()


def rounding_of_money(path):
    """What rounds to decimals: `quantize` and the modes of rounding, or `round` to two places."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(attr="quantize"):
                yield "quantize"
            case ast.alias(name=name) if name.startswith("ROUND_"):
                yield name
            case ast.Call(func=ast.Name(id="round"), args=[_, ast.Constant(value=2)]):
                yield "round"


def test_money_is_rounded_in_pricing_alone():
    core = [path for path in MODULES if path.is_relative_to(SERVICE / "core")]
    rounds = [path_in_service(path) for path in core if any(rounding_of_money(path))]
    assert rounds == ["core/pricing.py"]
