#!/bin/bash
# A study as a SLURM array: each task takes runs of the sweep until none is left to start.
#
#   sbatch examples/slurm/study.sh sweep.toml runs/study
#
# The folder must be on a file system that all nodes see. Tasks may start late, be requeued, or die.

#SBATCH --job-name=study
#SBATCH --array=1-8               # how many tasks share the sweep
#SBATCH --cpus-per-task=8         # how many runs each of them has at a time
#SBATCH --mem-per-cpu=1G
#SBATCH --time=04:00:00           # of one task; when it is over, the task queues again
#SBATCH --signal=TERM@120         # this many seconds before
#SBATCH --requeue                 # also after a node has failed
#SBATCH --open-mode=append        # a requeued task goes on with its log
#SBATCH --output=%x-%A-%a.log

sweep=${1:?usage: sbatch study.sh SWEEP FOLDER}
folder=${2:?usage: sbatch study.sh SWEEP FOLDER}

srun fedelity sweep "$sweep" -o "$folder" --jobs "${SLURM_CPUS_PER_TASK:-1}" --no-wait
status=$?

# 130: it was asked to stop, and has given its runs back. If that was the end of its time, it queues again; if it was
# cancelled, SLURM refuses.
if [ "$status" -eq 130 ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit "$status"
