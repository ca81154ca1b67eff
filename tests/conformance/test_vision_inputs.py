"""The inputs of the built-in image classification, by the SageMaker Python SDK v2 as its notebooks give them: lists,
RecordIO, augmented manifests, several labels a picture, and the model of an earlier job.

All jobs start together (background.py); each test looks at how one of them ended.
"""
import io
import re
import tarfile

import pytest

import drawn_pictures as drawn
from background import Background
from server import ROOT

pytestmark = pytest.mark.sdk

DATA = "s3://shop"
TRAIN, VALIDATION = 60, 30
PUBLISHED = ROOT / ".cache/weights/efficientnet-lite0.pth"  # scripts/setup puts it there
GUIDE = ROOT / "docs/image-classification.md"


def listing(number):
    """A block of the guide, for one core, so that two jobs run at a time on CI's two."""
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[number].replace("ml.m5.large", "ml.cpu.1x")


def definitions():
    names = {}
    exec(listing(0), names)
    return names


def result(estimator):
    description = estimator.latest_training_job.describe()
    return {"model": estimator.model_data, "config": description["InputDataConfig"],
            "metrics": {m["MetricName"]: m["Value"] for m in description.get("FinalMetricDataList", [])}}


def fit(which, changes=None, **hyperparameters):
    """The first job of the guide on other channels."""
    names = definitions()
    exec(listing(1).split("first.fit")[0], names)
    estimator = names["first"]
    estimator.set_hyperparameters(**hyperparameters)
    estimator.fit({**names[which], **(changes or {})}, logs="All")
    return result(estimator)


def pictures_list(uri):
    from sagemaker.inputs import TrainingInput
    return TrainingInput(uri, content_type="application/x-image")


# ---- Scenarios, each in a process of its own --------------------------------------------------

def fit_lists_and_go_on():
    names = definitions()
    first, second = listing(1).split("\n\n")
    exec(first, names)
    print("==== the second job")
    exec(second, names)
    return {"first": result(names["first"]), "second": result(names["second"])}


def fit_weight_files():
    """A weight file alone in the channel: the published one, and that of a model without what lies beside it."""
    import boto3
    from sagemaker.inputs import TrainingInput
    names = definitions()
    client = boto3.client("s3")
    small = {"image_shape": "3,32,32", "num_classes": 3, "epochs": 1, "mini_batch_size": 8, "learning_rate": 1e-4,
             "use_pretrained_model": 1}

    def start_from(key, **hyperparameters):
        print(f"==== {key}")
        estimator = names["classifier"](**small, **hyperparameters)
        weights = TrainingInput(f"{DATA}/{key}", content_type="application/x-sagemaker-model")
        estimator.fit({**names["lists"], "model": weights}, logs="All")
        return estimator.model_data.removeprefix("s3://").split("/", 1)

    client.upload_file(str(PUBLISHED), "shop", "weights/shop-lite0.pth")
    bucket, key = start_from("weights/shop-lite0.pth", backbone="efficientnet-lite0")
    with tarfile.open(fileobj=io.BytesIO(client.get_object(Bucket=bucket, Key=key)["Body"].read())) as model:
        tensors = model.extractfile(next(name for name in model.getnames() if name.endswith("model.safetensors"))).read()
    client.put_object(Bucket="shop", Key="others/shop.safetensors", Body=tensors)
    start_from("others/shop.safetensors", backbone="efficientnet-lite0")


def fit_records():
    return fit("records")


def fit_augmented():
    return fit("lines")


def fit_augmented_by_pipe():
    """As the notebook of Ground Truth has it."""
    from sagemaker.inputs import TrainingInput
    channels = {name: TrainingInput(f"{DATA}/{name}.manifest", distribution="FullyReplicated",
                                    content_type="application/x-recordio", s3_data_type="AugmentedManifestFile",
                                    attribute_names=["source-ref", "class"], record_wrapping="RecordIO", input_mode="Pipe")
                for name in ("train", "validation")}
    fit("lines", channels)


def fit_several_labels():
    channels = {f"{name}_lst": pictures_list(f"{DATA}/several/{name}.lst") for name in ("train", "validation")}
    return fit("lists", channels, multi_label=1, num_classes=2, use_weighted_loss=1)


def fit_wrong_list():
    fit("lists", {"train_lst": pictures_list(f"{DATA}/wrong.lst")})


SCENARIOS = {"lists": fit_lists_and_go_on, "records": fit_records, "augmented": fit_augmented,
             "weights": fit_weight_files, "pipe": fit_augmented_by_pipe, "several": fit_several_labels, "wrong": fit_wrong_list}


