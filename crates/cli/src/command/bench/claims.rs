//! `fedelity bench claims`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fedelity_files::{Claim, Claims, Taking};
use serde::Serialize;

use crate::printer::Printer;
use crate::view::units::{seconds, thousands};

/// Measure the cost of sharing a sweep in a folder
///
/// Claims all runs at the same time, far more than would ever be at work at once; another participant looks at all of
/// them. Leaves nothing behind. Run it on the file system that the study will use.
#[derive(Debug, clap::Args)]
pub(crate) struct ClaimBench {
    /// A folder on the file system to measure; it is created and removed.
    #[arg(long, value_name = "DIR", default_value = "bench-claims")]
    folder: PathBuf,

    /// Number of runs in the sweep.
    #[arg(long, default_value_t = 10_000)]
    runs: usize,

    /// Number of processes that share the sweep.
    #[arg(long, default_value_t = 64)]
    processes: usize,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const MOST: usize = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Seconds for one of each, except for the two looks at everything.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClaimFigures {
    runs: usize,
    processes: usize,
    claim_seconds: f64,
    check_seconds: f64,
    first_look_seconds: f64,
    look_seconds: f64,
    beat_seconds: f64,
    finish_seconds: f64,
}

impl ClaimBench {
    pub(crate) fn run(self, printer: &Printer) -> Result<()> {
        let Self { folder, runs, processes, .. } = &self;
        if !(1..=MOST).contains(runs) || !(1..=4_096).contains(processes) {
            bail!("--runs {runs} --processes {processes}: expected 1 to {MOST} runs and 1 to 4096 processes");
        }
        if folder.exists() {
            bail!("--folder {}: already exists; name a new one", folder.display());
        }
        let figures = self.measure().with_context(|| folder.display().to_string());
        // Its claims and workers have gone with those that made them.
        let _ = std::fs::remove_dir(folder);
        let figures = figures?;
        if self.json {
            return printer.json(&figures);
        }
        let ClaimFigures { claim_seconds, check_seconds, first_look_seconds, .. } = figures;
        let ClaimFigures { look_seconds, beat_seconds, finish_seconds, .. } = figures;
        printer.line(format!("{} runs, {} processes", thousands(*runs), thousands(*processes)))?;
        let rows = [
            ("claim a run", claim_seconds),
            ("check that it is still one's own", check_seconds),
            ("remove the claim", finish_seconds),
            ("a sign of life", beat_seconds),
            ("the first look at all claims and processes", first_look_seconds),
            ("each later look", look_seconds),
        ];
        rows.iter().try_for_each(|(what, time)| printer.line(format!("{:>10}  {what}", seconds(*time))))
    }

    fn measure(&self) -> Result<ClaimFigures> {
        let (runs, processes) = (self.runs, self.processes);
        let join = || Claims::join(&self.folder, "", PATIENCE);
        let workers = (0..processes).map(|_| join()).collect::<Result<Vec<_>, _>>()?;
        let each = |begun: Instant, n: usize| begun.elapsed().as_secs_f64() / n as f64;
        let begun = Instant::now();
        let mut claims: Vec<Claim> = Vec::with_capacity(runs);
        for run in 0..runs {
            match workers[run % processes].claim(&format!("fedavg-alpha-0.1-{run:08x}+seed-1"))? {
                Taking::Mine(claim) => claims.push(claim),
                Taking::Held(_) | Taking::Failed(..) => bail!("another process uses the folder"),
            }
        }
        let claim_seconds = each(begun, runs);
        let begun = Instant::now();
        let kept = claims.iter().filter(|claim| claim.holds()).count();
        let check_seconds = each(begun, runs);
        if kept < runs {
            bail!("{} claims were lost", runs - kept);
        }
        let begun = Instant::now();
        let observer = join()?;
        let first_look_seconds = each(begun, 1);
        let begun = Instant::now();
        observer.look(Duration::ZERO)?;
        let look_seconds = each(begun, 1);
        let begun = Instant::now();
        workers.iter().try_for_each(Claims::beat)?;
        let beat_seconds = each(begun, processes);
        let begun = Instant::now();
        claims.iter().for_each(Claim::finish);
        let finish_seconds = each(begun, runs);
        Ok(ClaimFigures {
            runs,
            processes,
            claim_seconds,
            check_seconds,
            first_look_seconds,
            look_seconds,
            beat_seconds,
            finish_seconds,
        })
    }
}
