"""Records what real clients send for the article's listing, without names and times that change.

    .env-sdk2/bin/python tests/conformance/golden.py sdk2     # writes tests/golden/sdk2-*.json; also sdk3, sdk_old, cli

The clients run as they are; a hook of botocore, the last before the wire, keeps each request to SageMaker and answers
it, so that no server is needed for it. What is kept is what decides what a server makes of a request: method, path,
the headers that name protocol and operation, and the body.
"""
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile

from server import Server

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
ROLE = "arn:aws:iam::000000000000:role/atelier"
HEADERS = ("content-type", "x-amz-target", "x-amzn-query-mode")
METRICS = [{"Name": "average train Loss", "Regex": "train-loss: ([0-9\\.]+)"},
           {"Name": "validation top-3", "Regex": "val-top3: ([0-9\\.]+)"}]
PICTURES = "s3://pictures/fashion-mnist"


class Recorder:
    """Keeps the requests that a botocore session sends to the services that are named."""

    def __init__(self, session, services=("sagemaker",)):
        self.requests = []
        for service in services:
            session.register(f"before-send.{service}", self._keep)

    def _keep(self, request, **_):
        from botocore.awsrequest import AWSResponse
        text = request.body.decode() if isinstance(request.body, bytes) else request.body or ""
        headers = {name.lower(): value.decode() if isinstance(value, bytes) else value
                   for name, value in request.headers.items()}
        self.requests.append({
            "method": request.method, "path": re.sub(r"^https?://[^/]+", "", request.url),
            "headers": {name: headers[name] for name in HEADERS if name in headers},
            "body": json.loads(text) if text.startswith("{") else text})

        class Raw(io.BytesIO):
            def stream(self, **_):
                yield self.read()
        kept = self.requests[-1]["body"]
        name = kept.get("TrainingJobName", "") if isinstance(kept, dict) else ""
        answer = {"TrainingJobName": name, "TrainingJobArn": f"arn:aws:sagemaker:us-west-2:000000000000:training-job/{name}"}
        return AWSResponse(request.url, 200, {}, Raw(json.dumps(answer).encode()))


def scrubbed(requests, name):
    """With `name` for the job's, and one time for those that rules are named by."""
    text = json.dumps(requests)
    for request in requests:
        if isinstance(request["body"], dict) and "TrainingJobName" in request["body"]:
            text = text.replace(request["body"]["TrainingJobName"], name)
    return json.loads(re.sub(r"ProfilerReport-\d{10}", "ProfilerReport-1609459200", text))


def article(folder):
    source = pathlib.Path(folder) / "source"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text("print('train')\n")
    return str(source)


def sdk_v2(folder, channels, **options):
    """The listing: spot, checkpoints, metrics, and what the SDK adds for debugger and profiler by itself."""
    import boto3
    import sagemaker
    from sagemaker.pytorch import PyTorch
    session = boto3.session.Session()
    recorder = Recorder(session._session)
    estimator = PyTorch(
        entry_point="train.py", source_dir=article(folder), role=ROLE, framework_version="1.6.0", py_version="py3",
        instance_count=1, instance_type="ml.p4d.24xlarge", output_path="s3://models/article",
        code_location="s3://models/article/code", use_spot_instances=True, max_run=3600, max_wait=7200,
        checkpoint_s3_uri="s3://models/checkpoints/article", hyperparameters={"lr": 0.003, "batch-size": 64, "opt": "adam"},
        metric_definitions=METRICS, sagemaker_session=sagemaker.Session(boto_session=session), **options)
    estimator.fit(channels, wait=False)
    return recorder.requests


def sdk_v2_cases(folder):
    from sagemaker.inputs import FileSystemInput
    def lustre(path):
        return FileSystemInput(file_system_id="fs-0123456789abcdef0", file_system_type="FSxLustre", directory_path=path,
                               file_system_access_mode="rw")
    yield "article", sdk_v2(folder, {"train": PICTURES + "/train/", "val": PICTURES + "/validation/"})
    yield "article-fsx", sdk_v2(folder, {"train": lustre("/abcdefgh/deepfashion/train")},
                                subnets=["subnet-0123456789abcdef0"], security_group_ids=["sg-0123456789abcdef0"])


