"""`gpuplan serve`: it serves until told to stop, and nothing that was answered is lost."""

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.command import (
    EXAMPLE,
    START_LIMIT_S,
    STOP_LIMIT_S,
    assert_one_line,
    database_pid,
    descendants,
    post_plan,
    run,
    serving,
    started,
    wait_until_nothing_runs,
    workers_of,
)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_serve_prints_where_it_serves_and_ends_whole_when_told(open_folder, signal_number):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        assert httpx.get(f"{running.url}/health/ready").json() == {"status": "ok"}
        assert "gpuplan: open: whoever reaches this address acts as team 'local'" in running.output
        assert f"documentation at {running.url}/docs\n" in running.output
        assert f"curl -s {running.url}/v1/plans " in running.output
        assert httpx.get(f"{running.url}/docs").status_code == 200
        assert running.stop(signal_number) == 0
        wait_until_nothing_runs(data)
        with pytest.raises(httpx.ConnectError):
            httpx.get(running.url)


def test_a_request_in_flight_is_answered_before_the_end_and_its_plan_survives(open_folder):
    data = open_folder / "data"
    body = EXAMPLE.read_bytes()
    with serving(open_folder, "--data", str(data)) as running:
        connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=60)
        connection.putrequest("POST", "/v1/plans")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:-1])
        time.sleep(0.5)  # the worker has begun to read
        running.process.terminate()
        time.sleep(0.5)
        connection.send(body[-1:])
        answer = connection.getresponse()
        created = answer.read()
        connection.close()
        assert answer.status == 201, created
        assert running.process.wait(STOP_LIMIT_S) == 0
    with serving(open_folder, "--data", str(data)) as running:
        assert httpx.get(running.url + answer.headers["Location"]).content == created


@pytest.mark.parametrize(
    "moment", ["catalog release", ""], ids=["workers start", "database starts"]
)
def test_a_signal_during_the_start_ends_it_soon(open_folder, moment):
    data = open_folder / "data"
    log = open_folder / "serve.log"
    with started(open_folder, "--data", str(data)) as process:
        deadline = time.monotonic() + START_LIMIT_S
        while not (data.exists() and moment in log.read_text()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        assert process.wait(STOP_LIMIT_S) == 0
        # No request is under way, so the time for requests to end is not spent.
        assert "refused to gracefully stop" not in log.read_text()
        assert "serving on" not in log.read_text()
        wait_until_nothing_runs(data)


def test_nothing_is_left_when_the_launcher_is_killed(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        running.process.kill()
        running.process.wait()
        wait_until_nothing_runs(data)
        deadline = time.monotonic() + STOP_LIMIT_S
        with pytest.raises(httpx.ConnectError):
            while time.monotonic() < deadline:
                httpx.get(f"{running.url}/health/live")


def test_the_service_ends_when_its_database_does(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        os.kill(database_pid(data), signal.SIGKILL)
        assert running.process.wait(STOP_LIMIT_S) == 1
        assert "gpuplan: the database ended by itself" in running.output


def test_the_service_outlives_the_end_of_one_of_its_workers(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data), "--workers", "2") as running:
        made = post_plan(running.url, "before")
        assert made.status_code == 201
        before = workers_of(running)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        deadline = time.monotonic() + STOP_LIMIT_S
        while len(after := workers_of(running)) < 2 or before[0] in after:
            assert time.monotonic() < deadline
            assert running.process.poll() is None, running.output
            time.sleep(0.1)
        for _ in range(20):  # each on a connection of its own, to whichever worker takes it
            with contextlib.suppress(httpx.TransportError):  # while the new one starts
                assert httpx.get(running.url + made.headers["Location"]).content == made.content
        assert post_plan(running.url, "after").status_code == 201
        assert post_plan(running.url, "before").content == made.content
        assert running.stop(signal.SIGTERM) == 0


def test_what_was_answered_is_stored_once_whatever_is_killed(open_folder):
    """Service and database end at once, in the middle of requests, with no time to tidy up."""
    data = open_folder / "data"
    answered, sent = {}, set()

    def send(url, sender):
        with contextlib.suppress(httpx.TransportError):
            for number in range(1000):
                key = f"{sender}-{number}"
                sent.add(key)
                response = post_plan(url, key)
                if response.status_code != 201:
                    return
                answered[key] = response.content

    with serving(open_folder, "--data", str(data), "--workers", "2") as running:
        with ThreadPoolExecutor(4) as threads:
            senders = [threads.submit(send, running.url, sender) for sender in range(4)]
            deadline = time.monotonic() + STOP_LIMIT_S
            while len(answered) < 8 and time.monotonic() < deadline:
                time.sleep(0.01)
            for pid in [database_pid(data), running.process.pid, *descendants(running.process.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for sender in senders:
                sender.result(timeout=STOP_LIMIT_S)
        running.process.wait(STOP_LIMIT_S)
        wait_until_nothing_runs(data)
    assert len(answered) >= 8
    with serving(open_folder, "--data", str(data)) as running:
        stored = httpx.get(f"{running.url}/v1/plans", params={"limit": 200}).json()["items"]
        ids = [plan["id"] for plan in stored]
        assert len(ids) <= len(sent)  # an answer may have been lost on its way
        for content in answered.values():
            made = json.loads(content)
            assert made["id"] in ids
            assert httpx.get(f"{running.url}/v1/plans/{made['id']}").content == content
        again = {key: post_plan(running.url, key) for key in sent}
        assert {response.status_code for response in again.values()} == {201}
        assert {key: again[key].content for key in answered} == answered
        stored = httpx.get(f"{running.url}/v1/plans", params={"limit": 200}).json()["items"]
        assert len(stored) == len(sent)


def test_a_second_service_on_the_same_data_is_refused(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        refused = run("serve", "--port", "0", "--data", str(data))
        assert_one_line(refused, 1, f"in use by process {running.process.pid}")
        assert httpx.get(f"{running.url}/health/ready").status_code == 200


def test_a_taken_port_is_refused(open_folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = run("serve", "--port", str(port), "--data", str(open_folder / "data"))
    assert_one_line(refused, 1, f"cannot serve on 127.0.0.1 port {port}")
    assert not (open_folder / "data").exists()
