"""R5: a thousand clients at once: each is answered, and the server's memory stays bounded."""
import json
import os
import pathlib
import resource
import socket
import urllib.parse

import botocore.auth
import botocore.awsrequest
import botocore.session
import pytest

pytestmark = pytest.mark.long

CLIENTS, CALLS = 1000, 5
MOST_MIB = 256  # of the server: 13 MiB idle, and for each client a head, a body and a reply


def signed(operation, body):
    """A request as bytes. One signature serves all clients: it is good for minutes."""
    url = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
    data = json.dumps(body).encode()
    request = botocore.awsrequest.AWSRequest("POST", url.geturl() + "/", data=data, headers={
        "Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"SageMaker.{operation}", "Host": url.netloc})
    botocore.auth.SigV4Auth(botocore.session.get_session().get_credentials(), "sagemaker",
                            os.environ["AWS_DEFAULT_REGION"]).add_auth(request)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST / HTTP/1.1\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def read_reply(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536) or pytest.fail(f"closed after {data!r}")
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536) or pytest.fail("closed inside a body")
    return int(head.split()[1]), json.loads(body)


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@pytest.fixture
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 200:
        pytest.skip(f"this user may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 200), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_clients_at_once_are_all_answered(descriptors, atelier_server):
    host, port = atelier_server.url.removeprefix("http://").split(":")
    request = signed("ListTrainingJobs", {"MaxResults": 100})
    clients = [socket.create_connection((host, int(port)), 120) for _ in range(CLIENTS)]
    try:
        for _ in range(CALLS):
            for client in clients:
                client.sendall(request)
            answers = [read_reply(client) for client in clients]
            refused = [answer for answer in answers if answer[0] != 200]
            assert not refused, f"{len(refused)} of {CLIENTS}: {refused[0]}"
        assert resident_mib(atelier_server.process.pid) < MOST_MIB
    finally:
        for client in clients:
            client.close()
