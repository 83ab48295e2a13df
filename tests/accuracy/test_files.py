"""Files of rows as other programs write them: read, or refused with what is wrong."""

import json

import pytest

from service.accuracy.files import EXTRA, UnreadableFile, read_rows
from tests.accuracy.training_records import PLAIN, record
from tests.command import run

NEEDED = ("id", "gpu")


def written(folder, text, encoding="utf-8"):
    path = folder / "rows.csv"
    path.write_text(text, encoding=encoding)
    return path


def test_a_mark_of_the_byte_order_is_no_part_of_a_name(tmp_path):
    path = written(tmp_path, "id,gpu\n1,H100\n", "utf-8-sig")
    assert read_rows(path, NEEDED) == [{"id": "1", "gpu": "H100"}]


@pytest.mark.parametrize("text", ["", "\n", "id,gpu\n", '{"id": 1}', '[\n {"id": 1}\n]\n'])
def test_a_file_without_rows_is_refused(tmp_path, text):
    with pytest.raises(UnreadableFile, match="it holds no rows"):
        read_rows(written(tmp_path, text), NEEDED)


@pytest.mark.parametrize(
    ("text", "missing"),
    [("id;gpu\n1;H100\n", "id, gpu"), ("id\tgpu\n1\tH100\n", "id, gpu"), ("id,x\n1,2\n", "gpu")],
)
def test_a_column_that_is_missing_is_named(tmp_path, text, missing):
    with pytest.raises(UnreadableFile, match=f"there is no column {missing}: "):
        read_rows(written(tmp_path, text), NEEDED)


def test_a_cell_that_is_too_long_is_named_by_its_line(tmp_path):
    # The reader of CSV takes 131,072 characters at most.
    path = written(tmp_path, f"id,gpu\n1,H100\n2,{'x' * 131_073}\n")
    with pytest.raises(UnreadableFile, match="line 3: field larger than field limit"):
        read_rows(path, NEEDED)


def test_what_is_not_in_utf_8_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="UTF-8"):
        read_rows(written(tmp_path, "id,gpu\n1,H\u00e9\n", "latin-1"), NEEDED)


def test_cells_beyond_the_last_column_are_kept_apart_unless_they_are_empty(tmp_path):
    empty, full = read_rows(written(tmp_path, "id,gpu\n1,H100,,\n2,H100,,x\n"), NEEDED)
    assert EXTRA not in empty
    assert full[EXTRA] == "x"


@pytest.mark.parametrize("kind", ["training", "serving"])
def test_the_command_refuses_such_a_file_in_one_line(tmp_path, kind):
    path = written(tmp_path, f"id\n{'x' * 131_073}\n")
    ended = run("accuracy", f"--{kind}", str(path))
    assert ended.returncode == 2
    assert ended.stderr == f"gpuplan: {path}: line 2: field larger than field limit (131072)\n"


def test_the_command_prints_json_that_any_reader_takes(tmp_path):
    rows = [record(id=str(i), measured_value=v) for i, v in enumerate(["9000", "1e400", "1e-320"])]
    lines = [PLAIN, *rows]
    cells = [[*lines[0]], *([*row.values()] for row in lines[1:])]
    text = "\n".join(",".join('"' + c.replace('"', '""') + '"' for c in row) for row in cells)
    ended = run("accuracy", "--training", str(written(tmp_path, text)), "--json", "--rows")
    assert (ended.returncode, ended.stderr) == (0, "")
    report = json.loads(ended.stdout, parse_constant=pytest.fail)
    assert [row["id"] for row in report["rows"]] == ["0"]
    assert [each["count"] for each in report["unpredicted"]] == [2]
