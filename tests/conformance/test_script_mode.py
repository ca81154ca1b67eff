"""Script mode from end to end: where packages come from, and launchers of several processes."""
import io
import re
import tarfile

import boto3
import pytest

from jobs import name_of, request
from server import Server
from wheels import make_wheel


def archive(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            data = text if isinstance(text, bytes) else text.encode()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


TWO = {"InstanceType": "ml.cpu.1x", "InstanceCount": 2, "VolumeSizeInGB": 1}

# As the SDK's examples do: the rank is the place of the host among SM_HOSTS.
GLOO = """
import json, os, torch, torch.distributed as dist
hosts, host = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
os.environ["WORLD_SIZE"], os.environ["RANK"] = str(len(hosts)), str(hosts.index(host))
dist.init_process_group("gloo")
value = torch.tensor([float(10 ** dist.get_rank())])
dist.all_reduce(value)
files = "".join(sorted(os.listdir(os.environ["SM_CHANNEL_PARTS"])))
print(f"{host} is rank {dist.get_rank()} of {dist.get_world_size()}: sum {value.item():.0f}; files {files};")
open(f"/opt/ml/model/of-{host}", "w").close()
dist.barrier()
"""
ONE_FAILS = """
import os, time
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    raise ValueError("the second instance has no pictures")
time.sleep(600)
"""

GROUPS = {"VolumeSizeInGB": 1, "InstanceGroups": [
    {"InstanceGroupName": "readers", "InstanceType": "ml.cpu.1x", "InstanceCount": 1},
    {"InstanceGroupName": "learners", "InstanceType": "ml.cpu.1x", "InstanceCount": 1}]}
WHAT_A_GROUP_SEES = """
import json, os
print(os.environ["SM_CURRENT_HOST"], "of", os.environ["SM_CURRENT_INSTANCE_GROUP"], "sees",
      json.loads(os.environ["SM_CHANNELS"]), sorted(os.listdir("/opt/ml/input/data")))
print("groups", os.environ["SM_INSTANCE_GROUPS_DICT"])
"""
# The variables are torch's own; the launcher is named pytorchddp.
DDP = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(10 ** dist.get_rank())])
dist.all_reduce(value)
print(f"rank {os.environ['RANK']} local {os.environ['LOCAL_RANK']} of {dist.get_world_size()}: sum {value.item():.0f};")
dist.barrier()
"""


def channel(name, **source):
    return {"ChannelName": name, "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": "s3://source/parts/", **source}}}


class Jobs:
    def __init__(self, server):
        self.environment = server.environment()
        session = boto3.Session(aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
                                aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
                                region_name="us-west-2")
        self.client = lambda name: session.client(name, endpoint_url=server.url)
        self.s3, self.sagemaker, self.logs = map(self.client, ("s3", "sagemaker", "logs"))
        for bucket in ("source", "models"):
            self.s3.create_bucket(Bucket=bucket,
                                  CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        for number in range(4):
            self.s3.put_object(Bucket="source", Key=f"parts/{number}", Body=b"part")

    def start(self, base, files, program="train.py", hyperparameters=None, **changes):
        name = name_of(base)
        self.s3.put_object(Bucket="source", Key=f"{name}.tar.gz", Body=archive(files))
        body = request(name, f"s3://source/{name}.tar.gz", **changes)
        body["HyperParameters"].update({"sagemaker_program": program, **(hyperparameters or {})})
        self.sagemaker.create_training_job(**body)
        return name

    def end(self, name):
        """The job's description at its end, and the lines of each of its streams."""
        waiter = self.sagemaker.get_waiter("training_job_completed_or_stopped")
        try:
            waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
        except Exception:
            pass  # the description says how it ended
        return self.sagemaker.describe_training_job(TrainingJobName=name), self.lines(name)

    def lines(self, name):
        group = "/aws/sagemaker/TrainingJobs"
        streams = self.logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name + "/")
        found = {}
        for stream in streams["logStreams"]:
            events = self.logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"],
                                              startFromHead=True)["events"]
            found[stream["logStreamName"]] = [event["message"] for event in events]
        return found


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "offered", "from the operator")
    folder.chmod(0o755)  # jobs are users of their own
    return folder


@pytest.fixture(scope="module")
def jobs(tmp_path_factory, wheels):
    server = Server(tmp_path_factory.mktemp("script-mode") / "data")
    # Once by its option; the start that counts has it from the folder.
    server.start("127.0.0.1:0", "--packages", str(wheels))
    server.stop()
    server.start()
    yield Jobs(server)
    server.stop()