def upload(client):
    """Every form of one data set, below s3://shop."""
    client.create_bucket(Bucket="shop", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    put = lambda key, body: client.put_object(Bucket="shop", Key=key, Body=body)  # noqa: E731
    for name, first, count in (("train", 0, TRAIN), ("validation", TRAIN, VALIDATION)):
        rows = drawn.pictures(first, count)
        for path, _, body in rows:
            put(f"{name}/{path}", body)
        put(f"{name}_lst/{name}.lst", drawn.lst([([label], path) for path, label, _ in rows]))
        # "bright" and "striped": what is light has the first, what is striped both.
        put(f"several/{name}.lst", drawn.lst([([int(label > 0), int(label == 2)], path) for path, label, _ in rows]))
        put(f"{name}.manifest", drawn.manifest([(path, label) for path, label, _ in rows], f"{DATA}/{name}"))
        # Every fifth picture holds the magic number, at each place that a word can have.
        records = [drawn.record([label], i, drawn.png(label, i, bytes(i // 5 % 4) + drawn.MAGIC * 2) if i % 5 == 0 else body)
                   for i, (_, label, body) in enumerate(rows, first)]
        if name == "train":  # in two files
            put("records/train/a.rec", b"".join(records[:40]))
            put("records/train/b.rec", b"".join(records[40:]))
        else:
            put("records/validation/all.rec", b"".join(records))
    put("wrong.lst", b"1\t0\tdark/000.png\n2\t7\tlight/001.png\n")


@pytest.fixture(scope="module")
def running(atelier_server, sdk_config, tmp_path_factory):
    import boto3
    import sagemaker.estimator  # noqa: F401: once, before the forks
    atelier_server.run("s3", "mb", "s3://models", check=False)
    upload(boto3.client("s3"))
    background = Background(tmp_path_factory.mktemp("inputs"))
    for name, function in SCENARIOS.items():
        background.start(name, function)
    yield background
    background.close()


def accuracies(output):
    return [float(text) for text in re.findall(r"Epoch\[\d+\] Validation-accuracy=([0-9.]+)", output)]


def succeeded(running, name):
    outcome = running.outcome(name, 900)
    assert not outcome.error, outcome.output[-4000:]
    return outcome


# ---- What has to hold -------------------------------------------------------------------------

def test_lists_train_by_the_four_channels_of_the_notebooks(running):
    outcome = succeeded(running, "lists")
    assert [entry["ContentType"] for entry in outcome.value["first"]["config"]] == ["application/x-image"] * 4
    first = outcome.output.split("==== the second job")[0]
    assert f"data: classes=3 train_pictures={TRAIN} validation_pictures={VALIDATION}" in first
    assert max(accuracies(first)) > 0.6  # a third is chance
    assert outcome.value["first"]["metrics"]["validation:accuracy"] == pytest.approx(accuracies(first)[-1], abs=1e-6)


def test_a_job_goes_on_from_the_model_of_an_earlier_one(running):
    outcome = succeeded(running, "lists")
    first, second = outcome.output.split("==== the second job")
    assert {"ChannelName": "model", "ContentType": "application/x-sagemaker-model"}.items() <= \
        next(entry for entry in outcome.value["second"]["config"] if entry["ChannelName"] == "model").items()
    assert "incremental: backbone=resnet-18 image_size=32 classes=3" in second
    assert len(accuracies(second)) == 1
    assert accuracies(second)[0] == pytest.approx(max(accuracies(first)), abs=2.5 / VALIDATION)


def test_a_weight_file_alone_in_the_channel_is_started_from(running):
    outcome = succeeded(running, "weights")
    published, own = outcome.output.split("==== others/shop.safetensors")
    # Of ImageNet's network all but the classifier, which has a thousand classes; of our own all.
    assert re.search(r"weights: file=shop-lite0.pth loaded=\d+ missing=0 unexpected=0 mismatched=2", published), published
    assert re.search(r"weights: file=shop.safetensors loaded=\d+ missing=0 unexpected=0 mismatched=0", own), own
    assert "incremental:" not in outcome.output


def test_records_train_those_too_that_were_cut_at_the_magic_number(running):
    outcome = succeeded(running, "records")
    assert f"data: classes=3 train_pictures={TRAIN} validation_pictures={VALIDATION}" in outcome.output
    assert "damaged=0" in outcome.output
    assert max(accuracies(outcome.output)) > 0.6


def test_an_augmented_manifest_trains_in_file_mode_with_its_class_names(running, atelier_server, tmp_path):
    outcome = succeeded(running, "augmented")
    assert max(accuracies(outcome.output)) > 0.6
    model = tmp_path / "model.tar.gz"
    atelier_server.run("s3", "cp", outcome.value["model"], str(model))
    import json
    with tarfile.open(model) as archive:
        name = next(n for n in archive.getnames() if n.endswith("classes.json"))
        assert json.load(archive.extractfile(name))["classes"] == list(drawn.CLASSES)


def test_an_augmented_manifest_by_pipe_is_refused_by_name(running):
    outcome = running.outcome("pipe")
    assert outcome.error == "ClientError" and "ValidationException" in outcome.message
    assert "channel 'train'" in outcome.message and "'Pipe'" in outcome.message
    assert "only File and FastFile are served" in outcome.message


def test_several_labels_a_picture_are_learnt_and_measured_by_f1(running):
    outcome = succeeded(running, "several")
    assert max(float(text) for text in re.findall(r"Validation-f1=([0-9.]+)", outcome.output)) > 0.6
    metrics = outcome.value["metrics"]
    assert {"validation:accuracy", "validation:f1", "train:accuracy"} <= set(metrics)
    assert "validation:top_k_accuracy" not in metrics


def test_a_list_that_cannot_be_right_is_the_clients_failure_with_its_line(running):
    outcome = running.outcome("wrong")
    assert outcome.error == "UnexpectedStatusException"
    assert "channel 'train': 'wrong.lst': line 2: label 7; with 3 classes labels go from 0 to 2" in outcome.message
