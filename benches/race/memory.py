"""Peak memory of a process and everything it starts."""

import os
import threading
from pathlib import Path

INTERVAL = 0.2


def parents():
    """The parent of every process."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            # The name, in brackets, may contain anything.
            found[int(entry)] = int(stat.rsplit(")", 1)[1].split()[1])
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
        self.members, self.peak = {pid}, 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.stopped.wait(INTERVAL):
            self.grow()
            self.peak = max(self.peak, sum(proportional(pid) for pid in self.members))

    def grow(self):
        """Adds descendants; those seen once stay, even if their parent ends and another process adopts them."""
        tree, grown = parents(), True
        self.members &= tree.keys()
        while grown:
            new = {pid for pid, parent in tree.items() if parent in self.members} - self.members
            self.members |= new
            grown = bool(new)

    def stop(self):
        """Ends the sampling; the members that still run."""
        self.stopped.set()
        self.thread.join()
        self.grow()
        return set(self.members)
