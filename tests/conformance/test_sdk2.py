"""The SageMaker Python SDK v2, unmodified, against a running server.

All scenarios start together (background.py); each test looks at how one of them ended.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import textwrap

import pytest

from background import Background, wait_until
from server import ROOT, Server
from wheels import make_wheel

pytestmark = pytest.mark.sdk

ROLE = "arn:aws:iam::000000000000:role/atelier"
SMALL = "ml.cpu.1x"  # one core each, so that two jobs run at a time on CI's two
CLASSES = 10
CHECKPOINTS = "s3://models/article-checkpoints"


def pytorch(script, name, folder, **options):
    """An estimator over a one-file source folder."""
    from sagemaker.pytorch import PyTorch
    source = pathlib.Path(folder) / name
    source.mkdir()
    (source / "train.py").write_text(textwrap.dedent(script))
    return PyTorch(entry_point="train.py", source_dir=str(source), role=ROLE, base_job_name=name,
                   framework_version="1.13.1", py_version="py39",
                   output_path="s3://models/sdk", **{"instance_count": 1, "instance_type": SMALL, **options})


# ---- Scenarios, each in a process of its own --------------------------------------------------

def fit_article(pictures, folder):
    from sagemaker.pytorch import PyTorch
    estimator = PyTorch(
        entry_point="train.py", source_dir=str(ROOT / "examples/article"), role=ROLE,
        base_job_name="fit", framework_version="1.13.1", py_version="py39", instance_count=1,
        instance_type=SMALL, output_path="s3://models/sdk",
        hyperparameters={"epochs": 4, "lr": 0.003, "batch-size": 32},
        metric_definitions=[{"Name": "train:loss", "Regex": r"train-loss: ([0-9\.]+)"}])
    estimator.fit({"train": pictures + "/train/", "val": pictures + "/validation/"}, wait=True, logs="All")
    job = estimator.latest_training_job.name
    attached = PyTorch.attach(job)
    return {"job": job, "model_data": estimator.model_data, "attached_model": attached.model_data,
            "attached_hyperparameters": attached.hyperparameters(),
            "attached_image": attached.training_image_uri(), "entry_point": attached.entry_point,
            "description": estimator.latest_training_job.describe()["TrainingJobStatus"]}


def fit_builtin(pictures, folder):
    from sagemaker import image_uris
    from sagemaker.estimator import Estimator
    image = image_uris.retrieve("image-classification", "us-west-2")
    estimator = Estimator(
        image_uri=image, role=ROLE, instance_count=1, instance_type=SMALL, base_job_name="builtin",
        output_path="s3://models/builtin",
        hyperparameters={"backbone": "resnet-18", "use_pretrained_model": 0, "epochs": 1,
                         "image_size": 32, "mini_batch_size": 32, "num_classes": CLASSES})
    estimator.fit({"train": pictures + "/train/", "validation": pictures + "/validation/"})
    return {"job": estimator.latest_training_job.name, "model_data": estimator.model_data}


def fit_failing(pictures, folder):
    estimator = pytorch("""
        import sys
        print("about to look at the pictures", flush=True)
        raise ValueError("no pictures for the class 'Überrock'")
        """, "failing", folder, hyperparameters={"lr": 0.1})
    estimator.fit(wait=True, logs="All")


def fit_without_logs_and_stop(pictures, folder):
    estimator = pytorch("""
        import signal, sys, time
        def leave(number, frame):
            print("asked to stop", flush=True)
            open("/opt/ml/model/half-done", "w").close()
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        print("waiting to be stopped", flush=True)
        while True:
            time.sleep(1)
        """, "stopped", folder)
    estimator.fit(wait=False)
    job = estimator.latest_training_job.name
    session = estimator.sagemaker_session
    wait_until(lambda: session.describe_training_job(job)["SecondaryStatus"] == "Training",
               "the job training", 200)
    estimator.latest_training_job.stop()
    session.wait_for_job(job, poll=1)
    return {"job": job, "description": {
        key: str(value) for key, value in session.describe_training_job(job).items()}}


def fit_isolated(pictures, folder):
    """Under network isolation the SDK ships the code as a channel, and the script has no network."""
    estimator = pytorch("""
        import os, socket
        print("source:", os.environ["SM_MODULE_DIR"])
        try:
            socket.create_connection(("127.0.0.1", int(os.environ["SM_HP_PORT"])), timeout=5)
            print("network: reached the host")
        except OSError as error:
            print("network: none")
        """, "isolated", folder, enable_network_isolation=True,
        hyperparameters={"port": int(os.environ["AWS_ENDPOINT_URL"].rsplit(":", 1)[1])})
    estimator.fit(wait=True, logs="All")


def fit_with_requirements(pictures, folder):
    """requirements.txt names a wheel that source_dir brings: installed without any index."""
    estimator = pytorch("""
        import tiny_package
        print("installed:", tiny_package.WORDS)
        """, "requirements", folder, enable_network_isolation=True)
    source = pathlib.Path(estimator.source_dir)
    make_wheel(source, "tiny_package", "from the wheel in source_dir")
    (source / "requirements.txt").write_text("--find-links .\ntiny_package==1.0\n")
    estimator.fit(wait=True, logs="All")


def fit_with_dependencies(pictures, folder):
    """`dependencies` puts folders beside the script, `environment` variables before it."""
    helpers = pathlib.Path(folder) / "helpers"
    helpers.mkdir()
    (helpers / "__init__.py").write_text("WORDS = 'from a folder of dependencies'\n")
    estimator = pytorch("""
        import os, helpers
        print("imported:", helpers.WORDS)
        print("greeting:", os.environ["GREETING"])
        """, "dependencies", folder, dependencies=[str(helpers)], environment={"GREETING": "hello, $HOME \"quoted\""})
    estimator.fit(wait=True, logs="All")
    return estimator.latest_training_job.describe()["Environment"]


def fit_two_instances(pictures, folder):
    """A script that makes its own process group, as the SDK's examples do: rank by SM_HOSTS."""
    estimator = pytorch("""
        import json, os, torch, torch.distributed as dist
        hosts, host = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
        os.environ["WORLD_SIZE"], os.environ["RANK"] = str(len(hosts)), str(hosts.index(host))
        dist.init_process_group("gloo")
        value = torch.tensor([float(10 ** dist.get_rank())])
        dist.all_reduce(value)
        files = sorted(os.listdir(os.environ["SM_CHANNEL_PARTS"]))
        print(f"{host} is rank {dist.get_rank()} of {dist.get_world_size()}: sum {value.item():.0f}; files {files}")
        print(f"share={len(files)};")
        open(f"/opt/ml/model/of-{host}", "w").close()
        dist.barrier()
        """, "two", folder, instance_count=2, metric_definitions=[{"Name": "share", "Regex": "share=([0-9]+);"}])
    import sagemaker
    parts = sagemaker.TrainingInput("s3://models/parts/", distribution="ShardedByS3Key")
    estimator.fit({"parts": parts}, wait=True, logs="All")
    return {"job": estimator.latest_training_job.name, "model_data": estimator.model_data,
            "streams": [stream["logStreamName"] for stream in estimator.sagemaker_session.boto_session.client(
                "logs").describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs",
                                             logStreamNamePrefix=estimator.latest_training_job.name)["logStreams"]]}


