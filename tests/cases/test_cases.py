"""Runs the worked cases of the YAML files beside it: numbers that anybody can check by hand.

A case names what is given, the formula to evaluate and what must come out, with where that number
comes from. A formula is either the path of one function, called with everything that is given, or
an expression over the given names and any public function of `service.core.formulas`; GB, GiB and
the like are bytes. A case with several results names each in `formula` and in `expect`.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
import yaml

import service.core.formulas
from service.core import units
from service.core.scenarios.training_state import STATE_RECIPES

HERE = Path(__file__).parent
NEEDED = {"case", "given", "formula", "expect", "rel_tol", "source"}
OPTIONAL = {"says", "note"}
UNITS = {
    "GB": units.BYTES_PER_GB,
    "TB": 1000 * units.BYTES_PER_GB,
    "MiB": units.BYTES_PER_MIB,
    "GiB": units.BYTES_PER_GIB,
    "TiB": 1024 * units.BYTES_PER_GIB,
    "TFLOPS": units.FLOP_PER_S_PER_TFLOPS,
}


def formula_names():
    """Every public function of the formulas by its own name, and every module by its name."""
    names = {}
    for found in pkgutil.iter_modules(service.core.formulas.__path__):
        module = importlib.import_module(f"service.core.formulas.{found.name}")
        names[found.name] = module
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                assert name not in names, f"write {found.name}.{name}: two modules have {name}"
                names[name] = function
    return names


NAMES = {**formula_names(), **UNITS, "STATE_RECIPES": STATE_RECIPES, "inf": float("inf")}


def number(value):
    """YAML 1.1 takes 6e9 for text; here it is a number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    if isinstance(value, list):
        return [number(item) for item in value]
    return value


def read_cases():
    for path in sorted(HERE.glob("*.yaml")):
        for case in yaml.safe_load(path.read_text(encoding="utf-8")):
            yield pytest.param(case, id=f"{path.stem}:{case.get('case')}")


def evaluate(formula, given):
    path, separator, name = formula.partition(":")
    if separator:
        return getattr(importlib.import_module(path), name)(**given)
    return eval(formula, {"__builtins__": {}, "round": round, "min": min}, {**NAMES, **given})


@pytest.mark.parametrize("case", list(read_cases()))
def test_a_worked_case_comes_out(case):
    assert NEEDED <= set(case) <= NEEDED | OPTIONAL
    given = {name: number(value) for name, value in (case["given"] or {}).items()}
    expect, formula = case["expect"], case["formula"]
    if not isinstance(expect, dict):
        expect, formula = {"result": expect}, {"result": formula}
    assert set(formula) == set(expect)
    results = {name: float(evaluate(formula[name], given)) for name in expect}
    wanted = {name: number(value) for name, value in expect.items()}
    assert results == pytest.approx(wanted, rel=number(case["rel_tol"]), abs=0)


def test_case_names_are_unique():
    ids = [param.id for param in read_cases()]
    assert len(ids) == len(set(ids)) > 0
