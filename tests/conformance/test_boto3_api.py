"""What clients ask about jobs besides running them: search, tags, updates, deletion, logs, metrics, roles.

One job that has ended serves them all; boto3 is the newest, so CloudWatch is spoken to in JSON.
"""
import datetime
import time

import boto3
import pytest
from botocore.exceptions import ClientError

import jobs

GROUP = "/aws/sagemaker/TrainingJobs"
SCRIPT = """
    import time
    for epoch in range(5):
        print(f"epoch {epoch} loss={1 / (epoch + 1)}", flush=True)
    print("trained", flush=True)
    """


@pytest.fixture(scope="module")
def clients(atelier_server):
    session = boto3.session.Session()
    return {name: session.client(name) for name in ("sagemaker", "s3", "logs", "cloudwatch", "iam", "sts")}


def run_job(clients, name, script=SCRIPT, **changes):
    try:
        clients["s3"].create_bucket(Bucket="api", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    except ClientError as error:
        assert error.response["Error"]["Code"] == "BucketAlreadyOwnedByYou"
    clients["s3"].put_object(Bucket="api", Key=f"{name}/sourcedir.tar.gz", Body=jobs.pack(script))
    body = jobs.request(name, f"s3://api/{name}/sourcedir.tar.gz",
                        OutputDataConfig={"S3OutputPath": "s3://api/models"}, **changes)
    body["AlgorithmSpecification"] = {**body["AlgorithmSpecification"],
                                      "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]}
    body["HyperParameters"] = {**body["HyperParameters"], "lr": "0.01"}
    arn = clients["sagemaker"].create_training_job(**body)["TrainingJobArn"]
    clients["sagemaker"].get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 200})
    described = clients["sagemaker"].describe_training_job(TrainingJobName=name)
    assert described["TrainingJobStatus"] == "Completed", described
    return arn, described


@pytest.fixture(scope="module")
def job(clients):
    name = jobs.name_of("api")
    arn, described = run_job(clients, name, Tags=[{"Key": "team", "Value": name}])
    return {"name": name, "arn": arn, **described}


def search(clients, **request):
    pages = clients["sagemaker"].get_paginator("search").paginate(Resource="TrainingJob", **request)
    return [row["TrainingJob"]["TrainingJobName"] for page in pages for row in page["Results"]]


def test_search_finds_the_job_by_its_properties(clients, job):
    def found(*filters, **request):
        return search(clients, SearchExpression={"Filters": list(filters)}, **request)
    mine = {"Name": "Tags.team", "Operator": "Equals", "Value": job["name"]}
    assert found(mine) == [job["name"]]
    assert found(mine, {"Name": "Metrics.loss", "Operator": "LessThan", "Value": "0.3"}) == [job["name"]]
    assert found(mine, {"Name": "Metrics.loss", "Operator": "GreaterThan", "Value": "0.3"}) == []
    assert found(mine, {"Name": "HyperParameters.lr", "Operator": "Equals", "Value": "0.01"}) == [job["name"]]
    assert found(mine, {"Name": "TrainingJobStatus", "Operator": "In", "Value": "Failed,Completed"}) == [job["name"]]
    assert found(mine, {"Name": "TrainingJobName", "Operator": "Contains", "Value": job["name"][4:]},
                 SortBy="Metrics.loss", PaginationConfig={"PageSize": 1}) == [job["name"]]
    assert search(clients, VisibilityConditions=[{"Key": "Tags.team", "Value": job["name"]}]) == [job["name"]]
    row = clients["sagemaker"].search(Resource="TrainingJob", SearchExpression={"Filters": [mine]})["Results"][0]
    shown = row["TrainingJob"]
    assert shown["Tags"] == [{"Key": "team", "Value": job["name"]}]
    assert shown["CreationTime"] == job["CreationTime"] and shown["TrainingJobArn"] == job["arn"]
    with pytest.raises(ClientError, match="Unknown property name: 'Colour'"):
        found({"Name": "Colour", "Operator": "Equals", "Value": "red"})
    names = clients["sagemaker"].get_search_suggestions(
        Resource="TrainingJob", SuggestionQuery={"PropertyNameQuery": {"PropertyNameHint": "Metrics."}})
    assert {"PropertyName": "Metrics.loss"} in names["PropertyNameSuggestions"]


