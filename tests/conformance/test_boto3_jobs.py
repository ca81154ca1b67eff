"""Training jobs by the newest boto3."""
import datetime

import pytest

import jobs

QUICK = """
    import os, sys
    print("loss: 0.5")
    print("an error of the script", file=sys.stderr)
    print("loss: 0.25;", "hello", os.environ["SM_HP_WORD"], sys.argv[1:])
    open("/opt/ml/model/weights", "w").write("w")
    open("/opt/ml/output/data/notes", "w").write("n")
"""


@pytest.fixture(scope="module")
def clients(atelier_server):
    import boto3
    session = boto3.session.Session()
    made = {name: session.client(name) for name in ("sagemaker", "logs", "s3", "sts", "iam")}
    made["s3"].create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    return made


@pytest.fixture(scope="module")
def submit(clients):
    def run(script, base="job", **changes):
        name = jobs.name_of(base)
        clients["s3"].put_object(Bucket="models", Key=f"{name}/sourcedir.tar.gz", Body=jobs.pack(script))
        body = jobs.request(name, f"s3://models/{name}/sourcedir.tar.gz")
        body["HyperParameters"] |= changes.pop("HyperParameters", {})
        clients["sagemaker"].create_training_job(**{**body, **changes})
        return name
    return run


@pytest.fixture(scope="module")
def finish(clients):
    def wait(name):
        waiter = clients["sagemaker"].get_waiter("training_job_completed_or_stopped")
        waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 200})
        return clients["sagemaker"].describe_training_job(TrainingJobName=name)
    return wait


@pytest.fixture(scope="module")
def done(submit, finish):
    name = submit(QUICK, "quick", HyperParameters={"word": '"wörld"'}, Tags=[{"Key": "team", "Value": "vision"}],
                  AlgorithmSpecification={"TrainingImage": jobs.IMAGE, "TrainingInputMode": "File",
                                          "MetricDefinitions": [{"Name": "loss", "Regex": "loss: ([0-9.]+)"}]})
    return finish(name)


def test_describe_has_what_clients_read(done):
    assert done["TrainingJobStatus"] == "Completed" and done["SecondaryStatus"] == "Completed"
    assert done["TrainingJobArn"] == f"arn:aws:sagemaker:us-west-2:000000000000:training-job/{done['TrainingJobName']}"
    assert done["ModelArtifacts"]["S3ModelArtifacts"].endswith(f"{done['TrainingJobName']}/output/model.tar.gz")
    assert done["OutputDataConfig"]["KmsKeyId"] == ""
    assert "InstanceGroups" not in done["ResourceConfig"]
    assert done["TrainingTimeInSeconds"] >= 1 and done["BillableTimeInSeconds"] >= 1
    times = [done[key] for key in ("CreationTime", "TrainingStartTime", "TrainingEndTime")]
    assert times == sorted(times) and all(isinstance(time, datetime.datetime) and time.tzinfo for time in times)
    transitions = done["SecondaryStatusTransitions"]
    assert all(step["StatusMessage"] and step["StartTime"] for step in transitions)
    assert [step["Status"] for step in transitions][-1] == "Completed"
    order = list(dict.fromkeys(step["Status"] for step in transitions))
    assert order == [status for status in ("Pending", "Starting", "Downloading", "Training", "Uploading", "Completed")
                     if status in order]
    assert done["FinalMetricDataList"][0]["MetricName"] == "loss"
    assert done["FinalMetricDataList"][0]["Value"] == pytest.approx(0.25)


def test_the_model_and_the_output_are_where_they_are_said_to_be(clients, done):
    import io
    import tarfile
    prefix = f"boto3/{done['TrainingJobName']}/output"
    for name, member in (("model", "weights"), ("output", "notes")):
        body = clients["s3"].get_object(Bucket="models", Key=f"{prefix}/{name}.tar.gz")["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            assert member in [entry.removeprefix("./") for entry in archive.getnames()]
            if name == "output":
                assert any(entry.endswith("data/notes") or entry == "notes" for entry in archive.getnames())


def test_log_events_come_in_pages_and_in_order(clients, done):
    logs, name = clients["logs"], done["TrainingJobName"]
    group = "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name + "/",
                                        orderBy="LogStreamName")
    assert "nextToken" not in streams
    (stream,) = streams["logStreams"]
    assert stream["logStreamName"].startswith(f"{name}/algo-1-")
    messages, token = [], None
    while True:
        page = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True,
                                   limit=2, **({"nextToken": token} if token else {}))
        assert len(page["events"]) <= 2
        if not page["events"]:
            break
        messages += [event["message"] for event in page["events"]]
        token = page["nextForwardToken"]
    assert [m for m in messages if m.startswith(("loss", "an error"))] == [
        "loss: 0.5", "an error of the script", "loss: 0.25; hello wörld ['--word', 'wörld']"]
    again = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)
    assert [event["message"] for event in again["events"]] == messages
    with pytest.raises(logs.exceptions.ResourceNotFoundException):
        logs.get_log_events(logGroupName=group, logStreamName="no-such/algo-1-1")


def test_a_stopped_job_ends_by_the_waiter(clients, submit, finish):
    name = submit("""
        import time
        print("sleeping", flush=True)
        time.sleep(600)
        """, "stop")
    clients["sagemaker"].stop_training_job(TrainingJobName=name)
    ended = finish(name)
    assert ended["TrainingJobStatus"] == "Stopped"
    with pytest.raises(clients["sagemaker"].exceptions.ClientError) as refused:
        clients["sagemaker"].stop_training_job(TrainingJobName=name)
    assert refused.value.response["Error"]["Code"] == "ValidationException"


