"""Peak memory and processor time of a process and everything it starts."""

import os
import threading
from pathlib import Path

INTERVAL = 0.2
TICK = os.sysconf("SC_CLK_TCK")


def busy():
    """Seconds that all cores have worked or were withheld by a hypervisor since the machine started."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def processes():
    """The parent of every process, and the seconds it has worked."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            # The name, in brackets, may contain anything.
            fields = stat.rsplit(")", 1)[1].split()
            found[int(entry)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK
    return found


def proportional(pid):
    """Bytes of a process, with its share of the pages that it shares with others; 0 if it has ended."""
    try:
        for line in Path("/proc", str(pid), "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Watch:
    """Samples the tree of a process until it is stopped."""

    def __init__(self, pid):
        self.members, self.peak, self.worked = {pid}, 0, {}
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.stopped.wait(INTERVAL):
            self.grow()
            self.peak = max(self.peak, sum(proportional(pid) for pid in self.members))

    def grow(self):
        """Adds descendants; those seen once stay, even if their parent ends and another process adopts them."""
        tree, grown = processes(), True
        self.members &= tree.keys()
        while grown:
            new = {pid for pid, (parent, _) in tree.items() if parent in self.members} - self.members
            self.members |= new
            grown = bool(new)
        self.worked |= {pid: tree[pid][1] for pid in self.members}

    def seconds(self):
        """The processor time of all members that were seen."""
        return sum(self.worked.values())

    def stop(self):
        """Ends the sampling; the members that still run."""
        self.stopped.set()
        self.thread.join()
        self.grow()
        return set(self.members)
