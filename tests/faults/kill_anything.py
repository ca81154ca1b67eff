#!/usr/bin/env python3
"""Kills the server, agents and programs at random while objects are put and jobs are made, run and interrupted.

Usage: kill_anything.py [--seed N] [--seconds N] [--kills N] [--data-dir DIR]     (a Python with boto3)

The server is killed with SIGKILL every few seconds and started again, on its port or another. Then everything that
was acknowledged is looked at: each object is whole, each job is there once, ran once and ended right or says what was
killed, no log line is lost or doubled, each attempt of an interrupted or retried spot job went on from a checkpoint
of the one before, and no process, mount, control group or file is left. What is done follows from the seed; which
process is hit at what moment is up to the machine. Prints what was checked; exit code 0 if all of it held.
"""
import argparse
import hashlib
import io
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import threading
import time

import boto3
import botocore.config
import botocore.exceptions

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/conformance"))
import jobs as small_jobs  # noqa: E402
from server import Server  # noqa: E402

LINES = 120
MODEL_BYTES = 3_000_000
SCRIPT = f"""
    import hashlib, os, signal, sys, time
    word, spot = os.environ["SM_HP_WORD"], os.environ["SM_HP_SPOT"] == "1"
    if not spot:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin, checkpoint = 0, "/opt/ml/checkpoints/line"
    if spot and os.path.exists(checkpoint):
        begin = int(open(checkpoint).read())
    print("run", os.urandom(8).hex(), "from", begin)
    for line in range(begin, {LINES}):
        print("line", line)
        time.sleep(float(os.environ["SM_HP_PAUSE"]))
        if spot:
            with open(checkpoint + ".tmp", "w") as file:
                file.write(str(line + 1))
            os.replace(checkpoint + ".tmp", checkpoint)
    with open("/opt/ml/model/weights", "wb") as file:
        file.write(hashlib.sha256(word.encode()).digest() * ({MODEL_BYTES} // 32))
    with open("/opt/ml/output/data/word", "w") as file:
        file.write(word)
    """
GONE = (botocore.exceptions.EndpointConnectionError, botocore.exceptions.ConnectionClosedError,
        botocore.exceptions.HTTPClientError, ConnectionError, OSError)
END_SECONDS = 120


def digest(body):
    return hashlib.sha256(body).hexdigest()


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
                if error.response["Error"]["Code"] != "NoSuchUpload":
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


class Creates(threading.Thread):
    """Makes jobs in storms; a create whose answer did not come is made again under its name."""

    def __init__(self, seed, clients, source, over, most):
        super().__init__(daemon=True)
        self.rng, self.clients, self.source, self.over = random.Random(f"{seed}/jobs"), clients, source, over
        self.most, self.made, self.again = most, {}, 0

    def run(self):
        while not self.over.is_set() and len(self.made) < self.most:
            for _ in range(self.rng.choice([1, 2, 6])):
                # Our own names: what another run has left on the host is not ours to judge.
                self.create(f"kill-{os.getpid()}-{len(self.made):03}")
            self.over.wait(self.rng.uniform(0.5, 3))

    def create(self, name):
        word = f"w{self.rng.randrange(10**9)}"
        spot = self.rng.random() < 0.5
        body = small_jobs.request(name, self.source)
        body["OutputDataConfig"] = {"S3OutputPath": "s3://models/kill"}
        body["HyperParameters"] |= {"word": word, "spot": str(int(spot)),
                                    "pause": str(self.rng.choice([0.01, 0.03] if spot else [0, 0.002, 0.01]))}
        if spot:
            body |= {"EnableManagedSpotTraining": True, "CheckpointConfig": {"S3Uri": f"s3://checkpoints/{name}"},
                     "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 3600},
                     "RetryStrategy": {"MaximumRetryAttempts": self.rng.choice([1, 30])}}
        while not self.over.is_set():
            try:
                self.clients("sagemaker").create_training_job(**body)
            except GONE:
                self.again += 1
                time.sleep(0.05)
                continue
            except botocore.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "ResourceInUse":  # the attempt before did it
                    raise
            self.made[name] = word
            return


