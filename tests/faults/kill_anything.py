#!/usr/bin/env python3
"""Kills the server, agents and programs at random while objects are put and jobs are made, run, changed and interrupted.

Usage: kill_anything.py [--seed N] [--seconds N] [--kills N] [--data-dir DIR] [--json]     (a Python with boto3)

The server is killed with SIGKILL every few seconds and started again, on its port or another. Meanwhile jobs of five kinds
(plain, spot with checkpoints and retries, to be stopped, with two instances, with a warm pool; all with a channel of
shared data and a metric) are made, tagged, stopped and deleted (kill_load.py). Then everything that was acknowledged is
looked at (kill_checks.py): objects are whole; each job is there once, ran once and ended right or says what was killed; no
log line or metric is lost or doubled; channels had their bytes; stopped jobs are Stopped with what they had saved,
deleted ones are gone, tags are what they were set to; a spot job went on from its checkpoint; instances ended together;
warm pools had one user at a time; and no process, mount, control group or file is left. What is done follows from
the seed; which process is hit at what moment is up to the machine. Prints what was checked, with --json as one more
line; exit code 0 if all of it held.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from kill_load import GONE, INSTANCES, Changes, Clients, Creates, Job, Puts, request
from kill_load import small_jobs, SCRIPT
from kill_checks import (END_SECONDS, ENDED, Checks, agents, channel_bodies, check_deleted, check_job, check_leavings,
                         check_objects, check_pools, digests, log_lines, processes, programs_of, wait_for_agents,
                         wait_for_jobs)
from server import Server


def hit_a_job(data_dir, rng, hit):
    """Kills an agent or a program, if one runs, and notes which."""
    running = processes()
    found = sorted(agents(data_dir, running).items(), key=lambda item: item[1])
    if not found:
        return
    agent, folder = rng.choice(found)
    programs = programs_of(agent, running)
    victim, what = (programs[0], "program") if programs and rng.random() < 0.5 else (agent, "agent")
    hit.setdefault(folder.split("/")[0], []).append(what)  # before: it may matter at once
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        pass


def interrupt_a_job(server, rng):
    """Interrupts one of those that have an agent; whether it is a spot job is up to chance."""
    names = sorted({folder.split("/")[0] for folder in agents(server.data_dir, processes()).values()})
    if not names:
        return 0
    return int(server.run("jobs", "interrupt", rng.choice(names), check=False).returncode == 0)


class Watch(threading.Thread):
    """Sees that instances end together: a job with two that is said to have ended has no program that runs."""

    def __init__(self, clients, creates, data_dir, over):
        super().__init__(daemon=True)
        self.clients, self.creates, self.data_dir, self.over = clients, creates, data_dir, over
        self.seen = {}  # job -> the programs that ran when it was said to have ended

    def run(self):
        while not self.over.is_set():
            self.over.wait(0.3)
            for job in list(self.creates.made.values()):
                if job.kind == "pair" and job.name not in self.seen:
                    self.look_at(job)

    def look_at(self, job):
        try:
            described = self.clients("sagemaker").describe_training_job(TrainingJobName=job.name)
        except (*GONE, self.clients("sagemaker").exceptions.ClientError):
            return  # the server is being killed, or the job was deleted
        if described["TrainingJobStatus"] in ENDED:
            running = processes()
            self.seen[job.name] = {folder: programs_of(agent, running)
                                   for agent, folder in agents(self.data_dir, running).items()
                                   if folder.split("/")[0] == job.name and programs_of(agent, running)}


def disturb(server, rng, seconds, least_kills, hit):
    """Kills for so long, and so often; returns how often the server was killed, and jobs were interrupted."""
    kills, interrupts, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end or kills + sum(map(len, hit.values())) < least_kills:
        for _ in range(rng.randrange(3)):
            time.sleep(rng.uniform(0.05, 1))
            hit_a_job(server.data_dir, rng, hit)
        for _ in range(rng.randrange(5)):
            interrupts += interrupt_a_job(server, rng)
        if rng.random() < 0.3:
            server.run("cache", "clear")  # so that jobs download again
        time.sleep(rng.uniform(0.1, 2.5))
        server.kill()
        kills += 1
        time.sleep(rng.choice([0, 0, 0.3]))
        if rng.random() < 0.5:
            server.restart()
        else:
            server.start()
    return kills, interrupts


def run_quietly(clients, creates, name, rng):
    """One more job with a warm pool, which nobody kills; returns when it has ended."""
    job = creates.made[name] = Job(name, "warm", "quiet", {"made-as": "warm"})
    sagemaker = clients("sagemaker")
    sagemaker.create_training_job(**request(job, creates.source, rng))
    limit = time.monotonic() + END_SECONDS
    while sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] not in ENDED:
        assert time.monotonic() < limit, f"{name} does not end"
        time.sleep(0.2)


def follow_quietly(server, clients, creates, channel, rng, checks):
    """A pool outlives a kill of the server, and its second job downloads nothing."""
    first, second = (f"kill-{os.getpid()}-{which}" for which in ("first", "second"))
    run_quietly(clients, creates, first, rng)
    server.kill()
    server.start()
    run_quietly(clients, creates, second, rng)
    pool = clients("sagemaker").describe_training_job(TrainingJobName=first)["WarmPoolStatus"]
    checks.that(pool == {**pool, "Status": "Reused", "ReusedByJob": second}, "warm pools",
                f"the pool of {first} is lost: {pool}")
    note = next(line for line in log_lines(clients, second)["algo-1"] if "channel 'data'" in line)
    checks.that(f"{len(channel)} were on this host already" in note, "cache", f"{second} has downloaded: {note}")


def look_at_jobs(clients, creates, channel, hit, data_dir, checks):
    listed, unfinished = wait_for_jobs(clients)
    checks.that(not unfinished, "jobs", f"jobs that do not end: {unfinished}")
    described, lines = {}, {}
    for name, job in creates.made.items():
        if job.deleted:
            check_deleted(clients, job, listed, data_dir, checks)
            continue
        checks.that(listed[name] == 1, "jobs", f"{name} is listed {listed[name]} times")
        if listed[name] and name not in unfinished:
            described[name], lines[name] = check_job(clients, job, channel, set(hit.get(name, [])), checks)
    check_pools(creates.made, described, lines, data_dir, checks)
    return [job["TrainingJobStatus"] for job in described.values()]


def run(seed, seconds, least_kills, data_dir):
    rng = random.Random(f"{seed}/kills")
    data_dir.mkdir(parents=True)
    (data_dir / "instances.toml").write_text(INSTANCES)
    server = Server(data_dir).start()
    checks, over, hit, began = Checks(), threading.Event(), {}, time.monotonic()
    threading.excepthook = lambda args: checks.that(
        False, "threads", f"{type(args.thread).__name__}: {type(args.exc_value).__name__}: {args.exc_value}")
    try:
        clients = Clients(server, server.environment())
        for bucket in ("objects", "models", "source", "checkpoints"):
            clients("s3").create_bucket(Bucket=bucket,
                                        CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        clients("s3").put_object(Bucket="source", Key="sourcedir.tar.gz", Body=small_jobs.pack(SCRIPT))
        bodies = channel_bodies(rng)
        channel = digests(bodies)
        for key, body in bodies.items():
            clients("s3").put_object(Bucket="source", Key="data/" + key, Body=body)
        writers = [Puts(number, seed, clients, over) for number in range(3)]
        creates = Creates(seed, clients, "s3://source/sourcedir.tar.gz", over)
        changes, watch = Changes(seed, clients, creates, over), Watch(clients, creates, server.data_dir, over)
        threads = (*writers, creates, changes, watch)
        for thread in threads:
            thread.start()
        kills, interrupts = disturb(server, rng, seconds, least_kills, hit)
        over.set()
        for thread in threads:
            thread.join(60)
            checks.that(not thread.is_alive(), "threads", f"{type(thread).__name__} hangs")
        disturbed = time.monotonic() - began
        wait_for_jobs(clients)
        follow_quietly(server, clients, creates, channel, rng, checks)
        check_objects(clients, writers, checks)
        ends = look_at_jobs(clients, creates, channel, hit, data_dir, checks)
        for name, programs in watch.seen.items():
            checks.that(not programs, "instances", f"{name} had ended, and these still ran: {programs}")
        server.kill()
        server.restart()  # an agent that was killed while it cleaned up is followed by another at a start
        wait_for_agents(data_dir)
    finally:
        server.stop()
    check_leavings(data_dir, list(creates.made), checks)
    return {"seed": seed, "seconds": round(time.monotonic() - began), "disturbed_seconds": round(disturbed),
            "server_killed": kills, "agents_and_programs_killed": sum(map(len, hit.values())),
            "interruptions_asked": interrupts,
            "puts": sum(w.acknowledged for w in writers), "puts_cut_off": sum(w.cut for w in writers),
            "jobs": len(creates.made), "creates_without_an_answer": creates.again,
            "tag_changes": changes.tagged, "stops": changes.stopped, "deletes": changes.deleted,
            "ends": {status: ends.count(status) for status in ENDED}, "checks": dict(sorted(checks.done.items())),
            "broken": checks.problems}


def told(result):
    return (f"seed {result['seed']}: the server killed {result['server_killed']} times, "
            f"{result['agents_and_programs_killed']} agents and programs; "
            f"{result['interruptions_asked']} interruptions asked for; "
            f"{result['puts']} puts acknowledged, {result['puts_cut_off']} cut off; "
            f"{result['jobs']} jobs ({result['creates_without_an_answer']} creates without an answer), "
            + ", ".join(f"{count} {status}" for status, count in result["ends"].items())
            + f"; {result['tag_changes']} changes of tags, {result['stops']} stops, {result['deletes']} deletes; "
            f"{result['seconds']} s\n"
            f"{sum(result['checks'].values())} checks ("
            + ", ".join(f"{count} of {promise}" for promise, count in result["checks"].items())
            + f"), {len(result['broken'])} broken")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--kills", type=int, default=0, help="at least so many, however long it takes")
    parser.add_argument("--data-dir", type=pathlib.Path, help="a new folder, kept; without it a temporary one")
    parser.add_argument("--json", action="store_true", help="the last line is the result")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="atelier-kill-"))
    ok = False
    try:
        result = run(options.seed, options.seconds, options.kills, (options.data_dir or folder / "data").resolve())
        ok = not result["broken"] and sum(result["checks"].values()) > 100
        print(told(result))
        if options.json:
            print(json.dumps(result))
    finally:
        if ok:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"what is left to look at: {options.data_dir or folder}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
