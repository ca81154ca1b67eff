"""F3: a request that the service model calls invalid is refused, naming the member; a valid one never is.

Requests are made from botocore's models (model.py judges them, the server's tables are not looked at): each
member at and around each of its limits, then several changes at once, by a fixed seed. No request here is
one that could start a job: the base has everything at once, which no job can have.
"""
import copy
import functools
import http.client
import json
import os
import pathlib
import random
import re
import time
import urllib.parse
import uuid

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.loaders
import botocore.model
import botocore.parsers
import botocore.session
import pytest
from botocore.exceptions import ClientError

import model

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = {"sagemaker": "SageMaker", "logs": "Logs_20140328", "cloudwatch": "GraniteServiceVersion20100801"}
SIGNED_AS = {"cloudwatch": "monitoring"}
HARMLESS = ["DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob", "ListTags", "AddTags", "DeleteTags", "Search",
            "GetSearchSuggestions", "UpdateTrainingJob", "DeleteTrainingJob"]
JSON_OPERATIONS = [("sagemaker", name) for name in ["CreateTrainingJob", *HARMLESS]] + [
    ("logs", name) for name in ("DescribeLogGroups", "DescribeLogStreams", "GetLogEvents", "FilterLogEvents")] + [
    ("cloudwatch", name) for name in ("GetMetricStatistics", "GetMetricData", "ListMetrics")]
RANDOM_REQUESTS = 1000
SEED = 20261130

# One of these is right for every string of the models.
SAMPLES = [
    "a", "4K", "000000000000", "s3://bucket/prefix", "arn:aws:iam::000000000000:role/platform", "fs-0123456789abcdef0",
    "/aws/sagemaker/TrainingJobs",
    "arn:aws:sagemaker:us-west-2:000000000000:training-job/no-such-job",
    "arn:aws:sagemaker:us-west-2:000000000000:training-plan/one",
    "arn:aws:lambda:us-west-2:000000000000:function:credentials",
    "arn:aws:sagemaker:us-west-2:000000000000:mlflow-tracking-server/one",
    "arn:aws:sagemaker:us-west-2:000000000000:model-package-group/one",
    "arn:aws:sagemaker:us-west-2:000000000000:model-package/one/1",
    "arn:aws:sagemaker:us-west-2:aws:hub-content/Hub/Model/one/1.0.0",
    "arn:aws:sagemaker:us-west-2:aws:hub-content/Hub/DataSet/one/1.0.0",
]


class Wire:
    """Signs and sends bodies as they are: no client library stands between."""

    def __init__(self):
        url = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
        self.url, self.connection = url.geturl(), http.client.HTTPConnection(url.netloc, timeout=60)
        self.credentials = botocore.session.get_session().get_credentials()
        self.region = os.environ["AWS_DEFAULT_REGION"]

    def send(self, service, body, headers):
        request = botocore.awsrequest.AWSRequest("POST", self.url + "/", data=body, headers=headers)
        botocore.auth.SigV4Auth(self.credentials, service, self.region).add_auth(request)
        self.connection.request("POST", "/", body, dict(request.headers.items()))
        answer = self.connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, service, operation, value):
        version = "1.0" if service == "cloudwatch" else "1.1"
        return self.send(SIGNED_AS.get(service, service), json.dumps(value).encode(), {
            "Content-Type": f"application/x-amz-json-{version}", "X-Amz-Target": f"{TARGETS[service]}.{operation}"})

    def query(self, service, fields):
        return self.send(service, urllib.parse.urlencode(fields).encode(),
                         {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})


@pytest.fixture(scope="module")
def wire(atelier_server):
    wire = Wire()
    yield wire
    wire.connection.close()


@functools.cache
def service_model(service):
    """Of the botocore that the server was built from, which may be older than the clients'."""
    built_from = sorted(ROOT.glob(".venv/lib/python3*/site-packages/botocore/data"))
    loader = botocore.loaders.Loader([str(path) for path in built_from],
                                     include_default_search_paths=not built_from)
    return botocore.model.ServiceModel(loader.load_service_model(service, "service-2"), service)


