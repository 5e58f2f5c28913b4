//! The command line.

use clap::Parser;

use crate::command::Command;
use crate::printer::When;

const EXAMPLES: &str = "\
Examples:
  fedelity run                          train 20 skewed clients on Fashion-MNIST; needs no files
  fedelity init                         write experiment.toml, with every key explained
  fedelity run experiment.toml          run a file; results go to runs/<date-time>-<name>
  fedelity run --set rounds=5 --set model.name=mlp
  fedelity check experiment.toml        show what would run, and estimate its time and memory
  fedelity compare runs/a runs/b        compare methods over seeds, with statistics
  fedelity report runs/a -o a.html      write a page with tables and figures
  fedelity watch runs/a                 show the same page during the run
  fedelity sweep sweep.toml             run a grid of settings on all cores
  fedelity reproduce                    list the published tables you can reproduce
  fedelity runs                         list past runs
  fedelity evaluate runs/a              test the model on its test data, class by class
  fedelity predict runs/a photo.png     classify an image or a text
  fedelity export runs/a --onnx a.onnx  export the model for other programs
  fedelity partition                    show which client holds which classes
  fedelity methods                      list the methods: what each does and needs
  fedelity methods fedntd               explain a method: its equation and its keys
  fedelity layers simple-cnn            print a model's layers as a file to edit and train
  fedelity models                       list all models with their sizes
  fedelity keys                         explain every key of a configuration

Wherever a command takes a run, runs/latest is the last run in runs.
Results and tables go to stdout, everything else to stderr.
Data sets are in the folder given by --data-dir, FEDELITY_DATA or data.dir, in this order, or else
in ./data.
FEDELITY_ISA selects the instruction set: portable, avx2, avx512 or neon [default: the fastest of
this machine]. It changes the speed, never the results.
Exit codes: 0 success; 1 training diverged, or verify found a difference; 2 could not run; 130
interrupted.";

/// Federated learning on non-IID data.
#[derive(Debug, Parser)]
#[command(name = "fedelity", version, after_help = EXAMPLES, max_term_width = 100, help_expected = true)]
#[command(propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// When to use colour. Setting NO_COLOR in the environment also turns it off.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Global options")]
    pub(crate) color: When,

    /// Print only errors on stderr, no progress or notes.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub(crate) quiet: bool,

    /// Print more: one line per round, and decisions made along the way.
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definitions_are_sound() {
        super::Cli::command().debug_assert();
    }
}
