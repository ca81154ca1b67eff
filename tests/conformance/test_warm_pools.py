"""Warm pools through the SageMaker SDK v2: keep_alive_period_in_seconds, on a server of their own.

Run as a program, this file is the user's side: it fits one job after the other and prints what they are.
"""
import json
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest

from server import Server
from wheels import make_wheel

pytestmark = pytest.mark.sdk

ROLE = "arn:aws:iam::000000000000:role/atelier"
SCRIPT = """
    import json, os, pathlib, tiny_package, urllib.request
    cache = pathlib.Path("/opt/ml/sagemaker/warmpoolcache")
    print(os.environ["TRAINING_JOB_NAME"], "found", sorted(path.name for path in cache.iterdir()))
    print("from", tiny_package.__file__)
    (cache / os.environ["TRAINING_JOB_NAME"]).write_text("downloaded once")
    uri, ticket = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
    keys = json.load(urllib.request.urlopen(urllib.request.Request(uri, headers={"Authorization": ticket})))
    print(os.environ["TRAINING_JOB_NAME"], "has", "keys" if keys["SecretAccessKey"] else "none")
    """


def fit(folder, name, role=ROLE, keep_alive=600, wheel=True):
    from sagemaker.pytorch import PyTorch
    source = pathlib.Path(folder) / name
    source.mkdir()
    (source / "train.py").write_text(textwrap.dedent(SCRIPT))
    if wheel:
        make_wheel(source, "tiny_package", "from the wheel in source_dir")
    (source / "requirements.txt").write_text("--find-links .\ntiny_package==1.0\n")
    estimator = PyTorch(entry_point="train.py", source_dir=str(source), role=role, base_job_name=name,
                        framework_version="1.13.1", py_version="py39", instance_count=1,
                        instance_type="ml.cpu.1x", output_path="s3://models/warm",
                        keep_alive_period_in_seconds=keep_alive)
    estimator.fit(wait=True, logs="All", job_name=name)
    return estimator


def use_the_sdk(folder):
    fit(folder, "first")
    second = fit(folder, "second", wheel=False)  # finds what the first one installed
    third = fit(folder, "third", role=ROLE + "-other")
    client = second.sagemaker_session.sagemaker_client
    shown = {name: client.describe_training_job(TrainingJobName=name) for name in ("first", "second", "third")}
    listed = client.list_training_jobs(WarmPoolStatusEquals="Reused")["TrainingJobSummaries"]
    found = client.search(Resource="TrainingJob", SearchExpression={"Filters": [
        {"Name": "WarmPoolStatus.Status", "Operator": "Equals", "Value": "Reused"}]})["Results"]
    second.sagemaker_session.update_training_job("second", resource_config={"KeepAlivePeriodInSeconds": 0})
    ended = client.describe_training_job(TrainingJobName="second")["WarmPoolStatus"]
    print("RESULT", json.dumps({
        "pools": {name: job["WarmPoolStatus"] for name, job in shown.items()},
        "asked": third.latest_training_job.describe()["ResourceConfig"]["KeepAlivePeriodInSeconds"],
        "listed": [job["TrainingJobName"] for job in listed], "ended": ended,
        "found": [job["TrainingJob"]["TrainingJobName"] for job in found]}))


# On the host's network the server sees whose program asks for keys: all of a pool are one user.
@pytest.fixture(scope="module", params=[(), ("--host-network",)], ids=["own network", "the host's network"])
def ran(request, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("warm") / "data").start("127.0.0.1:0", *request.param)
    server.run("s3", "mb", "s3://models")
    server.run("init", "--sdk-config", str(server.data_dir / "config.yaml"),
               "--metadata", str(server.data_dir / "resource-metadata.json"))
    done = subprocess.run([sys.executable, __file__, str(tmp_path_factory.mktemp("sources"))], text=True,
                          env={**server.environment(),
                               "SAGEMAKER_USER_CONFIG_OVERRIDE": str(server.data_dir / "config.yaml")},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=400)
    assert done.returncode == 0, done.stdout[-4000:]
    yield server, done.stdout, json.loads(done.stdout.rsplit("RESULT ", 1)[1].splitlines()[0])
    server.stop()


def test_the_next_job_finds_packages_and_files_of_the_one_before(ran):
    _, output, result = ran
    first, second = output[:output.index("second found")], output[output.index("second found"):]
    assert "Successfully installed tiny_package-1.0" in first.replace("tiny-package", "tiny_package")
    assert "first found []" in first
    assert "Requirement already satisfied: tiny_package==1.0" in output
    assert "second found ['first']" in second
    assert "first has keys" in output and "second has keys" in output
    assert result["pools"]["first"]["Status"] == "Reused"
    assert result["pools"]["first"]["ReusedByJob"] == "second"
    assert result["pools"]["first"]["ResourceRetainedBillableTimeInSeconds"] >= 1
    assert result["listed"] == result["found"] == ["first"]


def test_a_job_of_another_role_sees_nothing_of_it(ran):
    _, output, result = ran
    assert "third found []" in output
    assert result["pools"]["second"]["Status"] == result["pools"]["third"]["Status"] == "Available"
    assert result["asked"] == 600


def test_an_update_to_zero_ends_a_pool_and_its_files_go(ran):
    server, _, result = ran
    assert result["ended"]["Status"] == "Terminated"
    warm = server.data_dir / "warm"
    deadline = time.monotonic() + 30  # removed after the answer
    while len(list(warm.iterdir())) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [path.name.split(".")[0] for path in warm.iterdir()] == ["third"]
    rows = {row["key"]: row for row in json.loads(server.run("cost", "--json").stdout)}
    assert rows["first"]["retained_seconds"] == result["pools"]["first"]["ResourceRetainedBillableTimeInSeconds"]


if __name__ == "__main__":
    use_the_sdk(sys.argv[1])
