"""The oldest boto3 that this Python imports (of 2019, years before AWS_ENDPOINT_URL): endpoint_url= for each client."""
import datetime
import os

import pytest

import jobs

pytestmark = pytest.mark.boto3_old


@pytest.fixture(scope="module")
def client(atelier_server):
    import boto3
    return lambda name: boto3.client(name, endpoint_url=os.environ["AWS_ENDPOINT_URL"])


@pytest.fixture(scope="module")
def s3(client):
    made = client("s3")
    made.create_bucket(Bucket="old", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    return made


def test_objects_go_there_and_back(s3, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 12)  # above the threshold for parts
    s3.upload_file(str(tmp_path / "big"), "old", "tree/big ü", ExtraArgs={"Metadata": {"made-by": "test"}})
    s3.put_object(Bucket="old", Key="tree/small", Body=b"small")
    listed = [(entry["Key"], entry["Size"]) for entry in s3.list_objects(Bucket="old", Prefix="tree/")["Contents"]]
    assert listed == [("tree/big ü", 12 << 20), ("tree/small", 5)]
    s3.download_file("old", "tree/big ü", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()
    assert s3.head_object(Bucket="old", Key="tree/big ü")["Metadata"] == {"made-by": "test"}
    assert s3.get_object(Bucket="old", Key="tree/small", Range="bytes=1-2")["Body"].read() == b"ma"
    s3.copy_object(Bucket="old", Key="copy", CopySource={"Bucket": "old", "Key": "tree/small"})
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="old", PaginationConfig={"PageSize": 1})
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == ["copy", "tree/big ü", "tree/small"]
    s3.delete_objects(Bucket="old", Delete={"Objects": [{"Key": "copy"}, {"Key": "tree/small"}, {"Key": "tree/big ü"}]})
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="old", Key="copy")


def test_a_job_runs_and_says_what_it_did(s3, client):
    sagemaker, name = client("sagemaker"), jobs.name_of("old")
    s3.put_object(Bucket="old", Key="source/sourcedir.tar.gz", Body=jobs.pack("""
        import os
        print("loss=0.25", flush=True)
        open(os.environ["SM_MODEL_DIR"] + "/weights", "w").write("trained")
        """))
    body = jobs.request(name, "s3://old/source/sourcedir.tar.gz", OutputDataConfig={"S3OutputPath": "s3://old/models"})
    body["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    sagemaker.create_training_job(**body)
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert {metric["MetricName"]: metric["Value"] for metric in job["FinalMetricDataList"]} == {"loss": 0.25}
    key = job["ModelArtifacts"]["S3ModelArtifacts"].split("/", 3)[3]
    assert s3.head_object(Bucket="old", Key=key)["ContentLength"] > 0
    logs, group = client("logs"), "/aws/sagemaker/TrainingJobs"
    stream, = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name + "/")["logStreams"]
    events = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)["events"]
    assert "loss=0.25" in [event["message"] for event in events]
    points = client("cloudwatch").get_metric_statistics(  # Query and XML, in this version
        Namespace=group, MetricName="loss", Dimensions=[{"Name": "TrainingJobName", "Value": name}], Period=60,
        Statistics=["Average"], StartTime=job["CreationTime"], EndTime=job["LastModifiedTime"] + datetime.timedelta(1))
    assert [point["Average"] for point in points["Datapoints"]] == [0.25]


def test_who_calls_and_what_is_not_there(client):
    assert client("sts").get_caller_identity()["Account"] == "000000000000"
    sagemaker = client("sagemaker")
    with pytest.raises(sagemaker.exceptions.ClientError, match="no-such-job"):
        sagemaker.describe_training_job(TrainingJobName="no-such-job")
