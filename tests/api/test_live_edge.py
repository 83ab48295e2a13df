"""The edge behind the real server: what only a real connection can show."""

import socket
from urllib.parse import urlsplit

import httpx
import pytest


def test_one_connection_serves_head_get_and_refusals_in_turn(server_url):
    limits = httpx.Limits(max_connections=1)
    with httpx.Client(base_url=server_url, limits=limits) as client:
        for _ in range(3):
            head = client.head("/v1/openapi.yaml")
            assert (head.status_code, head.content) == (200, b"")
            got = client.get("/v1/openapi.yaml")
            assert head.headers["content-length"] == str(len(got.content))
            assert client.options("/v1/openapi.yaml").status_code == 204
            assert client.post("/v1/openapi.yaml", content=b"x").status_code == 405
            tag = got.headers["etag"]
            again = client.get("/v1/openapi.yaml", headers={"If-None-Match": tag})
            assert (again.status_code, again.content) == (304, b"")


def part_of(connection):
    part = connection.recv(65536)
    assert part, "the server closed the connection"
    return part


def status_of(connection):
    """Read one answer and give its status; its body is announced by its length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += part_of(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    [length] = [int(line[15:]) for line in lines if line.startswith("content-length:")]
    while len(body) < length:
        body += part_of(connection)
    return int(lines[0].split()[1])


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/v1/nothing", "localhost", 404),
        ("/health/live", "localhost", 405),
        ("/v1/openapi.yaml", "attacker.example", 421),
    ],
)
@pytest.mark.parametrize("size", [100_000, 10_000_000])
def test_a_long_body_is_taken_whole_and_its_refusal_leaves_the_connection_open(
    server_url, path, host, status, size
):
    """Many programs read no answer before all is sent, and then find the connection broken."""
    address = urlsplit(server_url)
    request = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        for _ in range(3):
            connection.sendall(request.encode() + b" " * size)
            assert status_of(connection) == status
