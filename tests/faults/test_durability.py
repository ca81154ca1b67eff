"""An answer comes after what it acknowledges is on disk: files, the names of files in their folders, and the write-ahead
logs of the databases. A kill cannot show that, for the kernel still writes what it has; the order of the server's
own system calls can (sync_recorder.c)."""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))
import jobs as small_jobs  # noqa: E402
from server import Server  # noqa: E402

SMALL, LARGE = 100, 5 << 20  # in the database; in a file


class Recorded:
    """A server whose system calls are written down."""

    def __init__(self, folder, recorder, monkeypatch, drop):
        self.record = folder / "record"
        monkeypatch.setenv("LD_PRELOAD", str(recorder))
        monkeypatch.setenv("SYNC_RECORD", str(self.record))
        monkeypatch.setenv("SYNC_DROP", "1" if drop else "0")
        self.server = Server(folder / "data").start()
        monkeypatch.undo()
        self.data = str(self.server.data_dir)

    def client(self, service):
        import boto3
        environment = self.server.environment()
        return boto3.client(service, endpoint_url=self.server.url, region_name=environment["AWS_DEFAULT_REGION"],
                            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"])

    def steps_of(self, call):
        """What the server did from here to the answer of the call."""
        before = len(self.record.read_text().splitlines())
        call()
        steps = [line.split(" ", 1) for line in self.record.read_text().splitlines()[before:]]
        answered = next(i for i, step in enumerate(steps) if step[0] == "a")
        assert steps[answered][1] == "200", steps[:answered + 1]
        return [(what, path.removeprefix(self.data + "/")) for what, path in steps[:answered]]


def counts(path):
    """Whether it has to be on disk: a database is in its log, and the rest is no promise to a client."""
    return path.endswith("-wal") or path.startswith("objects/bodies")


def not_durable(steps):
    missing = []
    for what, path in steps:
        if what == "s":
            missing = [one for one in missing if one != path]
        elif counts(path):
            missing.append(path)
    return missing


@pytest.fixture(scope="module")
def recorder(tmp_path_factory):
    library = tmp_path_factory.mktemp("recorder") / "sync_recorder.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, HERE / "sync_recorder.c", "-ldl"],
                   check=True)
    return library


def acknowledged(recorded):
    s3 = recorded.client("s3")
    s3.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.create_bucket(Bucket="source", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket="source", Key="sourcedir.tar.gz", Body=small_jobs.pack("print('done')"))
    name = small_jobs.name_of("durable")
    request = small_jobs.request(name, "s3://source/sourcedir.tar.gz")
    upload = s3.create_multipart_upload(Bucket="models", Key="parts")["UploadId"]
    part = {}
    return {
        "a small object": recorded.steps_of(lambda: s3.put_object(Bucket="models", Key="small", Body=b"s" * SMALL)),
        "a large object": recorded.steps_of(lambda: s3.put_object(Bucket="models", Key="large", Body=b"l" * LARGE)),
        "a part": recorded.steps_of(lambda: part.update(s3.upload_part(
            Bucket="models", Key="parts", UploadId=upload, PartNumber=1, Body=b"p" * LARGE))),
        "an upload": recorded.steps_of(lambda: s3.complete_multipart_upload(
            Bucket="models", Key="parts", UploadId=upload,
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})),
        "a training job": recorded.steps_of(lambda: recorded.client("sagemaker").create_training_job(**request)),
    }


def test_each_answer_comes_after_what_it_acknowledges_is_on_disk(recorder, tmp_path, monkeypatch):
    recorded = Recorded(tmp_path, recorder, monkeypatch, drop=False)
    try:
        acts = acknowledged(recorded)
    finally:
        recorded.server.stop()
    # The job may be on its way before its answer is: what is written of that is no part of the answer.
    job = acts.pop("a training job")
    assert ("s", "jobs/jobs.db-wal") in job[job.index(("w", "jobs/jobs.db-wal")):], job
    for act, steps in acts.items():
        assert ("w", "objects/index.db-wal") in steps, (act, steps)
        assert not not_durable(steps), (act, steps)
    for act in ("a large object", "a part"):
        steps = acts[act]
        body = next(path for what, path in steps if what == "w" and path.startswith("objects/bodies"))
        row = next(i for i, (what, path) in enumerate(steps) if what == "w" and path.endswith("-wal"))
        synced = [path for what, path in steps[:row] if what == "s"]
        # The row that names the file is written after the file and its name are there for good.
        assert body in synced and str(pathlib.PurePosixPath(body).parent) in synced, (act, steps)


def test_a_server_that_syncs_nothing_is_found_out(recorder, tmp_path, monkeypatch):
    recorded = Recorded(tmp_path, recorder, monkeypatch, drop=True)
    try:
        acts = acknowledged(recorded)
    finally:
        recorded.server.stop()
    for act, steps in acts.items():
        assert not_durable(steps) and not any(what == "s" for what, _ in steps), (act, steps)
