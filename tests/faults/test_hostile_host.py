"""A host that misbehaves under a running `atelier serve`: a full disk, a locked database, a clock that jumps, and an S3
that is frozen. What has to hold: a clear error, nothing lost, and recovery without hands."""
import contextlib
import datetime
import email.utils
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

import boto3
import botocore.config
import botocore.exceptions
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import jobs as small_jobs  # noqa: E402
from server import Server  # noqa: E402

# A log of more than the rest of a block, with metrics in each line: several, so that a full disk has room for a line
# and none for them.
METRICS = ["loss", *(f"loss-{i}-" + "x" * 200 for i in range(19))]
SCRIPT = """
    import os, time

    def save():
        with open("/opt/ml/model/weights", "wb") as file:
            file.write(b"w" * 100_000)

    if os.environ["SM_HP_SAVE"] == "first":
        save()
    for line in range(int(os.environ["SM_HP_LINES"])):
        print("line", line, f"loss={line}", "." * 200, flush=True)
        time.sleep(0.05)
    if os.environ["SM_HP_SAVE"] == "last":
        save()
    """
FAKETIME = next(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


class World:
    """A server, and boto3 clients that try once."""

    def __init__(self, server):
        self.server = server
        environment = server.environment()
        self.session = boto3.session.Session(
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            region_name=environment["AWS_DEFAULT_REGION"])
        for bucket in ("models", "source", "objects"):
            self.client("s3").create_bucket(Bucket=bucket,
                                            CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        self.client("s3").put_object(Bucket="source", Key="sourcedir.tar.gz", Body=small_jobs.pack(SCRIPT))

    def client(self, service, read_timeout=30):
        config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=read_timeout)
        return self.session.client(service, endpoint_url=self.server.url, config=config)

    def create(self, lines, save="last", **changes):
        name = small_jobs.name_of("hostile")
        body = small_jobs.request(name, "s3://source/sourcedir.tar.gz", **changes)
        body["HyperParameters"].update(lines=str(lines), save=save)
        body["AlgorithmSpecification"]["MetricDefinitions"] = [
            {"Name": metric, "Regex": "loss=([0-9]+)"} for metric in METRICS]
        self.client("sagemaker").create_training_job(**body)
        return name

    def describe(self, name):
        return self.client("sagemaker").describe_training_job(TrainingJobName=name)

    def lines(self, name):
        logs, group = self.client("logs"), "/aws/sagemaker/TrainingJobs"
        streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name + "/")["logStreams"]
        if not streams:
            return []
        pages = logs.get_log_events(logGroupName=group, logStreamName=streams[0]["logStreamName"], startFromHead=True)
        return [int(e["message"].split()[1]) for e in pages["events"] if e["message"].startswith("line ")]

    def values(self, name, metric):
        """How many there are of the metric, and their sum."""
        now = datetime.datetime.now(datetime.timezone.utc)
        points = self.client("cloudwatch").get_metric_statistics(
            Namespace="/aws/sagemaker/TrainingJobs", MetricName=metric, Period=60,
            Dimensions=[{"Name": "TrainingJobName", "Value": name}], Statistics=["SampleCount", "Sum"],
            StartTime=now - datetime.timedelta(hours=1), EndTime=now + datetime.timedelta(hours=1))["Datapoints"]
        return sum(point["SampleCount"] for point in points), sum(point["Sum"] for point in points)

    def wait(self, name, done, limit=60):
        end = time.monotonic() + limit
        while not done():
            assert time.monotonic() < end, f"{self.describe(name)}; log: {self.server.log.read_text()[-3000:]}"
            time.sleep(0.1)

    def wait_for_lines(self, name, count):
        self.wait(name, lambda: len(self.lines(name)) >= count)

    def wait_for_end(self, name, limit=90):
        self.wait(name, lambda: self.describe(name)["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"), limit)
        return self.describe(name)


@pytest.fixture
def world(tmp_path):
    server = Server(tmp_path / "data").start()
    try:
        yield World(server)
    finally:
        server.stop()


@contextlib.contextmanager
def small_disk(folder, megabytes):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        unmount(folder)


def unmount(folder):
    for _ in range(100):  # agents of ended jobs may take some milliseconds to leave
        if subprocess.run(["umount", folder], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "-l", folder], check=True)


def runs(*arguments):
    """Whether a script of these jobs with such arguments is among the host's processes."""
    wanted = "\0".join(("train.py", *arguments, "")).encode()
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if wanted in entry.read_bytes():
                return True
    return False


