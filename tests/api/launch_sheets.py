"""Launch sheets of plans of one workload, and the options that their lines hand to a program."""

import json
import re
import shlex
import subprocess
from pathlib import Path

from tests.api import published_options as published

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = json.loads((ROOT / "openapi" / "examples" / "create_plan.request.json").read_bytes())
[RUN] = EXAMPLE["scenario"]["training_runs"]
[SERVICE] = EXAMPLE["scenario"]["serving_services"]
ESTIMATED = {**SERVICE, "capacity": {"kind": "estimated"}}
GIVEN = {"kind": "given", "tensor_parallel": 8, "pipeline_parallel": 4}
HOSTILE = (
    "$(touch launched); `touch too` 'quoted' \"twice\" \\ \n --rdzv-id=x | rm -rf / & ${HOME} *"
)


def plan_of(client, *, runs=(), services=(), **scenario):
    scenario = {"training_runs": list(runs), "serving_services": list(services), **scenario}
    body = {**EXAMPLE, "scenario": {**EXAMPLE["scenario"], **scenario}}
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def sheet_of(client, plan):
    answer = client.get(f"/v1/plans/{plan['id']}/launch")
    assert answer.status_code == 200, answer.text
    return {each["workload"]: each for each in answer.json()["workloads"]}


def launched(client, *, run=None, service=None, **scenario):
    """The plan and the sheet of one workload."""
    given = {"runs": [run]} if run else {"services": [service]}
    plan = plan_of(client, **given, **scenario)
    assert plan["feasible"], plan["infeasibilities"]
    return plan, sheet_of(client, plan)[(run or service)["name"]]


def words_in_a_shell(command, folder):
    """What a shell hands to the program, variables set."""
    script = (
        'for v in $0; do export "$v=set-$v"; done; show() { printf "%s\\0" "$@"; }; eval "show $1"'
    )
    names = " ".join(re.findall(r"\$([A-Z_]+)", command))
    shown = subprocess.run(
        ["bash", "-c", script, names, command],
        cwd=folder,
        capture_output=True,
        check=True,
        text=True,
    )
    return shown.stdout.split("\0")[:-1]


def options_of(words, known):
    """The options of a program, each with its value; refuses what is not published."""
    found, rest = {}, list(words)
    while rest:
        name = rest.pop(0)
        assert name in known, name
        values = known[name]
        if values == published.SWITCH:
            found[name] = True
            continue
        found[name] = rest.pop(0)
        assert values is published.NUMBER or found[name] in values, (name, found[name])
    return found


def run_options(entry, known, *, program):
    """Options of torchrun, and those of the program that it starts."""
    words = shlex.split(entry["command"])
    assert words.pop(0) == "torchrun"
    at = words.index(program)
    script_at = at + (1 if program.startswith("$") else 0)
    head = words[:at] if program.startswith("$") else words[: at + 1]
    tail = [word for word in words[max(script_at, len(head)) :] if word != "$MODEL_ARGUMENTS"]
    return options_of(head, published.TORCHRUN), options_of(tail, known)


def megatron_options(entry):
    return run_options(entry, published.MEGATRON, program="$TRAINING_SCRIPT")


def torchtitan_options(entry):
    return run_options(entry, published.TORCHTITAN, program="torchtitan.train")


def engine_options(entry, start, known):
    words = shlex.split(entry["command"])
    assert words[: len(start)] == start
    return options_of(words[len(start) :], known)


def numbers(options, *names):
    return tuple(float(options[name]) for name in names)


VLLM = ["vllm", "serve", "$MODEL_PATH"]
SGLANG = ["python", "-m", "sglang.launch_server"]
TRTLLM = ["trtllm-serve", "$MODEL_PATH"]


def replica_of(plan):
    [service] = plan["serving_services"]
    return service
