"""What users do while kill_anything.py kills: puts, and jobs of several kinds that are made, tagged, stopped, deleted.

Each thread keeps the model: what was acknowledged, and what may or may not have happened because no answer came.
"""
import hashlib
import os
import pathlib
import random
import sys
import threading
import time

import boto3
import botocore.config
import botocore.exceptions

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/conformance"))
import jobs as small_jobs  # noqa: E402

LINES = 120
MOST_UNFINISHED = 10
MODEL_BYTES = 3_000_000
CHANNEL_SIZES = (10, 70_000, 900_000, 5_000_000)  # of the objects in the channel that all jobs share
WARM = "/opt/ml/sagemaker/warmpoolcache"
# Half a core each, so that four run at a time on two cores.
INSTANCES = """
[instances]
"ml.kill.half" = { vcpus = 0.5, memory_gib = 0.5 }
"""
SCRIPT = f"""
    import hashlib, os, signal, sys, time
    word, kind, host = os.environ["SM_HP_WORD"], os.environ["SM_HP_KIND"], os.environ["SM_CURRENT_HOST"]

    def deliver():
        with open("/opt/ml/model/weights-" + host, "wb") as file:
            file.write(hashlib.sha256(word.encode()).digest() * ({MODEL_BYTES} // 32))
        with open("/opt/ml/output/data/word-" + host, "w") as file:
            file.write(word)
        print("delivered")

    def leave(number, frame):
        deliver()
        sys.exit(0)

    if kind == "stopped":
        signal.signal(signal.SIGTERM, leave)
    elif kind in ("plain", "warm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin, checkpoint = 0, "/opt/ml/checkpoints/line"
    if kind == "spot" and os.path.exists(checkpoint):
        begin = int(open(checkpoint).read())
    print("run", os.urandom(8).hex(), "from", begin)
    for name in sorted(os.listdir(os.environ["SM_CHANNEL_DATA"])):
        with open(os.path.join(os.environ["SM_CHANNEL_DATA"], name), "rb") as file:
            print("file", name, hashlib.sha256(file.read()).hexdigest())
    if os.path.isdir("{WARM}"):
        print("found", *sorted(os.listdir("{WARM}")))
        with open(os.path.join("{WARM}", os.environ["TRAINING_JOB_NAME"]), "w"):
            print("left a file")
    for line in range(begin, {LINES}):
        print("line", line)
        time.sleep(float(os.environ["SM_HP_PAUSE"]))
        if kind == "spot":
            with open(checkpoint + ".tmp", "w") as file:
                file.write(str(line + 1))
            os.replace(checkpoint + ".tmp", checkpoint)
    deliver()
    """
# Of each kind: its share of the jobs, and how long a line may take.
KINDS = {"plain": (25, (0, 0.002, 0.01)), "spot": (30, (0.01, 0.03)), "stopped": (15, (0.03, 0.1)),
         "pair": (12, (0.002, 0.01)), "warm": (18, (0, 0.002))}
GONE = (botocore.exceptions.EndpointConnectionError, botocore.exceptions.ConnectionClosedError,
        botocore.exceptions.HTTPClientError, ConnectionError, OSError)


def digest(body):
    return hashlib.sha256(body).hexdigest()


def code_of(error):
    return error.response["Error"]["Code"]


def weights_of(word):
    return hashlib.sha256(word.encode()).digest() * (MODEL_BYTES // 32)


class Clients:
    """boto3 clients without retries (an answer that did not come is ours to judge), at the server's present port."""

    def __init__(self, server, environment):
        self.server = server
        self.session = boto3.session.Session(
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            region_name=environment["AWS_DEFAULT_REGION"])
        self.config = botocore.config.Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30,
                                             max_pool_connections=20)
        self.lock = threading.Lock()
        self.made = {}

    def __call__(self, service):
        with self.lock:
            key = (service, self.server.url)
            if key not in self.made:
                self.made[key] = self.session.client(service, endpoint_url=self.server.url, config=self.config)
            return self.made[key]


