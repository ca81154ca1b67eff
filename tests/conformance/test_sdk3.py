"""The SageMaker Python SDK v3, unmodified: ModelTrainer, and the resources of sagemaker-core.

ModelTrainer uploads source and drivers as plain files to two channels, and starts them by ContainerEntrypoint. All
scenarios start together (background.py); each test looks at how one of them ended.
"""
import logging
import os
import pathlib
import sys
import tarfile
import textwrap

import pytest

from background import Background, wait_until
from wheels import make_wheel

pytestmark = pytest.mark.sdk3

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.13.1-cpu-py39"
ROLE = "arn:aws:iam::000000000000:role/atelier"


def trainer(folder, name, script, instances=1, wheel=None, spot=False, **options):
    """A ModelTrainer over a source folder of its own, with `wheel` in it and in its requirements."""
    from sagemaker.train import ModelTrainer
    from sagemaker.train.configs import CheckpointConfig, Compute, OutputDataConfig, SourceCode, StoppingCondition
    source = pathlib.Path(folder) / name
    source.mkdir()
    (source / "train.py").write_text(textwrap.dedent(script))
    if wheel:
        make_wheel(source, wheel, "from the wheel in source_dir")
        (source / "requirements.txt").write_text(f"--find-links .\n{wheel}==1.0\n")
    return ModelTrainer(
        training_image=IMAGE, role=ROLE, base_job_name=name,
        source_code=SourceCode(source_dir=str(source), entry_script="train.py",
                               requirements="requirements.txt" if wheel else None),
        compute=Compute(instance_type="ml.cpu.1x", instance_count=instances, volume_size_in_gb=1,
                        enable_managed_spot_training=spot),
        checkpoint_config=CheckpointConfig(s3_uri=f"s3://models/checkpoints/{name}") if spot else None,
        output_data_config=OutputDataConfig(s3_output_path="s3://models/sdk3"),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=900,
                                             max_wait_time_in_seconds=1800 if spot else None), **options)


def run(model_trainer, **options):
    # This SDK logs the job's lines, and leaves it to the application where a log goes.
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout, force=True)
    try:
        model_trainer.train(**options)
    finally:
        print("job:", model_trainer._latest_training_job.training_job_name, flush=True)
    return model_trainer._latest_training_job.training_job_name


# ---- Scenarios, each in a process of its own --------------------------------------------------

def train_script(folder):
    from sagemaker.train.configs import InputData
    names = folder / "names"
    names.mkdir()
    (names / "list.txt").write_text("coat shirt")
    model_trainer = trainer(folder, "script", """
        import os, sys, tiny_package
        print("arguments:", sys.argv[1:])
        print("learning rate:", os.environ["SM_HP_LEARNING_RATE"], "on", os.environ["SM_CURRENT_HOST"])
        print("installed:", tiny_package.WORDS)
        print("names:", open(os.path.join(os.environ["SM_CHANNEL_NAMES"], "list.txt")).read(), "loss=0.25")
        open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w").write("trained")
        open("/opt/ml/checkpoints/epoch-1", "w").write("half way")
        """, wheel="tiny_package", spot=True, hyperparameters={"learning-rate": 0.5, "name": "a b"})
    return run(model_trainer, input_data_config=[InputData(channel_name="names", data_source=str(names))],
               wait=True, logs=True)


def train_failing(folder):
    run(trainer(folder, "failing", """
        print("about to look at the pictures", flush=True)
        raise ValueError("no pictures at all")
        """), wait=True, logs=True)


def train_torchrun(folder):
    from sagemaker.train.distributed import Torchrun
    return run(trainer(folder, "torchrun", """
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        value = torch.tensor([float(10 ** dist.get_rank())])
        dist.all_reduce(value)
        print(f"{os.environ['SM_CURRENT_HOST']} rank {dist.get_rank()} sum {value.item():.0f}")
        """, instances=2, distributed=Torchrun(process_count_per_node=1)), wait=True, logs=True)


