"""Two workers with a TF_CONFIG each, TensorFlow's or ours: what answers
requests in one process answers them in both.

usage: python3 cluster.py [all] PROGRAM [ARGUMENT...]
A line of stdin goes to both, the first worker's answer to stdout. Each worker
has a core of its own and one thread; with "all", both have all cores.
"""
import json
import os
import signal
import socket
import subprocess
import sys

WORKERS = 2


def free_ports(n):
    probes = [socket.socket() for _ in range(n)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def start(command, index, addresses, free):
    env = dict(os.environ, TF_CONFIG=json.dumps({
        "cluster": {"worker": addresses},
        "task": {"type": "worker", "index": index}}))
    cores = sorted(os.sched_getaffinity(0))
    if not free:
        env.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                   TFDIST_THREADS="1", TF_NUM_INTRAOP_THREADS="1",
                   TF_NUM_INTEROP_THREADS="1")
        cores = [cores[index % len(cores)]]
    return subprocess.Popen(
        command, env=env, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, cores))


def ask(workers, line):
    for worker in workers:
        worker.stdin.write(line)
        worker.stdin.flush()
    answers = [worker.stdout.readline() for worker in workers]
    for answer in answers:
        if not answer or answer.startswith("failed"):
            return answer or "failed: a worker has ended\n"
    return answers[0]


def main():
    command = sys.argv[1:]
    free = command[0] == "all"
    addresses = ["127.0.0.1:%d" % port for port in free_ports(WORKERS)]
    workers = [start(command[free:], i, addresses, free)
               for i in range(WORKERS)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for line in sys.stdin:
            if line.strip() == "quit":
                break
            sys.stdout.write(ask(workers, line))
            sys.stdout.flush()
    except BrokenPipeError:
        print("failed: a worker has ended", flush=True)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    main()
