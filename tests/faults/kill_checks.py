"""What has to hold after kill_anything.py has killed: each promise against the model that kill_load.py has kept."""
import collections
import datetime
import hashlib
import io
import os
import pathlib
import re
import tarfile
import time

import botocore.exceptions

from kill_load import CHANNEL_SIZES, LINES, digest, weights_of

END_SECONDS = 120
GROUP = "/aws/sagemaker/TrainingJobs"
ENDED = ("Completed", "Failed", "Stopped")
CAUSES = {"agent": r"agent was killed", "program": r"SIGKILL|ExitCode -9\b"}


class Checks:
    def __init__(self):
        self.done, self.problems = collections.Counter(), []

    def that(self, holds, promise, words):
        """`promise` is what the check counts as; `words` say what is wrong."""
        self.done[promise] += 1
        if not holds:
            self.problems.append(words)
            print(f"BROKEN: {words}", flush=True)


# ---- Processes ---------------------------------------------------------------------------------

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
    """pid -> folder below jobs/: NAME, or NAME/instances/algo-2. Without the processes that keep an agent's network:
    they are forks of it, and go with it."""
    folder = str(data_dir / "jobs") + "/"
    found = {pid: command[3].removeprefix(folder) for pid, (_, command) in running.items()
             if command[1:3] == ["agent", "--job-folder"] and command[3].startswith(folder)}
    return {pid: name for pid, name in found.items() if found.get(running[pid][0]) != name}


def descends(pid, ancestor, running):
    while pid in running:
        pid = running[pid][0]
        if pid == ancestor:
            return True
    return False


def programs_of(agent, running):
    return [pid for pid, (_, command) in running.items()
            if "train.py" in command and "bwrap" not in command[0] and "sandbox_entry" not in command[0]
            and descends(pid, agent, running)]


def wait_for_agents(data_dir):
    limit = time.monotonic() + 20  # they clean up and leave
    time.sleep(0.5)
    while (left := agents(data_dir, processes())) and time.monotonic() < limit:
        time.sleep(0.1)
    return left


# ---- Objects -----------------------------------------------------------------------------------

def check_objects(clients, writers, checks):
    s3 = clients("s3")
    listed = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket="objects"):
        for item in page.get("Contents", []):
            checks.that(item["Key"] not in listed, "objects", f"object {item['Key']} is listed twice")
            listed[item["Key"]] = item["Size"]
    for writer in writers:
        for key, allowed in writer.may_be.items():
            body = s3.get_object(Bucket="objects", Key=key)["Body"].read() if key in listed else None
            found = None if body is None else digest(body)
            checks.that(found in allowed, "objects",
                        f"object {key} is {'lost' if body is None else 'not what was put'}")
            checks.that(body is None or len(body) == listed[key], "objects",
                        f"object {key} has a wrong size in the listing")


# ---- Jobs --------------------------------------------------------------------------------------

def wait_for_jobs(clients):
    """name -> how often it is listed, once all have ended, or none has for END_SECONDS; and those that have not."""
    sagemaker, limit, fewest = clients("sagemaker"), time.monotonic() + END_SECONDS, None
    while True:
        found = [job for page in sagemaker.get_paginator("list_training_jobs").paginate(MaxResults=100)
                 for job in page["TrainingJobSummaries"]]
        unfinished = [job["TrainingJobName"] for job in found if job["TrainingJobStatus"] not in ENDED]
        if fewest is None or len(unfinished) < fewest:  # a long queue is no fault
            fewest, limit = len(unfinished), time.monotonic() + END_SECONDS
        if not unfinished or time.monotonic() > limit:
            return collections.Counter(job["TrainingJobName"] for job in found), unfinished
        time.sleep(0.5)


def log_lines(clients, name):
    """host -> the lines of its stream."""
    logs = clients("logs")
    streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=name + "/")["logStreams"]
    found = {}
    for stream in streams:
        lines, token = [], None
        while True:
            page = logs.get_log_events(logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True,
                                       **({"nextToken": token} if token else {}))
            if not page["events"]:
                break
            lines += [event["message"] for event in page["events"]]
            token = page["nextForwardToken"]
        host = re.match(r"algo-\d+", stream["logStreamName"].split("/")[1])[0]
        assert host not in found, f"{name} has two streams of {host}"
        found[host] = lines
    return found


def numbers_of(lines):
    return [int(found[1]) for line in lines if (found := re.fullmatch(r"line (\d+)", line))]


def members_of(clients, job, name):
    """member -> bytes of an archive that the job has left; None without one."""
    try:
        body = clients("s3").get_object(Bucket="models", Key=f"kill/{job}/output/{name}")["Body"].read()
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchKey":
            raise
        return {}
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        return {member.name.removeprefix("./"): archive.extractfile(member).read()
                for member in archive.getmembers() if member.isfile()}