def shapes(service, operation):
    found = service_model(service).operation_model(operation)
    return found.input_shape, found.output_shape


def sample(shape, inside=()):
    """A valid value that has every member, but for those that a structure has of its own kind."""
    kind = shape.type_name
    if kind == "structure":
        inside = (*inside, shape.name)
        return {name: sample(member, inside) for name, member in shape.members.items()
                if not (member.type_name == "list" and member.member.name in inside)}
    if kind == "list":
        return [sample(shape.member, inside)] * max(1, shape.metadata.get("min", 0))
    if kind == "map":
        return {sample(shape.key): sample(shape.value, inside)}
    if kind == "boolean":
        return True
    if kind in ("integer", "long", "float", "double", "timestamp"):
        return max(1, shape.metadata.get("min", 1))
    if model.metadata_of(shape)["enum"]:
        return shape.metadata["enum"][0]
    good = [text for text in SAMPLES if not model.errors_of(shape, text)]
    assert good, f"SAMPLES has nothing for {shape.name} {dict(shape.metadata)}"
    return good[0]


def strings_around(shape, good):
    low, high = shape.metadata.get("min", 0), min(shape.metadata.get("max", 300), 9000)
    for length in {max(0, low - 1), low, high, high + 1}:
        yield (good + "a" * length)[:length] if len(good) <= length else "a" * length
    yield from (good + end for end in ("-", "--a", "_", " ", "\n", "/", "\u00e9", "<&>", "'", "\"", ":", "*", "\x01"))
    yield from ("-" + good, good[:-1], good.upper(), good.swapcase(), "", " ", "\U0001f600", "\u00e9" * high)
    yield from shape.metadata.get("enum", [])[:60]


def numbers_around(shape):
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    yield from (edge + step for edge in (low, high) if edge is not None for step in (-1, 0, 1))
    yield from (0, -1, 1, 2**31 - 1, 2**31, -2**31 - 1, 2**63 - 1, 1.5)
    if shape.type_name in ("integer", "long"):
        yield from (2**63, 2**64, 1e30)


def changes(shape, good):
    """Values to try in the place of `good`, right ones and wrong ones."""
    yield from (None, "text", 7, True, [], {}, [None], {"a": None})
    kind = shape.type_name
    if kind == "string":
        yield from strings_around(shape, good)
    elif kind in ("integer", "long"):
        yield from numbers_around(shape)
    elif kind == "timestamp":
        yield from (0, 1.5, 2**31, "2026-11-30T00:00:00Z")
    elif kind == "list":
        for length in {shape.metadata.get("min", 1) - 1, shape.metadata.get("min", 1), shape.metadata.get("max", 50),
                       shape.metadata.get("max", 50) + 1} - {-1}:
            yield good[:1] * length
    elif kind == "map":
        key, value = next(iter(good.items()))
        most = shape.metadata.get("max", 20)
        for length in (most, most + 1):
            yield {f"{key}{number}": value for number in range(length)}
        for text in strings_around(shape.key, key):
            yield {text: value}


def places(shape, value, path=()):
    """Every place in `value` with its shape: (keys that lead there, shape)."""
    if path:
        yield path, shape
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if name in value:
                yield from places(member, value[name], (*path, name))
    elif shape.type_name == "list":
        yield from places(shape.member, value[0], (*path, 0))
    elif shape.type_name == "map":
        key = next(iter(value))
        yield from places(shape.value, value[key], (*path, key))


def put(request, path, value):
    for key in path[:-1]:
        request = request[key]
    request[path[-1]] = value


def at(request, path):
    for key in path:
        request = request[key]
    return request


