"""Call a checkout's PAI simulator: `python drive_pai.py FOLDER JOBS POLICY GPUS` prints [[job, JCT in s], ...]."""

import json
import sys


def main(folder, jobs, policy, gpus):
    """Play the jobs at their own times, on one node with all GPUs, and more processors than any job asks for."""
    sys.path.insert(0, folder)
    import simulator

    with open(jobs) as file:
        count = sum(1 for _ in file) - 1
    # More jobs than there are are asked for: where it could leave some out, it takes a random part.
    run = simulator.Simulator(
        csv_file=jobs, alloc_policy=int(policy), preempt_policy=2, sort_node_policy=0, num_nodes=1, random_seed=42,
        max_time=10**10, num_spare_node=0, pattern=0, hetero=False, num_gpus=int(gpus), num_cpus=100 * int(gpus),
        arrival_rate=None, num_jobs_limit=count + 1, gpu_type_matching=0,
    )
    run.simulator_go(repeat=1)
    done = run.cluster.job_history.job_done_list
    print(json.dumps([[job["job_id"], job["jct"]] for job in done]))


if __name__ == "__main__":
    main(*sys.argv[1:])