def stop_by_resource(folder):
    """sagemaker-core alone, as another process would find a job that is there."""
    from sagemaker.core.resources import TrainingJob
    name = run(trainer(folder, "stopped", """
        import time
        print("waiting to be stopped", flush=True)
        time.sleep(900)
        """), wait=False, logs=False)
    job = TrainingJob.get(training_job_name=name)
    wait_until(lambda: job.refresh().secondary_status == "Training", "the job training", 300)
    job.stop()
    job.wait(poll=1)
    return {"status": job.training_job_status, "entry": job.algorithm_specification.container_entrypoint,
            "listed": [found.get_name() for found in TrainingJob.get_all(name_contains=name)],
            "stopped": [found.get_name() for found in TrainingJob.get_all(status_equals="Stopped")], "name": name}


SCENARIOS = {"script": train_script, "failing": train_failing, "torchrun": train_torchrun, "stopped": stop_by_resource}


@pytest.fixture(scope="module")
def running(atelier_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdk3")
    atelier_server.run("init", "--sdk-config", str(folder / "config.yaml"))
    os.environ["SAGEMAKER_USER_CONFIG_OVERRIDE"] = str(folder / "config.yaml")
    atelier_server.run("s3", "mb", "s3://models")
    import sagemaker.train.model_trainer  # noqa: F401: once, before the forks
    background = Background(folder)
    for name, function in SCENARIOS.items():
        background.start(name, function, folder)
    yield background
    background.close()


def described(outcome):
    from sagemaker.core.resources import TrainingJob
    return TrainingJob.get(training_job_name=outcome.value)


# ---- What has to hold -------------------------------------------------------------------------

def test_a_model_trainer_trains_and_shows_its_log(running, atelier_server, tmp_path):
    outcome = running.outcome("script")
    assert not outcome.error, outcome.output[-4000:]
    assert "arguments: ['--learning-rate', '0.5', '--name', 'a b']" in outcome.output
    assert "learning rate: 0.5 on algo-1" in outcome.output
    assert "installed: from the wheel in source_dir" in outcome.output
    assert "names: coat shirt" in outcome.output
    job = described(outcome)
    assert job.training_job_status == "Completed"
    assert job.enable_managed_spot_training is True and job.billable_time_in_seconds >= 1
    assert "epoch-1" in atelier_server.run("s3", "ls", "s3://models/checkpoints/script/").stdout
    assert job.model_artifacts.s3_model_artifacts == f"s3://models/sdk3/{outcome.value}/output/model.tar.gz"
    model = tmp_path / "model.tar.gz"
    atelier_server.run("s3", "cp", job.model_artifacts.s3_model_artifacts, str(model))
    with tarfile.open(model) as archive:
        assert [name.removeprefix("./") for name in archive.getnames()] == ["weights"]


def test_what_the_script_raised_is_the_reason(running):
    outcome = running.outcome("failing")
    assert outcome.error == "FailedStatusError"
    assert "AlgorithmError: " in outcome.message
    assert "ValueError: no pictures at all" in outcome.message
    assert "about to look at the pictures" in outcome.output


def test_torchrun_of_two_instances_meets_at_the_first(running):
    outcome = running.outcome("torchrun")
    assert not outcome.error, outcome.output[-4000:]
    assert "algo-1 rank 0 sum 11" in outcome.output and "algo-2 rank 1 sum 11" in outcome.output
    assert described(outcome).resource_config.instance_count == 2


def test_a_job_is_found_listed_and_stopped_as_a_resource(running):
    outcome = running.outcome("stopped")
    assert not outcome.error, outcome.output[-4000:]
    assert outcome.value["status"] == "Stopped"
    assert outcome.value["entry"] == ["/bin/bash"]
    assert outcome.value["listed"] == [outcome.value["name"]]
    assert outcome.value["name"] in outcome.value["stopped"]