def fit_ddp(pictures, folder):
    """DistributedDataParallel under torchrun on two instances: the weights agree, whatever data each saw."""
    estimator = pytorch("""
        import os, torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        torch.manual_seed(7)
        model = DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            torch.manual_seed(100 * rank + step)
            x = torch.randn(8, 4)
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        digest = sum(p.double().sum().item() for p in model.parameters())
        print(f"node {os.environ['GROUP_RANK']} local {os.environ['LOCAL_RANK']} rank {rank} of "
              f"{dist.get_world_size()} weights {digest:.10f}")
        """, "ddp", folder, instance_count=2, instance_type="ml.gpu.1x",  # the SDK wants a GPU's name for this
        distribution={"torch_distributed": {"enabled": True}})
    estimator.fit(wait=True, logs="All")


def fit_two_of_which_one_fails(pictures, folder):
    estimator = pytorch("""
        import os, time
        if os.environ["SM_CURRENT_HOST"] == "algo-2":
            raise ValueError("the second instance has no pictures")
        time.sleep(600)
        """, "one-fails", folder, instance_count=2)
    estimator.fit(wait=True, logs="All")


EXAMPLE_EPOCHS = 12


def run_example(server, environment, pictures):
    """examples/article_training.py as a user runs it; its spot job is interrupted after two epochs."""
    example = subprocess.Popen([sys.executable, ROOT / "examples/article_training.py", "--pictures", pictures,
                                "--output", "s3://models/article", "--checkpoints", CHECKPOINTS,
                                "--epochs", str(EXAMPLE_EPOCHS), "--role", ROLE], env=environment)

    def spot_job():
        listed = json.loads(server.run("jobs", "list", "--json").stdout)
        return next((job["TrainingJobName"] for job in listed if job["TrainingJobName"].startswith("pytorch-training-")), "")

    def interrupted():
        return server.run("jobs", "interrupt", name, "--reason", "a drill", check=False).returncode == 0
    try:
        name = wait_until(spot_job, "the example's job", 300)
        wait_until(lambda: "epoch 2/" in server.run("jobs", "logs", name, check=False).stdout, "epoch 2", 300)
        wait_until(interrupted, "the interruption", 60)
        code = example.wait(400)
    finally:
        example.kill()
    job = json.loads(server.run("jobs", "show", name, "--json").stdout)
    return {"code": code, "log": server.run("jobs", "logs", name).stdout,
            "checkpoints": server.run("s3", "ls", CHECKPOINTS + "/").stdout,
            "transitions": [(step["Status"], step["StatusMessage"]) for step in job["SecondaryStatusTransitions"]]}


