"""Clients made from the description that a live service serves, used against that service.

The generators stand apart from the service, as whoever uses them has them: `.ci/run` installs them
into `.client-generators`. Each client makes the example plan and reads its totals.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "openapi" / "examples" / "create_plan.request.json"
# The contract's example, worked by hand where the plan is priced.
TOTALS = {"peak_gpu_count": 576, "amount": "7971217.90", "currency": "USD"}
TOOLS = Path(os.environ.get("CLIENT_GENERATORS", ROOT / ".client-generators"))
PYTHON = TOOLS / "python" / "bin"
NODE_MODULES = TOOLS / "node_modules"
ABSENT = "{} is not installed: .ci/run puts it into .client-generators"
LIMIT_S = 240
# What is no JSON comes as bytes, which the Python generator says of each such answer.
BYTES_ALONE = {
    "GET /v1/openapi.yaml",
    "GET /v1/plans/{plan_id}/kubernetes.yaml",
    "GET /v1/plans/{plan_id}/workbook.xlsx",
}

PYTHON_USE = """
import json, sys
from pathlib import Path

from gpuplan_client import Client
from gpuplan_client.api.plans import create_plan, get_plan
from gpuplan_client.models import Plan, PlanRequest

client = Client(base_url=sys.argv[1], timeout=60)
request = PlanRequest.from_dict(json.loads(Path(sys.argv[2]).read_text()))
made = create_plan.sync(client=client, body=request)
assert isinstance(made, Plan), made
read = get_plan.sync(client=client, plan_id=made.id)
assert isinstance(read, Plan), read
assert read.to_dict() == made.to_dict()
totals = read.totals
print(json.dumps({"peak_gpu_count": totals.peak_gpu_count, "amount": totals.amount,
                  "currency": totals.currency}))
"""
TYPESCRIPT_USE = """
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./v1.js";

const client = createClient<paths>({ baseUrl: process.argv[2] });
const body = JSON.parse(readFileSync(process.argv[3]!, "utf8")) as
  components["schemas"]["PlanRequest"];
const made = await client.POST("/v1/plans", { body });
if (made.data === undefined) throw new Error(made.error.detail);
const path = { plan_id: made.data.id };
const read = await client.GET("/v1/plans/{plan_id}", { params: { path } });
if (read.data === undefined) throw new Error(read.error.detail);
const totals = read.data.totals;
if (totals === null) throw new Error("the plan is infeasible");
const peak_gpu_count: number = totals.peak_gpu_count;
const amount: string = totals.amount;
console.log(JSON.stringify({ peak_gpu_count, amount, currency: totals.currency }));
"""
TYPES_OF_NODE = """
declare module "node:fs" {
  export function readFileSync(path: string, encoding: "utf8"): string;
}
declare const process: { argv: string[] };
"""
STRICT = {
    "compilerOptions": {
        "strict": True,
        "noUncheckedIndexedAccess": True,
        "module": "nodenext",
        "target": "es2022",
        "lib": ["es2022", "dom"],
        "types": [],
        "skipLibCheck": True,
    },
    "files": ["node.d.ts", "use.ts"],
}


@pytest.fixture
def description(server_url, tmp_path):
    """The description as the service serves it, in a file."""
    path = tmp_path / "v1.yaml"
    path.write_bytes(
        httpx.get(f"{server_url}/v1/openapi.yaml", timeout=60).raise_for_status().content
    )
    return path


def run(*command, cwd, path=None):
    environment = os.environ | ({} if path is None else {"PATH": f"{path}:{os.environ['PATH']}"})
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(
    not (PYTHON / "openapi-python-client").exists(), reason=ABSENT.format("openapi-python-client")
)
def test_a_python_client_makes_and_reads_a_plan(description, server_url, tmp_path):
    generate = [PYTHON / "openapi-python-client", "generate", "--output-path", tmp_path / "client"]
    said = run(*generate, "--path", description, cwd=tmp_path, path=PYTHON)
    # Everything that is described is made, and every answer but those of bytes is typed.
    assert "Endpoint will not be generated" not in said, said
    assert "Unable to process schema" not in said, said
    warned = {line for line in said.splitlines() if line.startswith("WARNING parsing")}
    assert {line.split(" within ")[0] for line in warned} <= {
        f"WARNING parsing {operation}" for operation in BYTES_ALONE
    }
    use = tmp_path / "client" / "use.py"
    use.write_text(PYTHON_USE)
    assert json.loads(run(PYTHON / "python", use, server_url, EXAMPLE, cwd=tmp_path)) == TOTALS


@pytest.mark.skipif(
    shutil.which("node") is None or not (NODE_MODULES / ".bin" / "openapi-typescript").exists(),
    reason=ABSENT.format("openapi-typescript"),
)
def test_a_typescript_client_makes_and_reads_a_plan(description, server_url, tmp_path):
    """Types alone are generated: what the compiler takes under `strict` is what is described."""
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps(STRICT))
    (tmp_path / "node.d.ts").write_text(TYPES_OF_NODE)
    (tmp_path / "use.ts").write_text(TYPESCRIPT_USE)
    run("node_modules/.bin/openapi-typescript", description, "-o", "v1.d.ts", cwd=tmp_path)
    run("node_modules/.bin/tsc", cwd=tmp_path)
    assert json.loads(run("node", "use.js", server_url, EXAMPLE, cwd=tmp_path)) == TOTALS
