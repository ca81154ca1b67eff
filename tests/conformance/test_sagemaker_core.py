"""sagemaker-core 1.x, which the SageMaker SDK v2 brings along: resources, and the ModelTrainer that v2 has over it."""
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import jobs
from background import Background
from server import Server
from test_tls import certificate

pytestmark = pytest.mark.sdk


def create_by_resource(folder):
    """A job from its own shapes to its end, as sagemaker-core alone makes it."""
    import boto3
    from sagemaker_core.resources import TrainingJob
    from sagemaker_core.shapes import (AlgorithmSpecification, MetricDefinition, OutputDataConfig, ResourceConfig,
                                       StoppingCondition)
    name = jobs.name_of("core")
    boto3.client("s3").put_object(Bucket="models", Key=f"{name}.tar.gz", Body=jobs.pack("print('loss=0.25')"))
    job = TrainingJob.create(
        training_job_name=name, role_arn=jobs.ROLE,
        algorithm_specification=AlgorithmSpecification(
            training_image=jobs.IMAGE, training_input_mode="File",
            metric_definitions=[MetricDefinition(name="loss", regex="loss=([0-9.]+)")]),
        hyper_parameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": f"s3://models/{name}.tar.gz"},
        output_data_config=OutputDataConfig(s3_output_path="s3://models/core"),
        resource_config=ResourceConfig(instance_type="ml.cpu.1x", instance_count=1, volume_size_in_gb=1),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=600))
    job.wait(poll=1)
    return {"name": name, "status": job.refresh().training_job_status,
            "metrics": {metric.metric_name: metric.value for metric in job.final_metric_data_list},
            "listed": [found.training_job_name for found in TrainingJob.get_all(name_contains=name)]}


def train_with_v2s_model_trainer(folder):
    from sagemaker.modules.configs import Compute, OutputDataConfig, SourceCode
    from sagemaker.modules.train import ModelTrainer
    from sagemaker_core.helper.session_helper import Session
    source = pathlib.Path(folder) / "source"
    source.mkdir()
    (source / "train.py").write_text(textwrap.dedent("""
        import os, sys
        print("arguments:", sys.argv[1:])
        raise ValueError("no pictures at all")
        """))
    ModelTrainer(training_image=jobs.IMAGE, role=jobs.ROLE, base_job_name="v2-trainer",
                 source_code=SourceCode(source_dir=str(source), entry_script="train.py"),
                 compute=Compute(instance_type="ml.cpu.1x", instance_count=1, volume_size_in_gb=1),
                 output_data_config=OutputDataConfig(s3_output_path="s3://models/v2-trainer"),
                 # Without TLS its session asks Amazon's own STS for a bucket's name, whatever AWS_ENDPOINT_URL says.
                 sagemaker_session=Session(default_bucket="models"), hyperparameters={"lr": 0.5}).train(wait=True, logs=True)


@pytest.fixture(scope="module")
def running(atelier_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    atelier_server.run("init", "--sdk-config", str(folder / "config.yaml"))
    atelier_server.run("s3", "mb", "s3://models", check=False)
    before = os.environ.get("SAGEMAKER_USER_CONFIG_OVERRIDE")
    os.environ["SAGEMAKER_USER_CONFIG_OVERRIDE"] = str(folder / "config.yaml")
    import sagemaker.modules.train.model_trainer  # noqa: F401: once, before the forks
    background = Background(folder)
    for function in (create_by_resource, train_with_v2s_model_trainer):
        background.start(function.__name__, function, folder)
    if before is not None:
        os.environ["SAGEMAKER_USER_CONFIG_OVERRIDE"] = before
    yield background
    background.close()


def test_a_job_is_made_and_awaited_as_a_resource(running):
    outcome = running.outcome("create_by_resource")
    assert not outcome.error, outcome.output[-4000:]
    assert outcome.value["status"] == "Completed"
    assert outcome.value["metrics"] == {"loss": 0.25}
    assert outcome.value["listed"] == [outcome.value["name"]]


def test_the_reason_of_v2s_model_trainer_is_the_scripts(running):
    outcome = running.outcome("train_with_v2s_model_trainer")
    assert outcome.error == "FailedStatusError", outcome.output[-4000:]
    assert "ValueError: no pictures at all" in outcome.message
    assert "arguments: ['--lr', '0.5']" in outcome.output


def test_sts_comes_here_by_the_table_that_init_writes(tmp_path):
    """What the SDKs ask STS themselves, at an address that no variable and no configuration of theirs changes."""
    cert, key = certificate(tmp_path, "sts")
    server = Server(tmp_path / "data").start("127.0.0.1:0", "--tls-certificate", cert, "--tls-key", key)
    try:
        server.run("init", "--endpoints", str(tmp_path / ".aws/models/endpoints.json"))
        done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
            import sagemaker
            from sagemaker_core.helper.session_helper import Session
            session = sagemaker.Session()
            print("account", session.account_id())
            print("caller", session.get_caller_identity_arn())
            print("bucket", session.default_bucket())
            print("core", Session().default_bucket())
            """)], env={**server.environment(), "HOME": str(tmp_path)}, text=True, capture_output=True, timeout=300)
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert said["account"] == "000000000000"
    assert said["caller"].startswith("arn:aws:iam::000000000000:role/")
    assert said["bucket"] == said["core"] == "sagemaker-us-west-2-000000000000"