def cases(shape):
    base = sample(shape)
    assert not model.errors_of(shape, base), "the base itself must be valid"
    yield base
    singles = [(path, value) for path, inner in places(shape, base) for value in changes(inner, at(base, path))]
    for path, value in singles:
        request = copy.deepcopy(base)
        put(request, path, value)
        yield request
    chance = random.Random(SEED)
    for _ in range(RANDOM_REQUESTS if len(singles) > RANDOM_REQUESTS else len(singles)):
        request = copy.deepcopy(base)
        for path, value in chance.sample(singles, chance.randint(2, 4)):
            try:
                put(request, path, copy.deepcopy(value))
            except (KeyError, IndexError, TypeError):
                pass  # an earlier change took that place away
        yield request


def judge(shape, request):
    try:
        return sorted(cut(path) for path in model.errors_of(shape, request))
    except model.WrongType:
        return "wrong type"


def cut(path):  # the server shortens a map's key to 64 characters
    return ".".join(part if part.startswith("member") else part[:64] for part in path.split("."))


def verdict(code, message):
    if code == "SerializationException":
        return "wrong type"
    counted = re.match(r"(\d+) validation errors? detected: ", message)
    if code not in ("ValidationException", "ValidationError") or not counted:
        return []
    places_named = re.findall(r"' at '(.*?)' failed to satisfy constraint: ", message, re.DOTALL)
    count = int(counted.group(1))
    assert len(places_named) == min(count, 10), message
    return sorted(places_named) if count <= 10 else count


def same(expected, found):
    return found == len(expected) if isinstance(found, int) and isinstance(expected, list) else found == expected


@pytest.mark.parametrize("service,operation", JSON_OPERATIONS)
def test_the_servers_verdict_is_the_models(wire, service, operation):
    shape, output = shapes(service, operation)
    disagreements, tried = [], {"valid": 0, "invalid": 0, "wrong type": 0}
    for request in cases(shape):
        expected = judge(shape, request)
        tried["wrong type" if expected == "wrong type" else "invalid" if expected else "valid"] += 1
        status, headers, body = wire.json(service, operation, request)
        assert "x-amzn-requestid" in {name.lower() for name in headers}
        answer = json.loads(body) if body else {}
        assert status in (200, 400), (status, answer)
        if status == 200 and output is not None:
            assert not model.misfits(output, answer)
        found = verdict(answer.get("__type", ""), answer.get("message", ""))
        if not same(expected, found):
            disagreements.append((expected, found, answer, str(request)[:300]))
    assert not disagreements[:5], f"{len(disagreements)} of {tried}"
    assert tried["valid"] > 5 and tried["invalid"] + tried["wrong type"] > 10, tried
    print(operation, tried)


def test_the_verdict_on_a_role_name_is_the_models(wire):
    shape, _ = shapes("iam", "GetRole")
    member = shape.members["RoleName"]
    for text in {*strings_around(member, "platform")}:
        status, _, body = wire.query("iam", {"Action": "GetRole", "Version": "2010-05-08", "RoleName": text})
        assert (status == 200) == (not model.errors_of(member, text)), (text, body)


def test_members_that_the_model_does_not_know_are_ignored(wire):
    status, _, body = wire.json("sagemaker", "ListTrainingJobs", {"MaxResults": 1, "Later": {"a": [1]}})
    assert status == 200, body


def job_request(name):
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingInputMode": "File",
            "TrainingImage": "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.13.1-cpu-py39",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]},
        "RoleArn": "arn:aws:iam::000000000000:role/platform",
        "OutputDataConfig": {"S3OutputPath": "s3://oracle-output/prefix"},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {
            "S3DataType": "S3Prefix", "S3Uri": "s3://oracle-no-such-bucket/train"}}}],
        "HyperParameters": {"num_classes": "2"},
        "VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
        "Tags": [{"Key": "team", "Value": "search"}]}


def checked(wire, service, operation, request):
    """The reply, once the model and botocore's own parser have found it right."""
    _, output = shapes(service, operation)
    status, headers, body = wire.json(service, operation, request)
    assert status == 200, body
    if output is None:
        assert body == b""
        return {}
    assert not model.misfits(output, json.loads(body)), body
    parser = botocore.parsers.create_parser("json")
    parsed = parser.parse({"status_code": status, "headers": headers, "body": body}, output)
    return {name: value for name, value in parsed.items() if name != "ResponseMetadata"}


