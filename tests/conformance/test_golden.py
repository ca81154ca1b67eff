"""What real clients send for the article's listing: that they still send it, and what a server makes of it.

tests/golden has the requests (golden.py records them). A client that changes fails the first test; a server that no
longer takes what clients sent before fails the others, without any of these clients.
"""
import http.client
import importlib
import json
import urllib.parse

import pytest

import golden
from background import Background

NAMES = sorted(path.stem for path in golden.GOLDEN.glob("*.json"))
SERVICES = {"SageMaker": "sagemaker", "Logs_20140328": "logs", "GraniteServiceVersion20100801": "monitoring"}
# Named by the reply, since nothing here mounts a file system yet.
REFUSED = {name: "FileSystemDataSource" for name in NAMES if name.endswith("-fsx")}


@pytest.mark.parametrize("client", [pytest.param("sdk2", marks=pytest.mark.sdk),
                                    pytest.param("sdk3", marks=pytest.mark.sdk3),
                                    pytest.param("sdk_old", marks=pytest.mark.sdk_old), "cli"])
def test_a_client_sends_what_it_sent(client, atelier_server, tmp_path):
    # In a fork: a client keeps the session that was recorded for whoever comes after.
    importlib.import_module(golden.MODULES[client])
    background = Background(tmp_path)
    background.start(client, golden.record, client, atelier_server)
    outcome = background.outcome(client)
    assert not outcome.error, outcome.output[-4000:]
    sent = outcome.value
    assert set(sent) == {name for name in NAMES if name.startswith(client + "-")}
    for name, requests in sent.items():
        assert requests == golden.read(name), f"{name}: see golden.py for how to record it again"


def post(url, request):
    """Status and reply of a golden request, signed by botocore with the keys of the environment."""
    import boto3
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    service = SERVICES[request["headers"]["x-amz-target"].split(".")[0]]
    body = json.dumps(request["body"]) if isinstance(request["body"], dict) else request["body"]
    signed = AWSRequest(request["method"], url + request["path"], dict(request["headers"]), body)
    SigV4Auth(boto3.session.Session().get_credentials(), service, "us-west-2").add_auth(signed)
    connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc, timeout=60)
    connection.request(request["method"], request["path"], body.encode(), dict(signed.headers))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def holds(whole, part):
    """Whether `whole` has all that `part` has, whatever it has besides."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and holds(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(holds, whole, part))
    return whole == part


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_what_a_client_sent_is_taken_and_described(name, atelier_server):
    import boto3
    sagemaker = boto3.client("sagemaker")
    create, *after = golden.read(name)
    status, reply = post(atelier_server.url, create)
    assert (status, list(reply)) == (200, ["TrainingJobArn"]), reply
    job = create["body"]["TrainingJobName"]
    sagemaker.stop_training_job(TrainingJobName=job)
    assert reply["TrainingJobArn"].endswith(f":training-job/{job}")
    described = sagemaker.describe_training_job(TrainingJobName=job)
    for member, value in create["body"].items():
        assert holds(described.get(member), value), (member, value, described.get(member))
    for request in after:
        status, reply = post(atelier_server.url, request)
        assert status == 200, (request, reply)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_here_yet_is_refused_by_name(name, atelier_server):
    create, = golden.read(name)
    status, reply = post(atelier_server.url, create)
    assert (status, reply["__type"]) == (400, "ValidationException")
    assert REFUSED[name] in reply["message"], reply