def test_a_job_that_runs_too_long_is_stopped_by_its_limit(submit, finish):
    ended = finish(submit("import time\ntime.sleep(600)", "limit", StoppingCondition={"MaxRuntimeInSeconds": 2}))
    assert ended["TrainingJobStatus"] == "Stopped"
    assert ended["SecondaryStatus"] == "MaxRuntimeExceeded"


def test_a_failed_job_tells_why(clients, submit):
    from botocore.exceptions import WaiterError
    name = submit("import no_such_module", "failing")
    with pytest.raises(WaiterError):
        clients["sagemaker"].get_waiter("training_job_completed_or_stopped").wait(
            TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 200})
    failed = clients["sagemaker"].describe_training_job(TrainingJobName=name)
    assert failed["TrainingJobStatus"] == "Failed"
    assert failed["FailureReason"].startswith("AlgorithmError")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in failed["FailureReason"]


def test_listing_filters_sorts_and_pages(clients, done, submit):
    sagemaker = clients["sagemaker"]
    names = {submit("print(1)", "listed") for _ in range(3)}
    paginator = sagemaker.get_paginator("list_training_jobs")
    pages = list(paginator.paginate(NameContains="listed", SortBy="Name", SortOrder="Ascending",
                                    PaginationConfig={"PageSize": 2}))
    assert [len(page["TrainingJobSummaries"]) for page in pages] == [2, 1]
    assert [s["TrainingJobName"] for page in pages for s in page["TrainingJobSummaries"]] == sorted(names)
    completed = sagemaker.list_training_jobs(StatusEquals="Completed", NameContains=done["TrainingJobName"])
    assert [s["TrainingJobName"] for s in completed["TrainingJobSummaries"]] == [done["TrainingJobName"]]
    future = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    assert sagemaker.list_training_jobs(CreationTimeAfter=future)["TrainingJobSummaries"] == []


def test_the_same_create_again_is_a_clash_and_a_retry_is_not(clients, submit):
    sagemaker = clients["sagemaker"]
    name = submit("print(1)", "twice")
    body = jobs.request(name, "s3://models/x.tar.gz")
    with pytest.raises(sagemaker.exceptions.ResourceInUse):
        sagemaker.create_training_job(**body)

    # A retry after a lost reply carries the same invocation id: botocore sends it again by itself.
    import boto3
    lost = boto3.session.Session().client("sagemaker")
    dropped = []

    def drop_first_reply(http_response, **_):
        if not dropped:
            dropped.append(http_response)
            return 0  # seconds to wait before the retry
        return None

    lost.meta.events.register("needs-retry.sagemaker.CreateTrainingJob", lambda response, **_: (
        drop_first_reply(response)), unique_id="drop")
    again = jobs.name_of("retried")
    assert lost.create_training_job(**jobs.request(again, "s3://models/x.tar.gz"))["TrainingJobArn"].endswith(again)
    assert dropped
    assert [s["TrainingJobName"] for s in sagemaker.list_training_jobs(NameContains=again)["TrainingJobSummaries"]] == [again]


REFUSALS = {
    "an unknown job": (lambda c: c.describe_training_job(TrainingJobName="no-such-job"), "no-such-job"),
    "a bad enum": (lambda c: c.create_training_job(**jobs.request(
        "bad", "s3://b/k", AlgorithmSpecification={"TrainingImage": jobs.IMAGE, "TrainingInputMode": "Carrier"})),
        "Carrier"),
    "a long name": (lambda c: c.create_training_job(**jobs.request("n" * 64, "s3://b/k")), "63"),
    "an unknown image": (lambda c: c.create_training_job(**jobs.request(
        "bad", "s3://b/k", AlgorithmSpecification={"TrainingImage": "example/none:1", "TrainingInputMode": "File"})),
        "example/none:1"),
    "spot with too short a wait": (lambda c: c.create_training_job(**jobs.request(
        "bad", "s3://b/k", EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": 50})), "MaxWaitTimeInSeconds"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_value(clients, name):
    call, part = REFUSALS[name]
    with pytest.raises(clients["sagemaker"].exceptions.ClientError) as refused:
        call(clients["sagemaker"])
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert part in refused.value.response["Error"]["Message"]


def test_an_operation_that_is_not_served_says_so_by_its_name(clients):
    with pytest.raises(clients["sagemaker"].exceptions.ClientError) as refused:
        clients["sagemaker"].list_models()
    assert "ListModels" in refused.value.response["Error"]["Message"]


def test_identity_and_role(clients):
    identity = clients["sts"].get_caller_identity()
    assert identity["Account"] == "000000000000" and identity["Arn"]
    role = clients["iam"].get_role(RoleName="atelier")["Role"]
    assert role["Arn"].endswith("role/atelier")


def test_a_wrong_secret_is_refused(atelier_server):
    import boto3
    from botocore.exceptions import ClientError
    stranger = boto3.session.Session(aws_secret_access_key="x" * 40, aws_access_key_id="AKIAXXXXXXXXXXXXXXXX")
    for client, call in (("sagemaker", "list_training_jobs"), ("s3", "list_buckets"), ("sts", "get_caller_identity")):
        with pytest.raises(ClientError) as refused:
            getattr(stranger.client(client), call)()
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 401, 403)
