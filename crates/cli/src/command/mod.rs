//! One file per subcommand.

mod bench;
mod check;
mod compare;
mod completions;
mod cost;
mod data;
mod evaluate;
mod export;
mod init;
mod keys;
mod man;
pub(crate) mod methods;
mod model_file;
mod models;
mod partition;
mod predict;
mod reference;
mod report;
mod reproduce;
mod resume;
mod run;
mod run_viewer;
mod runs;
mod session;
mod sweep;
mod sweep_stage;
mod sweep_status;
mod trackers;
mod verify;
mod watch;

use anyhow::Result;
use clap::Subcommand;
use fedelity_methods::Registry;

pub use resume::resumable;

use crate::printer::Printer;
use crate::status::ExitStatus;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::InitCommand),
    Run(run::RunCommand),
    Resume(resume::ResumeCommand),
    Verify(verify::VerifyCommand),
    Compare(compare::Compare),
    Report(report::Report),
    Watch(watch::Watch),
    Sweep(sweep::SweepCommand),
    Reproduce(reproduce::Reproduce),
    Runs(runs::Runs),
    Evaluate(evaluate::EvaluateCommand),
    Predict(predict::Predict),
    Export(export::Export),
    Check(check::Check),
    Partition(partition::PartitionCommand),
    Keys(keys::KeysCommand),
    Methods(methods::Methods),
    Layers(model_file::Layers),
    Models(models::Models),
    Data(data::Data),
    Bench(bench::Bench),
    Completions(completions::Completions),
    Man(man::Manual),
    Reference(reference::ReferencePages),
}

impl Command {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        match self {
            Self::Init(command) => command.run(printer),
            Self::Run(command) => command.run(printer, methods),
            Self::Resume(command) => command.run(printer, methods),
            Self::Verify(command) => command.run(printer, methods),
            Self::Compare(command) => command.run(printer),
            Self::Report(command) => command.run(printer),
            Self::Watch(command) => command.run(printer),
            Self::Sweep(command) => command.run(printer, methods),
            Self::Reproduce(command) => command.run(printer),
            Self::Runs(command) => command.run(printer),
            Self::Evaluate(command) => command.run(printer),
            Self::Predict(command) => command.run(printer),
            Self::Export(command) => command.run(printer),
            Self::Check(command) => command.run(printer, methods),
            Self::Partition(command) => command.run(printer, methods),
            Self::Keys(command) => command.run(printer),
            Self::Methods(command) => command.run(printer, methods),
            Self::Layers(command) => command.run(printer),
            Self::Models(command) => command.run(printer),
            Self::Data(command) => command.run(printer),
            Self::Bench(command) => command.run(printer),
            Self::Completions(command) => command.run(printer),
            Self::Man(command) => command.run(printer),
            Self::Reference(command) => command.run(printer),
        }
    }
}