def test_tags_change_and_outlive_a_restart(clients, job, atelier_server):
    sagemaker = clients["sagemaker"]
    sagemaker.add_tags(ResourceArn=job["arn"], Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    sagemaker.delete_tags(ResourceArn=job["arn"], TagKeys=["a"])
    atelier_server.kill()
    atelier_server.restart()
    assert sagemaker.list_tags(ResourceArn=job["arn"])["Tags"] == [
        {"Key": "team", "Value": job["name"]}, {"Key": "b", "Value": "2"}]


def test_a_job_that_runs_is_updated_and_shows_it(clients, job):
    """Nothing acts on a profiler or a remote shell yet: both are kept, shown, and what has no effect is said."""
    sagemaker, name = clients["sagemaker"], jobs.name_of("updated")
    clients["s3"].put_object(Bucket="api", Key=f"{name}.tar.gz", Body=jobs.pack("import time\ntime.sleep(600)\n"))
    sagemaker.create_training_job(**jobs.request(name, f"s3://api/{name}.tar.gz", OutputDataConfig={
        "S3OutputPath": "s3://api/models"}, ProfilerConfig={"S3OutputPath": "s3://api/profile"}))
    deadline = time.monotonic() + 60
    while sagemaker.describe_training_job(TrainingJobName=name)["SecondaryStatus"] != "Training":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    rule = {"RuleConfigurationName": "ProfilerReport", "RuleParameters": {"rule_to_invoke": "ProfilerReport"},
            "RuleEvaluatorImage": "895741380848.dkr.ecr.us-west-2.amazonaws.com/sagemaker-debugger-rules:latest"}
    for change in ({"ProfilerConfig": {"ProfilingIntervalInMilliseconds": 500}, "ProfilerRuleConfigurations": [rule]},
                   {"ProfilerConfig": {"DisableProfiler": True}}, {"RemoteDebugConfig": {"EnableRemoteDebug": True}}):
        before = sagemaker.describe_training_job(TrainingJobName=name)["LastModifiedTime"]
        assert sagemaker.update_training_job(TrainingJobName=name, **change)["TrainingJobArn"].endswith("/" + name)
        assert sagemaker.describe_training_job(TrainingJobName=name)["LastModifiedTime"] >= before
    shown = sagemaker.describe_training_job(TrainingJobName=name)
    assert shown["ProfilerConfig"] == {"S3OutputPath": "s3://api/profile", "ProfilingIntervalInMilliseconds": 500,
                                       "DisableProfiler": True}
    assert shown["ProfilerRuleConfigurations"] == [rule]
    assert shown["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert shown["ProfilingStatus"] == "Disabled"
    said = shown["SecondaryStatusTransitions"][0]["StatusMessage"]
    assert "jobs are not profiled yet" in said and "RemoteDebugConfig has no effect" in said, said
    with pytest.raises(ClientError, match="created without KeepAlivePeriodInSeconds"):
        sagemaker.update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 60})
    with pytest.raises(ClientError, match="s3OutputPath"):
        sagemaker.update_training_job(TrainingJobName=name, ProfilerConfig={"S3OutputPath": "http://no"})
    sagemaker.stop_training_job(TrainingJobName=name)
    sagemaker.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def test_an_update_of_an_ended_job_is_refused_with_the_reason(clients, job):
    for change in ({"ProfilerConfig": {"DisableProfiler": True}}, {"ResourceConfig": {"KeepAlivePeriodInSeconds": 60}},
                   {"RemoteDebugConfig": {"EnableRemoteDebug": True}}):
        with pytest.raises(ClientError, match="Completed") as caught:
            clients["sagemaker"].update_training_job(TrainingJobName=job["name"], **change)
        assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_deleted_job_leaves_its_model_and_frees_its_name(clients):
    sagemaker, name = clients["sagemaker"], jobs.name_of("deleted")
    run_job(clients, name)
    deadline = time.monotonic() + 30
    while True:  # its agent may take a moment to leave
        try:
            sagemaker.delete_training_job(TrainingJobName=name)
            break
        except ClientError as error:
            assert error.response["Error"]["Code"] == "ResourceInUse" and time.monotonic() < deadline, error
    with pytest.raises(ClientError, match="Requested resource not found"):
        sagemaker.describe_training_job(TrainingJobName=name)
    assert clients["s3"].head_object(Bucket="api", Key=f"models/{name}/output/model.tar.gz")["ContentLength"] > 0
    assert sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"] == []
    run_job(clients, name)


