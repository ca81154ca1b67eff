"""Spot jobs, what they cost, and the region of a data folder, by a real server and boto3."""
import json
import time

import boto3
import pytest

import jobs
from server import Server

INSTANCES = """
currency = "EUR"
interruption_notice_seconds = 30
[instances]
"ml.mine.1x" = { vcpus = 1, memory_gib = 0.5, price_per_hour = 36, spot_price_per_hour = 9 }
"ml.mine.all" = { vcpus = 100, memory_gib = 0.5, price_per_hour = 72 }
"""
PRICES = """
[[list]]
name = "a cloud"
currency = "EUR"
date = "2026-11-30"
prices = { "ml.mine.1x" = 72, "ml.mine.all" = 72 }
"""
WAITS = """
    import time
    print("runs")
    time.sleep(300)
    """


@pytest.fixture
def server(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "instances.toml").write_text(INSTANCES)
    (data / "prices.toml").write_text(PRICES)
    server = Server(data).start()
    yield server
    server.stop()


@pytest.fixture
def client(server):
    environment = server.environment()
    session = boto3.session.Session(aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                                    aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
                                    region_name=environment["AWS_DEFAULT_REGION"])
    return lambda service: session.client(service, endpoint_url=server.url)


def create(client, name, script, instance_type, **changes):
    bucket = f"code-{name}"
    client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    client("s3").put_object(Bucket=bucket, Key="source.tar.gz", Body=jobs.pack(script))
    body = jobs.request(name, f"s3://{bucket}/source.tar.gz", **changes)
    body["ResourceConfig"]["InstanceType"] = instance_type
    body["OutputDataConfig"]["S3OutputPath"] = f"s3://{bucket}/models"
    client("sagemaker").create_training_job(**body)


def wait(client, name, holds):
    """Polls as an SDK does; a stuck job is the test's time-out."""
    for _ in range(600):
        job = client("sagemaker").describe_training_job(TrainingJobName=name)
        if holds(job):
            return job
        assert job["TrainingJobStatus"] != "Failed", job["FailureReason"]
        time.sleep(0.1)
    raise AssertionError(f"{name}: {job['SecondaryStatusTransitions']}")


def wait_for_line(client, name):
    """The program has begun: before that there is nobody who could take a warning."""
    group = "/aws/sagemaker/TrainingJobs"
    for _ in range(600):
        streams = client("logs").describe_log_streams(logGroupName=group, logStreamNamePrefix=name + "/")["logStreams"]
        if streams and client("logs").get_log_events(logGroupName=group, logStreamName=streams[0]["logStreamName"],
                                                     startFromHead=True)["events"]:
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} printed nothing")


def test_an_on_demand_job_takes_the_machine_from_a_spot_job_which_comes_back(server, client):
    create(client, "spot", WAITS, "ml.mine.1x", EnableManagedSpotTraining=True,
           StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
           Tags=[{"Key": "team", "Value": "search"}])
    wait_for_line(client, "spot")
    create(client, "on-demand", "print('short')", "ml.mine.all")
    job = wait(client, "on-demand", lambda job: job["TrainingJobStatus"] != "InProgress")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    job = wait(client, "spot", lambda job: [step["Status"] for step in job["SecondaryStatusTransitions"]].count(
        "Interrupted") == 1 and job["SecondaryStatus"] == "Training")
    messages = [step["StatusMessage"] for step in job["SecondaryStatusTransitions"]]
    assert "Spot interruption notice: on-demand job 'on-demand' needs the room" in messages
    assert any("killed by SIGTERM" in message for message in messages), messages
    server.run("jobs", "interrupt", "spot", "--reason", "a drill")
    wait(client, "spot", lambda job: any("a drill" in step["StatusMessage"]
                                         for step in job["SecondaryStatusTransitions"]))
    server.run("jobs", "stop", "spot")
    job = wait(client, "spot", lambda job: job["TrainingJobStatus"] == "Stopped")
    assert 1 <= job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"] / 4 + 1
    assert server.run("jobs", "interrupt", "spot", check=False).returncode != 0

    rows = json.loads(server.run("cost", "--by", "tag:team", "--json").stdout)
    assert [row["key"] for row in rows] == ["(without the tag)", "search"]
    spot = rows[1]
    assert spot["currency"] == "EUR" and spot["elsewhere_list"] == "a cloud (2026-11-30), EUR"
    assert spot["cost"] == pytest.approx(job["BillableTimeInSeconds"] * 36 / 3600)
    assert spot["elsewhere"] == pytest.approx(job["TrainingTimeInSeconds"] * 72 / 3600)
    shown = server.run("jobs", "show", "spot").stdout
    assert "3 (2 interruptions, 0 retries)" in shown and " EUR" in shown and "a cloud (2026-11-30)" in shown
    assert server.run("cost", "--since", "2026-13-40", check=False).returncode == 2


def test_a_programs_own_failure_is_not_retried(server, client):
    create(client, "wrong", "import sys; sys.exit(3)", "ml.mine.1x", RetryStrategy={"MaximumRetryAttempts": 3})
    job = wait(client, "wrong", lambda job: job["TrainingJobStatus"] == "Failed")
    assert "Restarting" not in [step["Status"] for step in job["SecondaryStatusTransitions"]]


def test_a_data_folder_keeps_its_region(tmp_path):
    server = Server(tmp_path / "data").start("127.0.0.1:0", "--region", "eu-west-1")
    assert server.environment()["AWS_DEFAULT_REGION"] == "eu-west-1"
    server.stop()
    server.start()
    assert server.environment()["AWS_DEFAULT_REGION"] == "eu-west-1"
    server.stop()
    with pytest.raises(AssertionError, match="was made for eu-west-1"):
        server.start("127.0.0.1:0", "--region", "us-west-2")
    server.stop()
