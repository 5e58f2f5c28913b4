//! `fedelity resume`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fedelity_experiment::is_sweep;
use fedelity_methods::Registry;
use fedelity_record::{RunFolder, names};

use super::run::load;
use super::session::Session;
use crate::latest;
use crate::overrides::Overrides;
use crate::printer::Printer;
use crate::status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  fedelity resume runs/latest                     resume the last run where it was stopped
  fedelity resume runs/a --set rounds=200         extend a finished run to 200 rounds
  fedelity resume runs/a --threads 1              use one thread; the results are the same

A run writes a checkpoint after every round and, within a round, after every client that trained for
more than a moment. It can stop at any time, by Ctrl-C, a full disk, a crash or a power cut: the
results of the resumed run are the same, bit for bit, as if it had never been stopped. With several
methods or seeds, runs that have ended are not repeated. If a checkpoint is damaged, a message names
it, and the one before it is used.

A finished run keeps its last checkpoint in the folder 'checkpoint', so that you can extend it.";

/// Resume a run that was stopped, or extend a finished one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ResumeCommand {
    /// A run folder, or a folder with several runs.
    run: PathBuf,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    session: Session,
}

impl ResumeCommand {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        resume(&self.run, &self.overrides, &self.session, printer, methods)
    }
}

/// A folder with runs that can go on, and its configuration.
pub fn resumable(path: &Path) -> Result<(RunFolder, PathBuf)> {
    let folder = RunFolder::open(path)?;
    let config = folder.file(names::CONFIG);
    if !config.is_file() {
        let missing = match is_sweep(path) {
            true => {
                "it is the folder of a sweep, which goes on with its own command: fedelity sweep FILE -o FOLDER, or fedelity \
                 reproduce TABLE -o FOLDER"
            }
            false if folder.file(names::ROUNDS).exists() => {
                "its config.toml is gone, without which nobody knows what the run was; put it back"
            }
            false => "it has no config.toml, so nothing of a run was written; start the run again",
        };
        bail!("{}: cannot be resumed: {missing}", path.display());
    }
    Ok((folder, config))
}

/// Resumes the runs of a folder.
pub(crate) fn resume(
    run: &Path,
    overrides: &Overrides,
    session: &Session,
    printer: &Printer,
    methods: &Registry,
) -> Result<ExitStatus> {
    let (folder, config) = resumable(&latest::resolve(run, printer)?)?;
    // Neither changes rounds that have been run.
    let later = |set: &&String| matches!(set.split('=').next().map(str::trim), Some("rounds" | "server.quorum"));
    if let Some(set) = overrides.set.iter().find(|set| !later(set)) {
        bail!(
            "--set {set}: a run can only be resumed with other rounds or another server.quorum; other settings make another run"
        );
    }
    let mut document = overrides.document(Some(&config))?;
    document.know(methods);
    let study = load(&document, printer)?;
    session.run(&study, printer, || Ok(folder))
}