def fill(folder):
    """Takes all room, to the last block; returns the file that holds it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert shutil.disk_usage(folder).free == 0
    return filler


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_is_said_loses_nothing_and_is_recovered_from_without_hands(tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        server = Server(disk / "data").start()
        try:
            world = World(server)
            kept = b"k" * 200_000
            world.client("s3").put_object(Bucket="objects", Key="kept", Body=kept)
            name = world.create(lines=60)
            saved = world.create(lines=61, save="first")
            jobs = {name: 60, saved: 61}
            for job in jobs:
                world.wait_for_lines(job, 5)
            assert all(runs("--lines", str(lines)) for lines in jobs.values())
            filler = fill(disk)
            for refuse in (lambda: world.client("s3").put_object(Bucket="objects", Key="large", Body=b"l" * 300_000),
                           lambda: world.create(lines=1)):
                with pytest.raises(botocore.exceptions.ClientError) as refused:
                    refuse()
                answer = refused.value.response
                assert answer["ResponseMetadata"]["HTTPStatusCode"] >= 500, answer
                assert "full" in answer["Error"]["Message"] or "space" in answer["Error"]["Message"], answer
            # What only reads goes on.
            assert world.client("s3").get_object(Bucket="objects", Key="kept")["Body"].read() == kept
            for job, lines in jobs.items():
                world.wait(job, lambda: not runs("--lines", str(lines)))
            time.sleep(1)  # for the agents, which can write nothing of the programs' ends
            for job, lines in jobs.items():
                assert world.describe(job)["TrainingJobStatus"] == "InProgress"
                assert len(world.lines(job)) < lines
            filler.unlink()
            ended = world.wait_for_end(name)
            # Its model did not fit while the program wrote it, and it says so.
            assert ended["TrainingJobStatus"] == "Failed", ended
            assert "No space left on device" in ended["FailureReason"], ended
            # Of the other nothing is missing.
            assert world.wait_for_end(saved)["TrainingJobStatus"] == "Completed"
            for job, lines in jobs.items():
                assert world.lines(job) == list(range(lines))
                for metric in METRICS:
                    assert world.values(job, metric) == (lines, sum(range(lines))), metric
                assert "missing" not in str(world.describe(job)), world.describe(job)
            after = world.create(lines=2)
            assert world.wait_for_end(after)["TrainingJobStatus"] == "Completed"
            world.client("s3").put_object(Bucket="objects", Key="large", Body=b"l" * 300_000)
        finally:
            server.stop()


def test_a_database_that_another_process_has_locked_is_waited_for_then_named(world):
    running = world.create(lines=20)
    world.wait_for_lines(running, 3)
    other = sqlite3.connect(world.server.data_dir / "jobs/jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(botocore.exceptions.ClientError) as refused:
            world.create(lines=1)
        answer = refused.value.response
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 503, answer
        assert "another process uses it" in answer["Error"]["Message"], answer
        assert world.describe(running)["TrainingJobStatus"] == "InProgress"  # its end cannot be written yet
    finally:
        other.execute("ROLLBACK")
    ended = world.wait_for_end(running)
    assert ended["TrainingJobStatus"] == "Completed", ended
    assert world.lines(running) == list(range(20))
    waited = []
    other.execute("BEGIN IMMEDIATE")
    create = threading.Thread(target=lambda: waited.append(world.create(lines=1)))
    create.start()
    time.sleep(1)
    other.execute("ROLLBACK")
    create.join(30)
    assert waited and world.wait_for_end(waited[0])["TrainingJobStatus"] == "Completed"


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed: scripts/setup test")
def test_a_clock_that_jumps_neither_ends_a_job_nor_bills_it(tmp_path, monkeypatch):
    offset = tmp_path / "offset"
    offset.write_text("+0")
    for variable, value in {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": offset, "FAKETIME_NO_CACHE": "1",
                            "DONT_FAKE_MONOTONIC": "1"}.items():
        monkeypatch.setenv(variable, str(value))
    server = Server(tmp_path / "data").start()
    monkeypatch.undo()
    try:
        world = World(server)
        name = world.create(lines=120, StoppingCondition={"MaxRuntimeInSeconds": 300})
        world.wait_for_lines(name, 5)
        for jump in ("+600", "-600", "+0"):  # further, and no client's signature is of this time
            offset.write_text(jump)
            shown = world.describe(name)["ResponseMetadata"]["HTTPHeaders"]["date"]
            ahead = email.utils.parsedate_to_datetime(shown).timestamp() - time.time()
            assert abs(ahead - int(jump)) < 60, f"{jump}: the server's clock is {ahead:.0f} s ahead"
            count = len(world.lines(name))
            world.wait_for_lines(name, count + 20)
            assert world.describe(name)["TrainingJobStatus"] == "InProgress"
        ended = world.wait_for_end(name)
        assert ended["TrainingJobStatus"] == "Completed", ended
        assert world.lines(name) == list(range(120))
        starts = [step["StartTime"] for step in ended["SecondaryStatusTransitions"]]
        assert starts == sorted(starts), starts
        assert ended["TrainingStartTime"] <= ended["TrainingEndTime"]
        assert 6 <= ended["BillableTimeInSeconds"] <= 120, ended["BillableTimeInSeconds"]
    finally:
        server.stop()


def test_an_s3_that_is_frozen_while_a_job_delivers_is_waited_for(world):
    name = world.create(lines=20)
    world.wait_for_lines(name, 5)
    world.server.process.send_signal(19)  # SIGSTOP: it takes connections, and says nothing
    try:
        time.sleep(8)
    finally:
        world.server.process.send_signal(18)
    ended = world.wait_for_end(name)
    assert ended["TrainingJobStatus"] == "Completed", ended
    assert world.lines(name) == list(range(20))
    model = ended["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").split("/", 1)
    assert world.client("s3").head_object(Bucket=model[0], Key=model[1])["ContentLength"] > 0
