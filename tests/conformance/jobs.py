"""Small jobs for the clients: a script packed as the SDK packs it, and a request to run it."""
import io
import tarfile
import textwrap
import uuid

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.13.1-cpu-py39"
ROLE = "arn:aws:iam::000000000000:role/atelier"


def name_of(base):
    return f"{base}-{uuid.uuid4().hex[:8]}"


def pack(script):
    text = textwrap.dedent(script).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return buffer.getvalue()


def request(name, source_uri, **changes):
    return {"TrainingJobName": name, "RoleArn": ROLE,
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": "s3://models/boto3"},
            "ResourceConfig": {"InstanceType": "ml.cpu.1x", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            "HyperParameters": {"sagemaker_program": "train.py", "sagemaker_submit_directory": source_uri},
            **changes}