def test_every_reply_is_what_the_model_says_from_create_to_the_end(wire):
    name = f"oracle-{uuid.uuid4()}"
    arn = checked(wire, "sagemaker", "CreateTrainingJob", job_request(name))["TrainingJobArn"]
    deadline = time.monotonic() + 60
    while True:
        job = checked(wire, "sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})
        listed = checked(wire, "sagemaker", "ListTrainingJobs", {"NameContains": name[:20]})
        if job["TrainingJobStatus"] == "Failed":
            break
        assert job["TrainingJobStatus"] == "InProgress" and time.monotonic() < deadline, job
        time.sleep(0.1)  # between looks; the job ends by itself, for want of its data
    assert [row["TrainingJobName"] for row in listed["TrainingJobSummaries"]] == [name]
    assert "oracle-no-such-bucket" in job["FailureReason"]
    assert job["OutputDataConfig"]["KmsKeyId"] == ""
    assert "VpcConfig has no effect" in job["SecondaryStatusTransitions"][0]["StatusMessage"]
    assert all("StatusMessage" in row for row in job["SecondaryStatusTransitions"])
    assert all("EndTime" in row for row in job["SecondaryStatusTransitions"])
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://oracle-output/prefix/{name}/output/model.tar.gz"
    assert checked(wire, "sagemaker", "ListTags", {"ResourceArn": arn}) == {"Tags": [{"Key": "team", "Value": "search"}]}
    streams = checked(wire, "logs", "DescribeLogStreams", {
        "logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": name + "/", "orderBy": "LogStreamName",
        "limit": 1})
    assert "nextToken" not in streams
    for stream in streams["logStreams"]:
        events = checked(wire, "logs", "GetLogEvents", {
            "logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": stream["logStreamName"],
            "startFromHead": True})
        assert events["nextForwardToken"] and events["nextBackwardToken"]


def error_of(call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["ResponseMetadata"]["RetryAttempts"] == 0
    return caught.value.response["Error"]


def test_an_operation_that_is_not_served_says_so_by_name_and_is_not_retried(atelier_server):
    for mode in ("legacy", "standard", "adaptive"):
        config = botocore.config.Config(retries={"mode": mode})
        error = error_of(boto3.client("sagemaker", config=config).create_model, ModelName="m",
                         ExecutionRoleArn="arn:aws:iam::000000000000:role/platform")
        assert error["Message"] == \
            "CreateModel is part of SageMaker's API, and this version of Atelier does not serve it"
        error = error_of(boto3.client("iam", config=config).list_users)
        assert "ListUsers is part of IAM's API" in error["Message"].replace("AWS ", "")


def test_a_wrong_key_and_a_wrong_secret_are_refused_by_the_codes_that_clients_know(atelier_server):
    secret, key = os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_ACCESS_KEY_ID"]
    for service, call, wrong_key, wrong_secret in [
            ("sagemaker", "list_training_jobs", "UnrecognizedClientException", "InvalidSignatureException"),
            ("sts", "get_caller_identity", "InvalidClientTokenId", "SignatureDoesNotMatch")]:
        client = boto3.client(service, aws_access_key_id="AKIANOBODY", aws_secret_access_key=secret)
        assert error_of(getattr(client, call))["Code"] == wrong_key
        client = boto3.client(service, aws_access_key_id=key, aws_secret_access_key="wrong")
        assert error_of(getattr(client, call))["Code"] == wrong_secret


def test_who_is_calling_and_what_a_role_is(atelier_server):
    caller = boto3.client("sts").get_caller_identity()
    assert caller["Arn"].startswith(f"arn:aws:iam::{caller['Account']}:")
    role = boto3.client("iam").get_role(RoleName="platform")["Role"]
    assert role["Arn"] == f"arn:aws:iam::{caller['Account']}:role/platform"
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert role["CreateDate"].tzinfo is not None
