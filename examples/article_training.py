"""The article's training job, as its author would run it, with the data read from S3.

    eval "$(bin/atelier env --data-dir ./data)"
    bin/atelier dataset import fashion-mnist s3://pictures/fashion-mnist --limit 6000 --data-dir ./data
    .env-sdk2/bin/python examples/article_training.py

It is SageMaker SDK code with nothing of Atelier in it: the article's estimator, on spot capacity with checkpoints. One
thing differs: the channels are S3 prefixes (the article mounts FSx for Lustre). An interruption costs what was
trained since the last epoch's checkpoint: try `bin/atelier jobs interrupt NAME` while it runs.
"""
import argparse
import os

from sagemaker.pytorch import PyTorch

parser = argparse.ArgumentParser(description="The article's training job")
parser.add_argument("--pictures", default="s3://pictures/fashion-mnist", help="holds train/ and validation/")
parser.add_argument("--output", default="s3://models/article", help="where the model goes")
parser.add_argument("--checkpoints", default="s3://models/article/checkpoints", help="where its state goes meanwhile")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--role", default="arn:aws:iam::000000000000:role/atelier")
arguments = parser.parse_args()

estimator = PyTorch(
    entry_point="train.py",
    source_dir=os.path.join(os.path.dirname(os.path.abspath(__file__)), "article"),
    role=arguments.role,
    framework_version="1.6.0",
    py_version="py3",
    instance_count=1,
    instance_type="ml.p4d.24xlarge",
    output_path=arguments.output,
    code_location=arguments.output + "/code",
    checkpoint_s3_uri=arguments.checkpoints,
    use_spot_instances=True,
    hyperparameters={"lr": 0.003, "batch-size": 64, "epochs": arguments.epochs},
    metric_definitions=[
        {"Name": "average train Loss", "Regex": "train-loss: ([0-9\\.]+)"},
        {"Name": "validation top-3", "Regex": "val-top3: ([0-9\\.]+)"},
    ],
)
estimator.fit({
    "train": arguments.pictures + "/train/",
    "val": arguments.pictures + "/validation/",
})
print("model:", estimator.model_data)