def sdk_v3_cases(folder):
    import boto3
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.train import ModelTrainer
    from sagemaker.train.configs import (CheckpointConfig, Compute, InputData, OutputDataConfig, SourceCode,
                                         StoppingCondition)
    session = boto3.session.Session()
    recorder = Recorder(session._session)
    trainer = ModelTrainer(
        training_image="763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.13.1-cpu-py39", role=ROLE,
        source_code=SourceCode(source_dir=article(folder), entry_script="train.py"), base_job_name="article",
        compute=Compute(instance_type="ml.m5.xlarge", instance_count=1, enable_managed_spot_training=True),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=3600, max_wait_time_in_seconds=7200),
        output_data_config=OutputDataConfig(s3_output_path="s3://models/article"),
        checkpoint_config=CheckpointConfig(s3_uri="s3://models/checkpoints/article"),
        hyperparameters={"lr": 0.003, "batch-size": 64, "opt": "adam"}, sagemaker_session=Session(boto_session=session))
    # The pictures' place alone: the SDK asks S3 nothing about it.
    trainer.train(input_data_config=[InputData(channel_name="train", data_source=PICTURES + "/train/")], wait=False,
                  logs=False)
    yield "article", recorder.requests


def cli_cases(folder):
    """The listing with the CLI's shorthand; `aws` runs in this process, so that the hook sees what it sends."""
    from awscli.clidriver import create_clidriver
    driver = create_clidriver()
    recorder = Recorder(driver.session, ("sagemaker", "logs", "cloudwatch"))
    source = "s3://models/article/code/source/sourcedir.tar.gz"
    image = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.6.0-cpu-py3"
    calls = [
        ["sagemaker", "create-training-job", "--training-job-name", "cli-article", "--role-arn", ROLE,
         "--algorithm-specification", json.dumps({"TrainingImage": image, "TrainingInputMode": "File",
                                                  "MetricDefinitions": METRICS}),
         "--hyper-parameters", json.dumps({"sagemaker_program": "train.py", "sagemaker_submit_directory": source}),
         "--input-data-config", "ChannelName=train,DataSource={S3DataSource={S3DataType=S3Prefix,"
                                f"S3Uri={PICTURES}/train/,S3DataDistributionType=FullyReplicated}}}}",
         "--output-data-config", "S3OutputPath=s3://models/article",
         "--resource-config", "InstanceType=ml.m5.xlarge,InstanceCount=1,VolumeSizeInGB=30",
         "--stopping-condition", "MaxRuntimeInSeconds=3600,MaxWaitTimeInSeconds=7200", "--enable-managed-spot-training",
         "--checkpoint-config", "S3Uri=s3://models/checkpoints/article"],
        ["sagemaker", "describe-training-job", "--training-job-name", "cli-article"],
        ["logs", "describe-log-streams", "--log-group-name", "/aws/sagemaker/TrainingJobs",
         "--log-stream-name-prefix", "cli-article/"],
        ["cloudwatch", "get-metric-statistics", "--namespace", "/aws/sagemaker/TrainingJobs", "--metric-name", "loss",
         "--dimensions", "Name=TrainingJobName,Value=cli-article", "--period", "60", "--statistics", "Average",
         "--start-time", "2026-01-01T00:00:00Z", "--end-time", "2026-01-02T00:00:00Z"],
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        for call in calls:
            driver.main(call)
    yield "article", recorder.requests


CASES = {"sdk2": sdk_v2_cases, "sdk_old": sdk_v2_cases, "sdk3": sdk_v3_cases, "cli": cli_cases}


MODULES = {"sdk2": "sagemaker.pytorch", "sdk_old": "sagemaker.pytorch", "sdk3": "sagemaker.train.model_trainer",
           "cli": "awscli.clidriver"}


def record(client, server):
    """What `client` sends now, by the name of its file. `server` takes what it uploads before; the environment is its."""
    with tempfile.TemporaryDirectory() as folder:
        server.run("init", "--sdk-config", f"{folder}/config.yaml")
        os.environ["SAGEMAKER_USER_CONFIG_OVERRIDE"] = f"{folder}/config.yaml"
        for bucket in ("models", "sagemaker-us-west-2-000000000000"):
            server.run("s3", "mb", f"s3://{bucket}", check=False)
        return {f"{client}-{case}": scrubbed(requests, f"{client}-{case}".replace("_", "-"))
                for case, requests in CASES[client](folder)}


def read(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def main():
    with tempfile.TemporaryDirectory() as folder:
        server = Server(f"{folder}/data").start()
        try:
            os.environ.update(server.environment())
            for name, requests in record(sys.argv[1], server).items():
                (GOLDEN / f"{name}.json").write_text(json.dumps(requests, indent=1) + "\n")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
