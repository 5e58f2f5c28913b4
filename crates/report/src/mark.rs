//! Runs that stand out in tables: unfinished, collapsed, or without anything learnt.

use fedelity_record::{Notice, Status};
use serde::Serialize;

use crate::loaded::LoadedRun;
use crate::results::Group;

/// What to do about a collapse.
pub const REMEDY: &str = "Clipping gradients often prevents this (--set optimizer.clip=10, or less if it is set), and so \
                          does a lower optimizer.lr.";

/// What to do about a model that has learnt nothing.
pub const UNLEARNT_REMEDY: &str = "A model that has learnt nothing may need more rounds or another optimizer.lr: a lower \
                                   one if its loss jumps about, a higher one if it hardly moves.";

/// Why a run is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// It was stopped or killed, it is still running, or it diverged.
    Unfinished,
    /// Its global model is collapsed at the end.
    Collapsed,
    /// Its global model never was better than guessing.
    Unlearnt,
}

impl MarkKind {
    pub const ALL: [Self; 3] = [Self::Unfinished, Self::Collapsed, Self::Unlearnt];

    /// The sign beside a number in a table.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Unfinished => "*",
            Self::Collapsed => "†",
            Self::Unlearnt => "‡",
        }
    }

    /// What such runs are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Collapsed => "collapsed",
            Self::Unlearnt => "unlearnt",
        }
    }

    /// What a cell says of such runs.
    pub fn what(self) -> &'static str {
        match self {
            Self::Unfinished | Self::Collapsed => self.name(),
            Self::Unlearnt => "learnt nothing",
        }
    }
}

/// The signs of marks, each once.
pub(crate) fn signs(marks: &[RunMark]) -> String {
    let mut kinds: Vec<MarkKind> = marks.iter().map(|mark| mark.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().map(MarkKind::sign).collect()
}

/// A marked run of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunMark {
    pub seed: u64,
    pub kind: MarkKind,
    /// What happened, and in which round.
    pub what: String,
}

/// Marked runs that count in differences, rounds to target and ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Include {
    pub unfinished: bool,
    pub collapsed: bool,
    pub unlearnt: bool,
}

impl Include {
    /// Whether runs with this mark count.
    pub fn counts(self, kind: MarkKind) -> bool {
        match kind {
            MarkKind::Unfinished => self.unfinished,
            MarkKind::Collapsed => self.collapsed,
            MarkKind::Unlearnt => self.unlearnt,
        }
    }
}

impl LoadedRun {
    /// Why the run is marked, if it is.
    pub fn mark(&self) -> Option<RunMark> {
        let (seed, rounds) = (self.header.seed, self.header.rounds);
        let last = self.rounds.last().map_or(0, |round| round.round);
        let at = if rounds > 0 { format!("round {last} of {rounds}") } else { format!("round {last}") };
        let unfinished = |what: String| Some(RunMark { seed, kind: MarkKind::Unfinished, what });
        match self.summary.status {
            Status::Interrupted if self.running => unfinished(format!("still running, last {at}")),
            Status::Interrupted if self.ended => unfinished(format!("stopped after {at}")),
            Status::Interrupted => unfinished(format!("no end recorded, last {at}: it is running or was killed")),
            Status::Diverged { round, client } => {
                let on = client.map_or(String::new(), |client| format!(" on {}", self.header.client(client)));
                unfinished(format!("diverged in round {round}{on}"))
            }
            Status::Finished | Status::StoppedEarly { .. } => {
                if let Some(unlearnt) = self.summary.unlearnt {
                    return Some(RunMark { seed, kind: MarkKind::Unlearnt, what: unlearnt.describe() });
                }
                let round = self.summary.collapse?;
                let what = format!("collapsed in round {round}: {}", self.collapse_in(round));
                Some(RunMark { seed, kind: MarkKind::Collapsed, what })
            }
        }
    }

    /// What was noticed in the round of a collapse.
    fn collapse_in(&self, round: u64) -> String {
        let of_rounds = self.rounds.iter().filter(|found| found.round == round).flat_map(|found| &found.notices);
        let of_summary = self.summary.notices.iter().filter(|found| found.round == round).map(|found| &found.notice);
        let mut said: Vec<String> = Vec::new();
        for notice in of_rounds.chain(of_summary) {
            let text = notice.describe(&self.header.classes, &self.header.client_names);
            if !said.contains(&text) {
                said.push(text);
            }
        }
        said.join("; ")
    }

    /// Everything that the rounds noticed, one line for each kind of notice: the first, and how many more there are.
    pub fn notices(&self) -> Vec<String> {
        let all: Vec<_> =
            self.rounds.iter().flat_map(|round| round.notices.iter().map(|notice| (round.round, notice))).collect();
        let mut kinds: Vec<(u64, &Notice, usize)> = Vec::new();
        for (round, notice) in all {
            match kinds.iter_mut().find(|(_, known, _)| notice.is_like(known)) {
                Some((_, _, more)) => *more += 1,
                None => kinds.push((round, notice, 0)),
            }
        }
        let line = |(round, notice, more): (u64, &Notice, usize)| {
            let more = match more {
                0 => String::new(),
                1 => " (and once more)".to_string(),
                n => format!(" (and {n} more times)"),
            };
            format!("round {round}: {}{more}", notice.describe(&self.header.classes, &self.header.client_names))
        };
        // The rounds say so from the tenth evaluation on.
        let at_the_end = || Some(format!("it {}", self.summary.unlearnt?.describe()));
        let is_said = kinds.iter().any(|(_, notice, _)| notice.unlearnt().is_some());
        let ended = self.summary.status.is_complete();
        kinds.into_iter().map(line).chain(at_the_end().filter(|_| ended && !is_said)).collect()
    }

    /// Uploads that did not count, in one line, if there are any.
    pub fn incidents(&self) -> Option<String> {
        let incidents = &self.summary.incidents;
        (!incidents.is_none()).then(|| {
            let refused = self.rounds.iter().flat_map(|round| round.incidents.iter().map(|one| (round.round, one)));
            let first = refused
                .filter(|(_, one)| !one.reason.is_empty())
                .map(|(round, one)| format!("; first, in round {round}: {}", one.describe(&self.header.client_names)));
            format!("{}{}", incidents.describe(), first.take(1).collect::<String>())
        })
    }
}

impl Group {
    /// The finished runs; if there are none, all runs. They make up curves and means.
    pub fn counted(&self) -> Vec<&LoadedRun> {
        let whole: Vec<&LoadedRun> = self.runs.iter().filter(|run| run.summary.status.is_complete()).collect();
        if whole.is_empty() { self.runs.iter().collect() } else { whole }
    }

    /// The runs that count in differences, rounds to target and ranks: those without a mark, and those asked for.
    pub fn compared(&self, include: Include) -> Vec<&LoadedRun> {
        let counts = |run: &&LoadedRun| match run.mark().map(|mark| mark.kind) {
            None => true,
            Some(kind) => include.counts(kind),
        };
        self.runs.iter().filter(counts).collect()
    }

    /// The marks of its runs, by seed.
    pub fn marks(&self) -> Vec<RunMark> {
        self.runs.iter().filter_map(LoadedRun::mark).collect()
    }
}