def test_log_lines_are_filtered_and_paged(clients, job):
    logs, prefix = clients["logs"], job["name"] + "/"
    assert logs.describe_log_groups(logGroupNamePrefix="/aws/sagemaker")["logGroups"][0]["logGroupName"] == GROUP

    def lines(pattern="", **request):
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName=GROUP, logStreamNamePrefix=prefix, filterPattern=pattern, **request)
        return [event for page in pages for event in page["events"]]
    assert [e["message"].split(" loss")[0] for e in lines("epoch -\"epoch 0\"")] == [f"epoch {n}" for n in range(1, 5)]
    assert [e["message"] for e in lines("?trained ?nothing")] == ["trained"]
    everything = lines()
    assert lines(PaginationConfig={"PageSize": 1}) == everything
    assert len({event["eventId"] for event in everything}) == len(everything)
    last = everything[-1]["timestamp"]
    assert lines(startTime=last + 1) == [] and lines(endTime=everything[0]["timestamp"]) == []
    with pytest.raises(ClientError, match="not served"):
        lines("{ $.level = \"error\" }")


def test_metrics_come_at_any_period(clients, job):
    cloudwatch = clients["cloudwatch"]
    dimensions = [{"Name": "TrainingJobName", "Value": job["name"]}]
    end = job["TrainingEndTime"] + datetime.timedelta(seconds=60)
    request = {"Namespace": GROUP, "MetricName": "loss", "Dimensions": dimensions,
               "StartTime": job["TrainingStartTime"], "EndTime": end}
    for period in (1, 60, 3600):
        points = cloudwatch.get_metric_statistics(**request, Period=period, Statistics=["Sum", "SampleCount", "Minimum"])
        assert sum(p["SampleCount"] for p in points["Datapoints"]) == 5
        assert sum(p["Sum"] for p in points["Datapoints"]) == pytest.approx(sum(1 / n for n in range(1, 6)))
        assert min(p["Minimum"] for p in points["Datapoints"]) == 0.2
    data = cloudwatch.get_metric_data(StartTime=request["StartTime"], EndTime=end, MetricDataQueries=[{
        "Id": "m", "MetricStat": {"Metric": {"Namespace": GROUP, "MetricName": "loss", "Dimensions": dimensions},
                                  "Period": 3600, "Stat": "p100"}}])["MetricDataResults"]
    assert max(data[0]["Values"]) == 1
    listed = cloudwatch.list_metrics(Namespace=GROUP, Dimensions=dimensions)["Metrics"]
    assert [metric["MetricName"] for metric in listed] == ["loss"]
    with pytest.raises(cloudwatch.exceptions.InvalidParameterValueException):
        cloudwatch.get_metric_statistics(**{**request, "EndTime": request["StartTime"]}, Period=60, Statistics=["Sum"])


def test_roles_and_permissions_are_answered(clients):
    iam = clients["iam"]
    role = iam.list_roles()["Roles"][0]
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]["Service"] == "sagemaker.amazonaws.com"
    results = iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=jobs.ROLE, ActionNames=["s3:GetObject", "s3:PutObject"], ResourceArns=["arn:aws:s3:::api/*"])
    assert [r["EvalDecision"] for page in results for r in page["EvaluationResults"]] == ["allowed", "allowed"]


@pytest.mark.parametrize("service,operation,options,said", [
    # docs/clients.md says who would ask: nobody on the way to a job.
    ("sts", "assume_role", {"RoleArn": jobs.ROLE, "RoleSessionName": "ann"}, "AssumeRole"),
    ("ecr", "get_authorization_token", {}, "ContainerRegistry"),
    ("cloudwatch", "put_metric_data", {"Namespace": "mine", "MetricData": []}, "PutMetricData"),
])
def test_what_is_not_served_is_refused_by_its_name(atelier_server, service, operation, options, said):
    with pytest.raises(ClientError, match=said) as refused:
        getattr(boto3.client(service), operation)(**options)
    assert refused.value.response["Error"]["Code"] == "NotImplemented"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501