class Puts(threading.Thread):
    """Puts objects of many sizes, in one request or in parts; remembers which bodies a key may have."""

    def __init__(self, number, seed, clients, over):
        super().__init__(daemon=True)
        self.number, self.rng, self.clients, self.over = number, random.Random(f"{seed}/puts/{number}"), clients, over
        self.may_be = {}  # key -> digests that a reader may find; None: nothing there
        self.acknowledged, self.cut = 0, 0

    def run(self):
        while not self.over.is_set():
            # Few keys: what is there is written over often.
            key = f"w{self.number}/{self.rng.randrange(60)}"
            size = self.rng.choice([0, 10, 3000, 70_000, 900_000, 6_000_000])
            body = self.rng.randbytes(size)
            allowed = self.may_be.setdefault(key, {None})
            allowed.add(digest(body))
            try:
                if size == 6_000_000:
                    self.in_parts(key, body)
                else:
                    self.clients("s3").put_object(Bucket="objects", Key=key, Body=body)
            except GONE:
                self.cut += 1
                time.sleep(0.05)
                continue
            except botocore.exceptions.ClientError as error:
                # An upload whose server was killed between its parts is complete or not there.
                if code_of(error) != "NoSuchUpload":
                    raise
                self.cut += 1
                continue
            self.may_be[key] = {digest(body)}
            self.acknowledged += 1

    def in_parts(self, key, body):
        upload = self.clients("s3").create_multipart_upload(Bucket="objects", Key=key)["UploadId"]
        where = {"Bucket": "objects", "Key": key, "UploadId": upload}
        cut = 5 << 20
        parts = [{"PartNumber": n, "ETag": self.clients("s3").upload_part(**where, PartNumber=n, Body=piece)["ETag"]}
                 for n, piece in ((1, body[:cut]), (2, body[cut:]))]
        self.clients("s3").complete_multipart_upload(**where, MultipartUpload={"Parts": parts})


class Job:
    """A job that was acknowledged, and what is known of it."""

    def __init__(self, name, kind, word, tags):
        self.name, self.kind, self.word, self.tags = name, kind, word, tags
        self.stop = "no"        # "asked": acknowledged; "maybe": no answer came
        self.deleted = False    # acknowledged
        self.model_stays = False  # it was Completed when it was deleted
        self.seen_ended = False

    @property
    def hosts(self):
        return ("algo-1", "algo-2") if self.kind == "pair" else ("algo-1",)


