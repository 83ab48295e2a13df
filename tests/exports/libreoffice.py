"""LibreOffice as an independent reader of what is exported, where it is installed."""

import shutil
import subprocess

import openpyxl
import pytest

PROGRAM = shutil.which("soffice")
needs_libreoffice = pytest.mark.skipif(
    PROGRAM is None, reason="LibreOffice Calc (Debian package libreoffice-calc) is not installed"
)
ALWAYS_RECALCULATE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop>
</item>
</oor:items>
"""


ENGLISH, GERMAN = 1033, 1031
"""Languages of the numbers in a file, by the program's codes."""


def reopened(source, folder, *, separator=",", language=ENGLISH):
    """The workbook that LibreOffice makes of a file: calculated values, no formulas."""
    profile = folder / "profile"
    (profile / "user").mkdir(parents=True)
    (profile / "user" / "registrymodifications.xcu").write_text(ALWAYS_RECALCULATE)
    command = [PROGRAM, f"-env:UserInstallation=file://{profile}", "--headless"]
    if source.suffix == ".csv":
        # Separator, quote, UTF-8, first line, no column formats, language, quoted is not text,
        # and special numbers such as dates are recognised.
        command += [f"--infilter=CSV:{ord(separator)},34,UTF8,1,,{language},false,true"]
    target = folder / "reopened"
    command += ["--convert-to", "xlsx", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return openpyxl.load_workbook(target / f"{source.stem}.xlsx", data_only=True)