LINES = 60


def fit_through_a_crash(environment, folder):
    os.environ.clear()
    os.environ.update(environment)
    import boto3
    boto3.DEFAULT_SESSION = None
    estimator = pytorch(f"""
        import time
        for number in range({LINES}):
            print(f"line {{number:03}} of the job", flush=True)
            time.sleep(0.4)
        open("/opt/ml/model/made", "w").write("whole")
        """, "crash", folder)
    estimator.fit(wait=True, logs="All")
    return {"job": estimator.latest_training_job.name, "model_data": estimator.model_data}


SCENARIOS = {"article": fit_article, "builtin": fit_builtin, "failing": fit_failing,
             "stopped": fit_without_logs_and_stop, "isolated": fit_isolated,
             "requirements": fit_with_requirements, "dependencies": fit_with_dependencies, "two": fit_two_instances,
             "ddp": fit_ddp, "one-fails": fit_two_of_which_one_fails}


@pytest.fixture(scope="session")
def crash_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("crash") / "data").start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spot_server(tmp_path_factory):
    """Of its own: on demand, the others would take the spot job's room."""
    server = Server(tmp_path_factory.mktemp("spot") / "data").start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def running(atelier_server, crash_server, spot_server, pictures, sdk_config, tmp_path_factory):
    import sagemaker.estimator  # noqa: F401: once, before the forks
    import sagemaker.pytorch    # noqa: F401
    for server in (atelier_server, crash_server, spot_server):
        server.run("s3", "mb", "s3://models")
    spot_server.run("s3", "mb", CHECKPOINTS)
    folder = tmp_path_factory.mktemp("scenarios")
    for number in range(4):
        (folder / "part").write_text(str(number))
        atelier_server.run("s3", "cp", str(folder / "part"), f"s3://models/parts/{number}")
    background = Background(folder)
    crash_config = folder / "crash-sdk.yaml"
    crash_server.run("init", "--sdk-config", str(crash_config))
    background.start("crash", fit_through_a_crash,
                     {**crash_server.environment(), "SAGEMAKER_USER_CONFIG_OVERRIDE": str(crash_config)},
                     folder)
    spot_config = folder / "spot-sdk.yaml"
    spot_server.run("init", "--sdk-config", str(spot_config))
    spot_server.run("s3", "mb", "s3://pictures")
    spot_server.run("dataset", "import", "fashion-mnist", pictures, "--limit", "600", "--validation", "200")
    background.start("example", run_example, spot_server,
                     {**spot_server.environment(), "SAGEMAKER_USER_CONFIG_OVERRIDE": str(spot_config)}, pictures)
    for name, function in SCENARIOS.items():
        background.start(name, function, pictures, folder)
    yield background
    background.close()


# ---- What has to hold -------------------------------------------------------------------------