@pytest.fixture(scope="module")
def started(jobs):
    """All jobs of this file, started together."""
    ranks = """
        import os
        print("rank", os.environ["OMPI_COMM_WORLD_RANK"], "of", os.environ["OMPI_COMM_WORLD_SIZE"])
        """.replace("\n        ", "\n")
    return {
        "packages": jobs.start("packages", {
            "train.py": "import offered\nprint('installed:', offered.WORDS)\n",
            "requirements.txt": "offered==1.0\n"}),
        "missing": jobs.start("missing", {
            "train.py": "print('not reached')\n", "requirements.txt": "never-heard-of-it==1.0\n"}),
        "package": jobs.start("package", {
            "setup.py": "from setuptools import setup\nsetup(name='mine', version='1.0', py_modules=['train', 'more'])\n",
            "more.py": "WORDS = 'beside it'\n",
            "train.py": "import more, sys\nprint('module with', more.WORDS, sys.argv[1:])\n"},
            hyperparameters={"lr": "0.1"}),
        "shell": jobs.start("shell", {"bin/run.sh": "#!/bin/sh\necho arguments: \"$@\"; echo rate: $SM_HP_LR\n"},
                            program="bin/run.sh", hyperparameters={"lr": "0.1"}),
        "two": jobs.start("two", {"train.py": GLOO}, ResourceConfig=TWO, InputDataConfig=[
            channel("parts", S3DataDistributionType="ShardedByS3Key")]),
        "groups": jobs.start("groups", {"train.py": WHAT_A_GROUP_SEES}, ResourceConfig=GROUPS, InputDataConfig=[
            channel("raw", InstanceGroupNames=["readers"]), channel("labels", InstanceGroupNames=["learners"]),
            channel("shared", InstanceGroupNames=["readers", "learners"])]),
        "ddp": jobs.start("ddp", {"train.py": DDP}, ResourceConfig=TWO, hyperparameters={
            "sagemaker_pytorch_ddp_enabled": "true", "sagemaker_instance_type": '"ml.cpu.1x"'}),
        "one-fails": jobs.start("one-fails", {"train.py": ONE_FAILS}, ResourceConfig=TWO),
        "mpi": jobs.start("mpi", {"train.py": ranks}, hyperparameters={
            "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}),
    }


def only(lines):
    assert len(lines) == 1
    return "\n".join(next(iter(lines.values())))


def test_requirements_come_from_the_operators_folder(jobs, started):
    job, lines = jobs.end(started["packages"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    assert "installed: from the operator" in only(lines)


def test_a_package_that_is_nowhere_says_where_packages_could_come_from(jobs, started):
    job, lines = jobs.end(started["missing"])
    assert job["TrainingJobStatus"] == "Failed"
    assert "InstallRequirementsError" in job["FailureReason"]
    assert "packages come from the server's folder" in job["FailureReason"]
    assert "not reached" not in only(lines)


def test_a_source_folder_with_setup_py_runs_as_a_module(jobs, started):
    job, lines = jobs.end(started["package"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    assert "module with beside it ['--lr', '0.1']" in only(lines)


def test_a_shell_script_is_an_entry_point(jobs, started):
    job, lines = jobs.end(started["shell"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    assert "arguments: --lr 0.1\nrate: 0.1" in only(lines)


def test_two_instances_reduce_over_gloo_and_each_has_its_shard(jobs, started):
    job, lines = jobs.end(started["two"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    assert sorted(stream.split("/")[1][:6] for stream in lines) == ["algo-1", "algo-2"]
    shards = {}
    for stream, said in lines.items():
        host = stream.split("/")[1][:6]
        found = re.search(rf"{host} is rank (\d) of 2: sum 11; files (\w+);", "\n".join(said))
        assert found and int(found[1]) == int(host[-1]) - 1, said
        shards[host] = found[2]
    assert sorted("".join(shards.values())) == list("0123") and all(len(part) == 2 for part in shards.values())
    key = job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://models/")
    body = jobs.s3.get_object(Bucket="models", Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as model:
        assert sorted(name.removeprefix("./") for name in model.getnames()) == ["of-algo-1", "of-algo-2"]


def test_each_instance_group_sees_its_channels_and_its_name(jobs, started):
    job, lines = jobs.end(started["groups"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    said = {stream.split("/")[1][:6]: "\n".join(text) for stream, text in lines.items()}
    assert "algo-1 of readers sees ['raw', 'shared'] ['raw', 'shared']" in said["algo-1"]
    assert "algo-2 of learners sees ['labels', 'shared'] ['labels', 'shared']" in said["algo-2"]
    assert all('"readers"' in text and '"learners"' in text for text in said.values())
    assert [group["InstanceGroupName"] for group in job["ResourceConfig"]["InstanceGroups"]] == ["readers", "learners"]


def test_pytorchddp_gives_torch_its_ranks(jobs, started):
    job, lines = jobs.end(started["ddp"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    for stream, said in lines.items():
        rank = int(stream.split("/")[1][5]) - 1
        assert f"rank {rank} local 0 of 2: sum 11;" in "\n".join(said), said


def test_the_instance_that_fails_is_the_one_that_is_named(jobs, started):
    job, _ = jobs.end(started["one-fails"])
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("AlgorithmError: algo-2: ExecuteUserScriptError")
    assert "the second instance has no pictures" in job["FailureReason"]
    assert "algo-1" not in job["FailureReason"]


def test_mpi_starts_its_processes_with_their_ranks(jobs, started):
    job, lines = jobs.end(started["mpi"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    text = only(lines)
    assert "[1,mpirank:0,algo-1]<stdout>:rank 0 of 2" in text
    assert "[1,mpirank:1,algo-1]<stdout>:rank 1 of 2" in text
