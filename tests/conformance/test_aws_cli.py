"""The AWS CLI on objects and jobs: version 1 as it is, and the distribution's version 2."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import jobs

V2 = pathlib.Path("/usr/bin/aws")


def command_of(version):
    if version == "v1":
        return [pathlib.Path(sys.executable).with_name("aws")]
    found = re.search(r"aws-cli/2\.(\d+)", subprocess.run([V2, "--version"], text=True, capture_output=True).stdout)
    if not found:
        pytest.fail(f"{V2} is no AWS CLI v2")
    # AWS_ENDPOINT_URL counts from 2.13 on; Debian 12 has 2.9.
    return [V2, *(["--endpoint-url", os.environ["AWS_ENDPOINT_URL"]] if int(found[1]) < 13 else [])]


@pytest.fixture(scope="module", params=["v1", pytest.param("v2", marks=pytest.mark.skipif(
    not V2.exists(), reason="this distribution has no package of the AWS CLI v2"))])
def aws(request, atelier_server):
    command = command_of(request.param)

    def run(*arguments, check=True):
        done = subprocess.run([*command, "--output", "json", *map(str, arguments)],
                              text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
        assert not check or done.returncode == 0, done.stderr
        return done if not check else json.loads(done.stdout) if done.stdout.lstrip().startswith(("{", "[")) else done.stdout
    run("s3", "mb", "s3://cli")
    yield run
    run("s3", "rb", "--force", "s3://cli")


def test_objects_are_copied_synced_listed_and_removed(aws, tmp_path):
    folder = tmp_path / "up"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub/b ü.txt").write_text("b")
    (folder / "big.bin").write_bytes(b"0123456789" * 2_000_000)  # above the CLI's threshold for parts
    aws("s3", "sync", folder, "s3://cli/tree")
    listing = aws("s3", "ls", "--recursive", "s3://cli/tree")
    assert "tree/sub/b ü.txt" in listing and "20000000" in listing
    back = tmp_path / "down"
    aws("s3", "cp", "--recursive", "s3://cli/tree", back)
    assert (back / "sub/b ü.txt").read_text() == "b"
    assert (back / "big.bin").read_bytes() == (folder / "big.bin").read_bytes()
    aws("s3", "mv", "s3://cli/tree/a.txt", "s3://cli/moved.txt")
    aws("s3", "rm", "--recursive", "s3://cli/tree")
    assert aws("s3", "ls", "--recursive", "s3://cli/").split()[-1] == "moved.txt"


def test_a_job_runs_from_the_command_line(aws, tmp_path):
    (tmp_path / "sourcedir.tar.gz").write_bytes(jobs.pack("print('trained', flush=True)"))
    aws("s3", "cp", tmp_path / "sourcedir.tar.gz", "s3://cli/source/sourcedir.tar.gz")
    name = jobs.name_of("cli")
    body = jobs.request(name, "s3://cli/source/sourcedir.tar.gz",
                        OutputDataConfig={"S3OutputPath": "s3://cli/models"})
    (tmp_path / "request.json").write_text(json.dumps(body))
    made = aws("sagemaker", "create-training-job", "--cli-input-json", f"file://{tmp_path}/request.json")
    assert made["TrainingJobArn"].endswith(name)
    # The CLI's own waiter asks every two minutes, and starting the CLI is slow: boto3 waits for it.
    import boto3
    boto3.session.Session().client("sagemaker").get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 200})
    described = aws("sagemaker", "describe-training-job", "--training-job-name", name)
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    aws("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", name)
    listed = aws("sagemaker", "list-training-jobs", "--name-contains", name)
    assert [s["TrainingJobName"] for s in listed["TrainingJobSummaries"]] == [name]
    assert "model.tar.gz" in aws("s3", "ls", f"s3://cli/models/{name}/output/")
    stream = aws("logs", "describe-log-streams", "--log-group-name", "/aws/sagemaker/TrainingJobs",
                 "--log-stream-name-prefix", name + "/")["logStreams"][0]["logStreamName"]
    events = aws("logs", "get-log-events", "--log-group-name", "/aws/sagemaker/TrainingJobs", "--log-stream-name", stream)
    assert "trained" in [event["message"] for event in events["events"]]


def test_a_refusal_reaches_the_terminal_with_its_reason(aws):
    done = aws("sagemaker", "describe-training-job", "--training-job-name", "no-such-job", check=False)
    assert done.returncode != 0
    assert "no-such-job" in done.stderr and "DescribeTrainingJob" in done.stderr


def test_identity(aws):
    assert aws("sts", "get-caller-identity")["Account"] == "000000000000"