def request(job, source, rng):
    body = small_jobs.request(job.name, source)
    body["ResourceConfig"] |= {"InstanceType": "ml.kill.half", "InstanceCount": len(job.hosts)}
    body["AlgorithmSpecification"] = {**body["AlgorithmSpecification"],
                                      "MetricDefinitions": [{"Name": "line", "Regex": "^line ([0-9]+)$"}]}
    body["OutputDataConfig"] = {"S3OutputPath": "s3://models/kill"}
    body["InputDataConfig"] = [{"ChannelName": "data", "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": "s3://source/data/"}}}]
    body["HyperParameters"] |= {"word": job.word, "kind": job.kind, "pause": str(rng.choice(KINDS[job.kind][1]))}
    body["Tags"] = [{"Key": key, "Value": value} for key, value in job.tags.items()]
    if job.kind == "spot":
        body |= {"EnableManagedSpotTraining": True, "CheckpointConfig": {"S3Uri": f"s3://checkpoints/{job.name}"},
                 "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 3600},
                 "RetryStrategy": {"MaximumRetryAttempts": rng.choice([1, 30])}}
    if job.kind == "warm":
        body["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 600
    return body


class Creates(threading.Thread):
    """Makes jobs in storms, while few of them wait; a create whose answer did not come is made again under its name."""

    def __init__(self, seed, clients, source, over):
        super().__init__(daemon=True)
        self.rng, self.clients, self.source, self.over = random.Random(f"{seed}/jobs"), clients, source, over
        self.made, self.again = {}, 0

    def run(self):
        while not self.over.is_set():
            if self.unfinished() >= MOST_UNFINISHED:
                self.over.wait(0.5)
                continue
            for _ in range(self.rng.choice([1, 2, 6])):
                kind = self.rng.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
                # Our own names: what another run has left on the host is not ours to judge.
                self.create(f"kill-{os.getpid()}-{len(self.made):03}", kind)
            self.over.wait(self.rng.uniform(0.5, 3))

    def unfinished(self):
        try:
            page = self.clients("sagemaker").list_training_jobs(StatusEquals="InProgress", MaxResults=100)
            return len(page["TrainingJobSummaries"])
        except GONE:
            return MOST_UNFINISHED

    def create(self, name, kind):
        job = Job(name, kind, f"w{self.rng.randrange(10**9)}", {"made-as": kind})
        body = request(job, self.source, self.rng)
        while not self.over.is_set():
            try:
                self.clients("sagemaker").create_training_job(**body)
            except GONE:
                self.again += 1
                time.sleep(0.05)
                continue
            except botocore.exceptions.ClientError as error:
                if code_of(error) != "ResourceInUse":  # the attempt before did it
                    raise
            self.made[name] = job
            return


class Changes(threading.Thread):
    """Tags jobs, stops those that are there to be stopped, and deletes some that have ended. Asks until an answer comes."""

    def __init__(self, seed, clients, creates, over):
        super().__init__(daemon=True)
        self.rng, self.clients, self.creates, self.over = random.Random(f"{seed}/changes"), clients, creates, over
        self.tagged, self.stopped, self.deleted = 0, 0, 0

    def run(self):
        while not self.over.is_set():
            self.over.wait(self.rng.uniform(0, 0.4))
            there = [job for job in list(self.creates.made.values()) if not job.deleted]
            if not there:
                continue
            self.tag(self.rng.choice(there))
            to_stop = [job for job in there if job.kind == "stopped" and job.stop == "no"]
            if to_stop and self.rng.random() < 0.8:
                self.ask_to_stop(self.rng.choice(to_stop[-2:]))  # those that may still run
            # Not what leaves a warm pool: which of them was reused by whom is looked at in the end.
            ended = [job for job in there if job.kind != "warm" and self.has_ended(job)]
            if ended and self.rng.random() < 0.04:
                self.delete(self.rng.choice(ended))

    def ask(self, call):
        """(the answer's error code or None, whether an earlier attempt got no answer)"""
        again = False
        while True:
            try:
                call(self.clients("sagemaker"))
                return None, again
            except GONE:
                again = True
                time.sleep(0.05)
            except botocore.exceptions.ClientError as error:
                return code_of(error), again

    def expect(self, code, *expected):
        if code not in expected:
            raise AssertionError(f"answered with {code}, expected one of {expected}")

    def arn(self, job):
        return f"arn:aws:sagemaker:us-west-2:000000000000:training-job/{job.name}"

    def tag(self, job):
        if len(job.tags) > 3 and self.rng.random() < 0.5:
            key = self.rng.choice([key for key in job.tags if key != "made-as"])
            code, _ = self.ask(lambda sagemaker: sagemaker.delete_tags(ResourceArn=self.arn(job), TagKeys=[key]))
            self.expect(code, None)
            del job.tags[key]
        else:
            key, value = f"k{self.rng.randrange(6)}", str(self.tagged)
            code, _ = self.ask(lambda sagemaker: sagemaker.add_tags(ResourceArn=self.arn(job),
                                                                    Tags=[{"Key": key, "Value": value}]))
            self.expect(code, None)
            job.tags[key] = value
        self.tagged += 1

    def ask_to_stop(self, job):
        job.stop = "maybe"
        code, again = self.ask(lambda sagemaker: sagemaker.stop_training_job(TrainingJobName=job.name))
        self.expect(code, None, "ValidationException")  # it has ended already, perhaps because of us
        job.stop = "asked" if code is None else "maybe" if again else "too late"
        self.stopped += code is None

    def has_ended(self, job):
        if not job.seen_ended:
            try:
                described = self.clients("sagemaker").describe_training_job(TrainingJobName=job.name)
            except GONE:
                return False
            job.seen_ended = described["TrainingJobStatus"] in ("Completed", "Failed", "Stopped")
            job.model_stays = described["TrainingJobStatus"] == "Completed"
        return job.seen_ended

    def delete(self, job):
        code, again = self.ask(lambda sagemaker: sagemaker.delete_training_job(TrainingJobName=job.name))
        if code == "ResourceInUse":  # its agent has not left yet
            return
        # Gone by an attempt whose answer never came.
        self.expect(code, None, *(["ResourceNotFound", "ValidationException"] if again else []))
        job.deleted = True
        self.deleted += 1