def test_the_log_goes_on_when_the_server_is_killed_in_the_middle(running, crash_server):
    wait_until(lambda: "line 010" in running.output("crash"), "line 10 in the client's log", 200)
    crash_server.kill()
    crash_server.restart()
    outcome = running.outcome("crash")
    assert not outcome.error, outcome.output[-4000:]
    lines = re.findall(r"line (\d{3}) of the job", outcome.output)
    assert lines == [f"{number:03}" for number in range(LINES)], "each line once, in order"
    listed = json.loads(crash_server.run("jobs", "list", "--json").stdout)
    jobs = listed["TrainingJobSummaries"] if isinstance(listed, dict) else listed
    assert len(jobs) == 1 and jobs[0]["TrainingJobStatus"] == "Completed"


def test_fit_learns_from_pictures_and_streams_its_log(running, atelier_server, tmp_path):
    outcome = running.outcome("article")
    assert not outcome.error, outcome.output[-4000:]
    losses = [float(text) for text in re.findall(r"train-loss: ([0-9.]+)", outcome.output)]
    assert len(losses) == 4 and losses[-1] < 0.8 * losses[0]
    top3 = float(re.findall(r"val-top3: ([0-9.]+)", outcome.output)[-1])
    assert top3 > 0.6  # 0.3 is chance
    assert "Training seconds:" in outcome.output and "Billable seconds:" in outcome.output
    model = tmp_path / "model.tar.gz"
    atelier_server.run("s3", "cp", outcome.value["model_data"], str(model))
    with tarfile.open(model) as archive:
        assert {"model.pth", "classes.json"} <= {name.removeprefix("./") for name in archive.getnames()}
        classes = json.load(archive.extractfile(next(n for n in archive.getnames() if n.endswith("classes.json"))))
    assert len(classes) == CLASSES


def test_attach_finds_the_job_as_it_was_made(running):
    value = running.outcome("article").value
    assert value["description"] == "Completed"
    assert value["attached_model"] == value["model_data"]
    assert value["model_data"].endswith(f"{value['job']}/output/model.tar.gz")
    assert float(value["attached_hyperparameters"]["lr"]) == 0.003
    assert "pytorch-training:1.13.1" in value["attached_image"]
    assert value["entry_point"] == "train.py"


def test_the_metrics_of_the_log_are_described(running):
    import boto3
    job = boto3.client("sagemaker").describe_training_job(TrainingJobName=running.outcome("article").value["job"])
    final = {metric["MetricName"]: metric["Value"] for metric in job["FinalMetricDataList"]}
    last = re.findall(r"train-loss: ([0-9.]+)", running.outcome("article").output)[-1]
    assert final["train:loss"] == pytest.approx(float(last), rel=1e-6)


def test_the_builtin_algorithm_trains_by_its_image(running):
    outcome = running.outcome("builtin")
    assert not outcome.error, outcome.output[-4000:]
    assert outcome.value["model_data"] == f"s3://models/builtin/{outcome.value['job']}/output/model.tar.gz"
    # What this algorithm itself prints of its one epoch, and what the SDK says at the end.
    accuracy = re.search(r"Epoch\[1\] Validation-accuracy=([0-9.]+)", outcome.output)
    assert accuracy and 0 <= float(accuracy.group(1)) <= 1, outcome.output[-4000:]
    assert re.search(r"Billable seconds: [1-9]", outcome.output)


def test_a_script_that_fails_gives_its_reason_to_the_client(running):
    outcome = running.outcome("failing")
    assert outcome.error == "UnexpectedStatusException"
    assert "AlgorithmError" in outcome.message
    assert "ValueError: no pictures for the class 'Überrock'" in outcome.message
    assert "ExecuteUserScriptError" in outcome.message
    assert "exit code: 1" in outcome.message.lower()
    assert "about to look at the pictures" in outcome.output


def test_a_job_that_is_stopped_keeps_what_it_left(running, atelier_server):
    outcome = running.outcome("stopped")
    assert not outcome.error, outcome.output[-4000:]
    description = outcome.value["description"]
    assert description["TrainingJobStatus"] == "Stopped"
    assert description["SecondaryStatus"] == "Stopped"
    listing = atelier_server.run("s3", "ls", f"s3://models/sdk/{outcome.value['job']}/output/").stdout
    assert "model.tar.gz" in listing


def test_network_isolation_ships_the_code_as_a_channel_and_cuts_the_network(running):
    outcome = running.outcome("isolated")
    assert not outcome.error, outcome.output[-4000:]
    assert "source: /opt/ml/input/data/code/sourcedir.tar.gz" in outcome.output
    assert "network: none" in outcome.output