def check_artifacts(clients, job, checks):
    model, data = members_of(clients, job.name, "model.tar.gz"), members_of(clients, job.name, "output.tar.gz")
    for host in job.hosts:
        checks.that(model.get("weights-" + host) == weights_of(job.word), "models",
                    f"{job.name}: the model of {host} is not what it wrote")
        checks.that(data.get("word-" + host) == job.word.encode(), "models",
                    f"{job.name}: the output of {host} is not what it wrote")


def check_attempts(name, lines, checks):
    """Each run of a spot job goes on at most where the one before had come to, and counts up from there."""
    expected, reached = None, 0
    for line in lines:
        if found := re.fullmatch(r"run \S+ from (\d+)", line):
            expected = int(found[1])
            checks.that(expected <= reached, "checkpoints",
                        f"{name}: a run began at {expected}, the one before came to {reached}")
        elif found := re.fullmatch(r"line (\d+)", line):
            checks.that(int(found[1]) == expected, "log lines",
                        f"{name}: line {found[1]} came where {expected} was due")
            expected += 1
            reached = max(reached, expected)


def check_channel(name, host, lines, channel, checks):
    """Every run saw every file of its channel with its bytes, from S3 or from what jobs of this host share."""
    for line in lines:
        if line.startswith("file "):
            _, key, found = line.split(" ")
            checks.that(channel.get(key) == found, "channel bytes", f"{name}: {host} was given a wrong {key}")
    runs, files = ([i for i, line in enumerate(lines) if line.startswith(word)] for word in ("run ", "file "))
    if numbers_of(lines):
        checks.that(len(files) >= len(channel) and len(files) <= len(channel) * len(runs), "channel bytes",
                    f"{name}: {host} was given {len(files)} files in {len(runs)} runs")


def check_metrics(clients, job, described, lines, hit, checks):
    """CloudWatch has each matching line of the log once; of a job whose agent was killed the last ones may lack."""
    numbers = [number for host in lines for number in numbers_of(lines[host])]
    points = clients("cloudwatch").get_metric_statistics(
        Namespace=GROUP, MetricName="line", Dimensions=[{"Name": "TrainingJobName", "Value": job.name}],
        StartTime=described["CreationTime"] - datetime.timedelta(hours=1),
        EndTime=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1), Period=3600,
        Statistics=["SampleCount", "Sum"])["Datapoints"]
    count, total = (round(sum(point[key] for point in points)) for key in ("SampleCount", "Sum"))
    words = f"{job.name}: {count} metrics with the sum {total} of {len(numbers)} lines with the sum {sum(numbers)}"
    if "agent" not in hit:
        checks.that((count, total) == (len(numbers), sum(numbers)), "metrics", words)
    elif len(lines) == 1 and job.kind != "spot":  # one run: those that are there are the first ones, each once
        checks.that(count <= len(numbers) and total == sum(numbers[:count]), "metrics", words)
    else:
        checks.that(count <= len(numbers) and total <= sum(numbers), "metrics", words)


def check_tags(clients, job, described, checks):
    page = clients("sagemaker").list_tags(ResourceArn=described["TrainingJobArn"])
    found = {tag["Key"]: tag["Value"] for tag in page["Tags"]}
    checks.that(found == job.tags, "tags", f"{job.name}: has the tags {found}, was given {job.tags}")


def check_end(clients, job, described, lines, hit, checks):
    """How it ended, and that what it has left is what it wrote."""
    status, reason, name = described["TrainingJobStatus"], described.get("FailureReason", ""), job.name
    if status == "Completed":
        for host in job.hosts:
            found = set(numbers_of(lines.get(host, [])))
            checks.that(found == set(range(LINES)), "log lines",
                        f"{name}: Completed with {len(found)} of {LINES} lines of {host}")
        check_artifacts(clients, job, checks)
    elif status == "Stopped":
        checks.that(job.stop in ("asked", "maybe"), "stops", f"{name}: Stopped, and nobody has asked for it")
        if any("delivered" in lines[host] for host in lines):
            check_artifacts(clients, job, checks)
    else:
        checks.that(status == "Failed" and any(re.search(CAUSES[what], reason) for what in hit), "causes",
                    f"{name}: {status}, hit: {sorted(hit) or 'nothing'}, reason: {reason!r}")
    if job.stop == "asked":
        # Completed it may be where its program had done all of its work by itself, which is looked at above.
        checks.that(status in ("Stopped", "Completed") or hit, "stops", f"{name}: was stopped, and is {status}")


