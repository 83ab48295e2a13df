"""The steps of the Dockerfile, run one by one in a clean tree, where no container can be built.

    .venv/bin/python -m tests.image_steps

makes the image's tree with every package installed anew, as `.ci/run` does. The base image is the
interpreter at hand; users and ports are read, and the steps run as whoever runs this.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
INSTALL_LIMIT_S = 900
READ_ALONE = {"ARG", "FROM", "USER", "EXPOSE"}


@dataclass(frozen=True)
class Image:
    """A tree made by the steps, and the commands that it is started and asked with."""

    folder: Path
    environment: dict
    entrypoint: list
    default_arguments: list
    health_command: list

    def command(self, *arguments):
        """What a container of the image runs: with other arguments, or with its own."""
        program, *first = self.entrypoint
        found = shutil.which(program, path=self.environment["PATH"])
        assert found, f"the image has no {program}"
        return [found, *first, *(arguments or self.default_arguments)]


def instructions(text):
    """The instructions with their arguments, comments left out and long lines joined."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    pairs = (line.split(maxsplit=1) for line in lines.splitlines() if line.strip())
    return [(name.upper(), argument) for name, argument in pairs]


def context(folder):
    """A clean tree of what a build sees: files under version control that .dockerignore lets in."""
    ignored = (CHECKOUT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"
    let_in = {each[1:] for each in ignored if each.startswith("!")}
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if name.partition("/")[0] in let_in and (CHECKOUT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CHECKOUT / name, target)
    return folder


def interpreter(folder, *, borrow):
    """An environment of its own; with `borrow` it sees the packages that are installed here."""
    alone = ["--without-pip"] if borrow else []
    subprocess.run([sys.executable, "-m", "venv", *alone, str(folder)], check=True)
    python = folder / "bin" / "python"
    if borrow:
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        found = subprocess.run([python, "-c", where], capture_output=True, check=True, text=True)
        borrowed = Path(found.stdout.strip()) / "borrowed.pth"
        borrowed.write_text(sysconfig.get_path("purelib"))
        pip = folder / "bin" / "pip"
        pip.write_text(f"#!{python}\nimport runpy\nrunpy.run_module('pip', run_name='__main__')\n")
        pip.chmod(0o755)
    return folder / "bin"


def copy(argument, source, workdir):
    """COPY of files and folders: a folder's content goes into its target."""
    *names, target = argument.split()
    place = workdir / target
    for name in names:
        found = source / name
        if found.is_dir():
            shutil.copytree(found, place, dirs_exist_ok=True)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, place / found.name)


def build(folder, *, borrow):
    """Run every step in a folder; a kind of step that is not known fails."""
    source = context(folder / "context")
    root, workdir = folder / "root", folder / "root"
    path = f"{interpreter(folder / 'python', borrow=borrow)}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONNOUSERSITE": "1"}
    environment.pop("PYTHONPATH", None)
    kept = {"ENTRYPOINT": "[]", "CMD": "[]", "HEALTHCHECK": "CMD []"}
    for name, argument in instructions((CHECKOUT / "Dockerfile").read_text()):
        if name == "WORKDIR":
            workdir = root / argument.lstrip("/")
            workdir.mkdir(parents=True)
        elif name == "COPY":
            copy(argument, source, workdir)
        elif name == "RUN":
            subprocess.run(
                argument,
                shell=True,
                cwd=workdir,
                env=environment,
                check=True,
                timeout=INSTALL_LIMIT_S,
            )
        elif name in kept:
            kept[name] = argument
        else:
            assert name in READ_ALONE, f"a step that this does not run: {name} {argument}"
    shutil.rmtree(source)  # as in an image, nothing but what was copied is there
    return Image(
        workdir,
        environment,
        json.loads(kept["ENTRYPOINT"]),
        json.loads(kept["CMD"]),
        json.loads(kept["HEALTHCHECK"].partition("CMD ")[2]),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made = build(Path(name), borrow=False)
        asked = made.command("catalog", "check")
        subprocess.run(asked, cwd=made.folder, env=made.environment, check=True)