def test_requirements_are_installed_before_the_script_runs(running):
    outcome = running.outcome("requirements")
    assert not outcome.error, outcome.output[-4000:]
    assert "Installing dependencies from requirements.txt" in outcome.output
    assert "installed: from the wheel in source_dir" in outcome.output


def test_dependencies_and_environment_reach_the_script(running):
    outcome = running.outcome("dependencies")
    assert not outcome.error, outcome.output[-4000:]
    assert "imported: from a folder of dependencies" in outcome.output
    assert 'greeting: hello, $HOME "quoted"' in outcome.output
    assert outcome.value == {"GREETING": 'hello, $HOME "quoted"'}


def test_two_instances_reduce_over_gloo_and_each_has_its_shard(running, atelier_server, tmp_path):
    outcome = running.outcome("two")
    assert not outcome.error, outcome.output[-4000:]
    said = re.findall(r"(algo-\d) is rank (\d) of 2: sum 11; files (\[.*?\])", outcome.output)
    assert {(host, rank) for host, rank, _ in said} == {("algo-1", "0"), ("algo-2", "1")}
    shards = [set(json.loads(files.replace("'", '"'))) for _, _, files in said]
    assert len(shards) == 2 and set.union(*shards) == set("0123") and not set.intersection(*shards)
    assert sorted(stream.split("/")[1][:6] for stream in outcome.value["streams"]) == ["algo-1", "algo-2"]
    model = tmp_path / "model.tar.gz"
    atelier_server.run("s3", "cp", outcome.value["model_data"], str(model))
    with tarfile.open(model) as archive:
        assert sorted(name.removeprefix("./") for name in archive.getnames()) == ["of-algo-1", "of-algo-2"]


def test_ddp_by_torchrun_keeps_two_instances_together(running):
    outcome = running.outcome("ddp")
    assert not outcome.error, outcome.output[-4000:]
    said = re.findall(r"node (\d) local 0 rank (\d) of 2 weights (\S+)", outcome.output)
    assert sorted((node, rank) for node, rank, _ in said) == [("0", "0"), ("1", "1")]
    assert len({weights for _, _, weights in said}) == 1


def test_the_instance_that_fails_is_the_one_that_is_named(running):
    outcome = running.outcome("one-fails")
    assert outcome.error == "UnexpectedStatusException"
    assert "algo-2: ExecuteUserScriptError" in outcome.message
    assert "the second instance has no pictures" in outcome.message
    assert "algo-1" not in outcome.message


def test_the_articles_listing_runs_on_spot_and_resumes_from_its_checkpoint(running):
    outcome = running.outcome("example", 800)
    assert not outcome.error, outcome.output[-4000:]
    assert outcome.value["code"] == 0, outcome.output[-4000:]
    assert "model: s3://models/article/" in outcome.output
    assert "Managed Spot Training savings" in outcome.output
    assert any(status == "Interrupted" for status, _ in outcome.value["transitions"])
    assert any("a drill" in message for _, message in outcome.value["transitions"])
    assert "state.pth" in outcome.value["checkpoints"]
    # What the user reads: epochs that count up, from the checkpoint on after each interruption.
    said = [(found[1], int(found[2])) for found in re.finditer(r"(resumed after )?epoch (\d+)", outcome.value["log"])]
    assert any(resumed for resumed, _ in said), outcome.value["log"]
    done = 0
    for resumed, epoch in said:
        if resumed:
            assert 1 <= epoch <= done, said
        else:
            assert epoch == done + 1, said
        done = epoch
    assert done == EXAMPLE_EPOCHS


def test_role_and_bucket_come_from_what_init_wrote(atelier_server, sdk_config):
    """get_execution_role() reads /opt/ml/metadata, so that it runs where that is the file of init."""
    program = textwrap.dedent("""
        import sagemaker
        print("role:", sagemaker.get_execution_role())
        print("bucket:", sagemaker.Session().default_bucket())
        """)
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/opt", "--dir", "/opt/ml/metadata",
         "--ro-bind", sdk_config / "resource-metadata.json", "/opt/ml/metadata/resource-metadata.json",
         sys.executable, "-c", program], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^role: arn:aws:iam::000000000000:role/\w+$", done.stdout, re.MULTILINE)
    assert re.search(r"^bucket: sagemaker-us-west-2-000000000000$", done.stdout, re.MULTILINE)