def check_job(clients, job, channel, hit, checks):
    """Returns how it ended, and the files that it found in its warm pool."""
    described = clients("sagemaker").describe_training_job(TrainingJobName=job.name)
    name, lines = job.name, log_lines(clients, job.name)
    states = [step["Status"] for step in described["SecondaryStatusTransitions"]]
    attempts = 1 + states.count("Interrupted") + states.count("Restarting")
    if job.kind == "spot":
        check_attempts(name, lines.get("algo-1", []), checks)
    else:
        checks.that(attempts == 1, "runs", f"{name}: a job without retries had {attempts} attempts: {states}")
    for host, said in lines.items():
        runs = [line for line in said if line.startswith("run ")]
        checks.that(len(runs) <= attempts, "runs",
                    f"{name}: the program of {host} ran {len(runs)} times in {attempts} attempts")
        numbers = numbers_of(said)
        checks.that(job.kind == "spot" or numbers == list(range(len(numbers))), "log lines",
                    f"{name}: lines of {host} lost, doubled or out of order: {numbers}")
        check_channel(name, host, said, channel, checks)
    check_metrics(clients, job, described, lines, hit, checks)
    check_tags(clients, job, described, checks)
    if "TrainingEndTime" in described:
        lasted = (described["TrainingEndTime"] - described["TrainingStartTime"]).total_seconds()
        trained = described["TrainingTimeInSeconds"]
        checks.that(1 <= described["BillableTimeInSeconds"] <= trained * len(job.hosts)
                    and trained <= lasted + 2 + attempts, "bill", f"{name}: {trained} s of training in {lasted} s")
    checks.that(states.count(states[-1]) == 1, "runs", f"{name}: ended more than once: {states}")
    check_end(clients, job, described, lines, hit, checks)
    return described, lines


def check_deleted(clients, job, listed, data_dir, checks):
    try:
        clients("sagemaker").describe_training_job(TrainingJobName=job.name)
        there = True
    except botocore.exceptions.ClientError:
        there = False
    checks.that(not there and not listed.get(job.name), "deletes", f"{job.name} was deleted and is there again")
    checks.that(not (data_dir / "jobs" / job.name).exists(), "deletes",
                f"{job.name} was deleted and its folder is there")
    if job.model_stays:
        check_artifacts(clients, job, checks)


def check_pools(jobs, described, lines, data_dir, checks):
    """Each warm pool has one user at a time and one end: who follows whom is what the programs found in it."""
    follows = {}  # job -> the one whose pool it has
    for name, job in described.items():
        pool = job.get("WarmPoolStatus", {})
        if pool.get("Status") == "Reused":
            after = pool.get("ReusedByJob")
            checks.that(after in jobs and after not in follows, "warm pools",
                        f"the pool of {name} was reused by {after}, which is not there or has another one")
            follows[after] = name
        checks.that(pool.get("Status") != "InUse", "warm pools", f"{name} has ended, and its pool is in use")
    for name in described:
        chain, before = set(), name
        while before := follows.get(before):
            chain.add(before)
        for found in (line.split()[1:] for line in lines[name].get("algo-1", []) if line.startswith("found")):
            left = {job for job in chain if "left a file" in lines[job].get("algo-1", [])}
            checks.that(left <= set(found) <= chain, "warm pools",
                        f"{name} found {found} in its pool; before it were {sorted(chain)}")
    available = sum(job.get("WarmPoolStatus", {}).get("Status") == "Available" for job in described.values())
    limit = time.monotonic() + 30  # folders go after the commit
    while len(folders := list((data_dir / "warm").glob("*"))) != available and time.monotonic() < limit:
        time.sleep(0.1)
    checks.that(len(folders) == available, "warm pools", f"{available} pools are available, {len(folders)} are kept")


def check_leavings(data_dir, names, checks):
    """What must not be there once all jobs have ended and the server has been stopped."""
    left = wait_for_agents(data_dir)
    checks.that(not left, "leavings", f"agents are left: {left}")
    left = {pid: command for pid, (_, command) in processes().items()
            if any(str(data_dir) in word for word in command) and pid != os.getpid()}
    checks.that(not left, "leavings", f"processes are left: {left}")
    checks.that(str(data_dir) not in pathlib.Path("/proc/self/mountinfo").read_text(), "leavings", "mounts are left")
    groups = [folder for root in ("/sys/fs/cgroup",) if os.path.isdir(root)
              for base, folders, _ in os.walk(root) for folder in folders
              if any(folder.startswith(f"atelier-{name}-") for name in names)]
    checks.that(not groups, "leavings", f"control groups are left: {groups}")
    for name in names:
        for folder in (data_dir / "jobs" / name, data_dir / "jobs" / name / "instances/algo-2"):
            left = [part for part in ("ml", "tmp", "model.tar.gz", "output.tar.gz", "sourcedir.tar.gz")
                    if (folder / part).exists()]
            checks.that(not left, "leavings", f"{folder} has {left}")


def channel_bodies(rng):
    """key -> body of the channel that all jobs share."""
    return {f"part-{number}": rng.randbytes(size) for number, size in enumerate(CHANNEL_SIZES)}


def digests(bodies):
    return {key: hashlib.sha256(body).hexdigest() for key, body in bodies.items()}
