"""The SageMaker SDK of the article's weeks (2.19.0, December 2020) over the oldest boto3 that lets an endpoint be
set by the environment (1.28.0), which speaks to CloudWatch in Query and XML."""
import textwrap

import pytest

pytestmark = pytest.mark.sdk_old

ROLE = "arn:aws:iam::000000000000:role/atelier"


@pytest.fixture(scope="module")
def fitted(atelier_server, tmp_path_factory):
    from sagemaker.pytorch import PyTorch
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(textwrap.dedent("""
        import argparse, os
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        print("lr is", parser.parse_args().lr, "loss=0.25", flush=True)
        open(os.environ["SM_MODEL_DIR"] + "/weights", "w").close()
        """))
    estimator = PyTorch(entry_point="train.py", source_dir=str(folder), role=ROLE, framework_version="1.6.0",
                        py_version="py3", instance_count=1, instance_type="ml.cpu.1x", output_path="s3://old/models",
                        base_job_name="old", hyperparameters={"lr": 0.5},
                        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}])
    estimator.sagemaker_session.boto_session.client("s3").create_bucket(
        Bucket="old", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    estimator.fit(wait=True, logs=False)
    return estimator


def test_the_articles_fit_runs(fitted, capfd):
    description = fitted.latest_training_job.describe()
    assert description["TrainingJobStatus"] == "Completed"
    assert fitted.model_data.endswith("/output/model.tar.gz")
    # This SDK adds the rule to every job by itself.
    assert [r["RuleConfigurationName"][:14] for r in description["ProfilerRuleConfigurations"]] == ["ProfilerReport"]
    fitted.sagemaker_session.logs_for_job(fitted.latest_training_job.name)
    assert "lr is 0.5" in capfd.readouterr().out


def test_attach_finds_what_it_was_made_with(fitted):
    from sagemaker.pytorch import PyTorch
    attached = PyTorch.attach(fitted.latest_training_job.name)
    assert attached.hyperparameters()["lr"] == "0.5"
    assert attached.model_data == fitted.model_data


def test_metrics_come_in_the_query_form(fitted):
    cloudwatch = fitted.sagemaker_session.boto_session.client("cloudwatch")
    assert cloudwatch.meta.service_model.metadata["protocol"] == "query"
    job = fitted.latest_training_job.describe()
    request = {"Namespace": "/aws/sagemaker/TrainingJobs", "MetricName": "loss", "Period": 60, "Statistics": ["Average"],
               "Dimensions": [{"Name": "TrainingJobName", "Value": job["TrainingJobName"]}],
               "StartTime": job["TrainingStartTime"]}
    points = cloudwatch.get_metric_statistics(**request, EndTime=job["TrainingEndTime"].replace(year=2100))
    assert [point["Average"] for point in points["Datapoints"]] == [0.25]
    with pytest.raises(cloudwatch.exceptions.InvalidParameterValueException):
        cloudwatch.get_metric_statistics(**request, EndTime=job["TrainingStartTime"])