def processes():
    """pid -> (parent, command line) of all that runs."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
                parent = int((entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            found[int(entry.name)] = (parent, command)
    return found


def agents(data_dir, running):
    folder = str(data_dir / "jobs") + "/"
    return {pid: command[3].removeprefix(folder) for pid, (_, command) in running.items()
            if command[1:3] == ["agent", "--job-folder"] and command[3].startswith(folder)}


def descends(pid, ancestor, running):
    while pid in running:
        pid = running[pid][0]
        if pid == ancestor:
            return True
    return False


def hit_a_job(data_dir, rng, hit):
    """Kills an agent or a program, if one runs, and notes which."""
    running = processes()
    found = sorted(agents(data_dir, running).items(), key=lambda item: item[1])
    if not found:
        return
    agent, name = rng.choice(found)
    programs = [pid for pid, (_, command) in running.items()
                if "train.py" in command and "bwrap" not in command[0] and "sandbox_entry" not in command[0]
                and descends(pid, agent, running)]
    victim, what = (programs[0], "program") if programs and rng.random() < 0.5 else (agent, "agent")
    hit.setdefault(name, set()).add(what)  # before: it may matter at once
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        pass


def interrupt_a_job(server, rng):
    """Interrupts one of those that have an agent; whether it is a spot job is up to chance."""
    names = sorted(set(agents(server.data_dir, processes()).values()))
    if not names:
        return 0
    return int(server.run("jobs", "interrupt", rng.choice(names), check=False).returncode == 0)


class Checks:
    def __init__(self):
        self.done, self.problems = 0, []

    def that(self, holds, words):
        self.done += 1
        if not holds:
            self.problems.append(words)
            print(f"BROKEN: {words}", flush=True)


def check_objects(clients, writers, checks):
    s3 = clients("s3")
    listed = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket="objects"):
        for item in page.get("Contents", []):
            checks.that(item["Key"] not in listed, f"object {item['Key']} is listed twice")
            listed[item["Key"]] = item["Size"]
    for writer in writers:
        for key, allowed in writer.may_be.items():
            body = s3.get_object(Bucket="objects", Key=key)["Body"].read() if key in listed else None
            found = None if body is None else digest(body)
            checks.that(found in allowed, f"object {key} is {'lost' if body is None else 'not what was put'}")
            checks.that(body is None or len(body) == listed[key], f"object {key} has a wrong size in the listing")


def wait_for_jobs(clients):
    """name -> how often it is listed, once all have ended, or none has for END_SECONDS; and those that have not."""
    sagemaker, limit, fewest = clients("sagemaker"), time.monotonic() + END_SECONDS, None
    while True:
        found = [job for page in sagemaker.get_paginator("list_training_jobs").paginate(MaxResults=100)
                 for job in page["TrainingJobSummaries"]]
        unfinished = [job["TrainingJobName"] for job in found if job["TrainingJobStatus"] in ("InProgress", "Stopping")]
        if fewest is None or len(unfinished) < fewest:  # a long queue is no fault
            fewest, limit = len(unfinished), time.monotonic() + END_SECONDS
        if not unfinished or time.monotonic() > limit:
            names = [job["TrainingJobName"] for job in found]
            return {name: names.count(name) for name in names}, unfinished
        time.sleep(0.5)


def log_lines(clients, name):
    logs, group = clients("logs"), "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name + "/")["logStreams"]
    lines, token = [], None
    while streams:
        page = logs.get_log_events(logGroupName=group, logStreamName=streams[0]["logStreamName"], startFromHead=True,
                                   **({"nextToken": token} if token else {}))
        if not page["events"]:
            break
        lines += [event["message"] for event in page["events"]]
        token = page["nextForwardToken"]
    return lines


def members_of(clients, job, name):
    body = clients("s3").get_object(Bucket="models", Key=f"kill/{job}/output/{name}")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        return {member.name.removeprefix("./"): archive.extractfile(member).read()
                for member in archive.getmembers() if member.isfile()}


def check_attempts(name, lines, checks):
    """Each run of a spot job goes on at most where the one before had come to, and counts up from there."""
    expected, reached = None, 0
    for line in lines:
        if found := re.fullmatch(r"run \S+ from (\d+)", line):
            expected = int(found[1])
            checks.that(expected <= reached, f"{name}: a run began at {expected}, the one before came to {reached}")
        elif found := re.fullmatch(r"line (\d+)", line):
            checks.that(int(found[1]) == expected, f"{name}: line {found[1]} came where {expected} was due")
            expected += 1
            reached = max(reached, expected)


def check_job(clients, name, word, hit, checks):
    job = clients("sagemaker").describe_training_job(TrainingJobName=name)
    status, reason = job["TrainingJobStatus"], job.get("FailureReason", "")
    lines = log_lines(clients, name)
    runs = [line for line in lines if line.startswith("run ")]
    numbers = [int(found[1]) for line in lines if (found := re.fullmatch(r"line (\d+)", line))]
    states = [step["Status"] for step in job["SecondaryStatusTransitions"]]
    attempts = 1 + states.count("Interrupted") + states.count("Restarting")
    checks.that(len(runs) <= attempts, f"{name}: its program ran {len(runs)} times in {attempts} attempts")
    if job["EnableManagedSpotTraining"]:
        check_attempts(name, lines, checks)
    else:
        checks.that(attempts == 1, f"{name}: an on-demand job without retries had {attempts} attempts: {states}")
        checks.that(numbers == list(range(len(numbers))), f"{name}: lines lost, doubled or out of order: {numbers}")
    if "TrainingEndTime" in job:
        lasted = (job["TrainingEndTime"] - job["TrainingStartTime"]).total_seconds()
        checks.that(1 <= job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"] <= lasted + 2 + attempts,
                    f"{name}: {job['TrainingTimeInSeconds']} s of training in {lasted} s")
    checks.that(states.count(states[-1]) == 1, f"{name}: ended more than once: {states}")
    if status == "Completed":
        checks.that(set(numbers) == set(range(LINES)), f"{name}: Completed with {len(set(numbers))} of {LINES} lines")
        weights = members_of(clients, name, "model.tar.gz").get("weights")
        wanted = hashlib.sha256(word.encode()).digest() * (MODEL_BYTES // 32)
        checks.that(weights == wanted, f"{name}: its model is not what it wrote")
        data = members_of(clients, name, "output.tar.gz").get("word")
        checks.that(data == word.encode(), f"{name}: its output is not what it wrote")
        return status
    causes = {"agent": r"agent was killed", "program": r"SIGKILL|ExitCode -9\b"}
    checks.that(status == "Failed" and any(re.search(causes[what], reason) for what in hit),
                f"{name}: {status}, hit: {sorted(hit) or 'nothing'}, reason: {reason!r}")
    return status


def wait_for_agents(data_dir):
    limit = time.monotonic() + 20  # they clean up and leave
    time.sleep(0.5)
    while (left := agents(data_dir, processes())) and time.monotonic() < limit:
        time.sleep(0.1)
    return left


def check_leavings(data_dir, names, checks):
    """What must not be there once all jobs have ended and the server has been stopped."""
    left = wait_for_agents(data_dir)
    checks.that(not left, f"agents are left: {left}")
    left = {pid: command for pid, (_, command) in processes().items()
            if any(str(data_dir) in word for word in command) and pid != os.getpid()}
    checks.that(not left, f"processes are left: {left}")
    checks.that(str(data_dir) not in pathlib.Path("/proc/self/mountinfo").read_text(), "mounts are left")
    groups = [folder for root in ("/sys/fs/cgroup",) if os.path.isdir(root)
              for base, folders, _ in os.walk(root) for folder in folders
              if any(folder.startswith(f"atelier-{name}-") for name in names)]
    checks.that(not groups, f"control groups are left: {groups}")
    for name in names:
        folder = data_dir / "jobs" / name
        left = [part for part in ("ml", "tmp", "model.tar.gz", "output.tar.gz", "sourcedir.tar.gz")
                if (folder / part).exists()]
        checks.that(not left, f"{name} left {left} in its folder")


def disturb(server, rng, seconds, least_kills, hit):
    """Kills for so long, and so often; returns how often the server was killed, and jobs were interrupted."""
    kills, interrupts, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end or kills + sum(map(len, hit.values())) < least_kills:
        for _ in range(rng.randrange(3)):
            time.sleep(rng.uniform(0.05, 1))
            hit_a_job(server.data_dir, rng, hit)
        for _ in range(rng.randrange(5)):
            interrupts += interrupt_a_job(server, rng)
        time.sleep(rng.uniform(0.1, 2.5))
        server.kill()
        kills += 1
        time.sleep(rng.choice([0, 0, 0.3]))
        if rng.random() < 0.5:
            server.restart()
        else:
            server.start()
    return kills, interrupts


def run(seed, seconds, least_kills, data_dir):
    rng = random.Random(f"{seed}/kills")
    server = Server(data_dir).start()
    checks, over, hit = Checks(), threading.Event(), {}
    try:
        clients = Clients(server, server.environment())
        for bucket in ("objects", "models", "source", "checkpoints"):
            clients("s3").create_bucket(Bucket=bucket,
                                        CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        clients("s3").put_object(Bucket="source", Key="sourcedir.tar.gz", Body=small_jobs.pack(SCRIPT))
        writers = [Puts(number, seed, clients, over) for number in range(3)]
        creates = Creates(seed, clients, "s3://source/sourcedir.tar.gz", over, most=max(seconds, 2 * least_kills))
        for thread in (*writers, creates):
            thread.start()
        kills, interrupts = disturb(server, rng, seconds, least_kills, hit)
        over.set()
        for thread in (*writers, creates):
            thread.join(60)
            checks.that(not thread.is_alive(), f"{type(thread).__name__} hangs")
        listed, unfinished = wait_for_jobs(clients)
        checks.that(not unfinished, f"jobs that do not end: {unfinished}")
        check_objects(clients, writers, checks)
        ends = []
        for name, word in creates.made.items():
            checks.that(listed.get(name) == 1, f"{name} is listed {listed.get(name, 0)} times")
            if listed.get(name) and name not in unfinished:
                ends.append(check_job(clients, name, word, hit.get(name, set()), checks))
        server.kill()
        server.restart()  # an agent that was killed while it cleaned up is followed by another at a start
        wait_for_agents(data_dir)
    finally:
        server.stop()
    check_leavings(data_dir, list(creates.made), checks)
    print(f"seed {seed}: the server killed {kills} times, {sum(map(len, hit.values()))} agents and programs; "
          f"{interrupts} interruptions asked for; "
          f"{sum(w.acknowledged for w in writers)} puts acknowledged, {sum(w.cut for w in writers)} cut off; "
          f"{len(creates.made)} jobs ({creates.again} creates without an answer), "
          f"{ends.count('Completed')} Completed, {ends.count('Failed')} Failed")
    print(f"{checks.done} checks, {len(checks.problems)} broken")
    return not checks.problems and checks.done > 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--kills", type=int, default=0, help="at least so many, however long it takes")
    parser.add_argument("--data-dir", type=pathlib.Path, help="kept; without it a temporary one")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="atelier-kill-"))
    ok = False
    try:
        ok = run(options.seed, options.seconds, options.kills, (options.data_dir or folder / "data").resolve())
    finally:
        if ok:
            shutil.rmtree(folder)
        else:
            print(f"what is left to look at: {options.data_dir or folder}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
