//! The command line.

use clap::Parser;

use crate::command::Command;
use crate::printer::When;

const EXAMPLES: &str = "\
Examples:
  fedelity run                          20 skewed clients learn Fashion-MNIST, no files needed
  fedelity run experiment.toml          what the file says, into runs/<date-time>-<name>
  fedelity run --set rounds=5 --set model.name=mlp
  fedelity check experiment.toml        what would run, and about how long
  fedelity compare runs/a runs/b        methods over seeds, with statistics
  fedelity report runs/a -o a.html      a page with tables and figures
  fedelity watch runs/a                 the same page while the run goes on
  fedelity sweep sweep.toml             a grid of settings, as many at once as there are cores
  fedelity runs                         what has been run
  fedelity evaluate runs/a              the model on its test data, class by class
  fedelity predict runs/a photo.png     what the model sees in an image or a text
  fedelity export runs/a --onnx a.onnx  the model for other programs
  fedelity partition                    who holds which classes, as a picture
  fedelity methods                      all methods, and what each of them needs
  fedelity methods fedntd               a method with its equation and its keys

Results and tables go to stdout, everything else to stderr.
FEDELITY_DATA names the folder of data sets. FEDELITY_ISA chooses the instruction set: portable,
portable-wide, avx2, avx512 or neon, where the machine has it [default: the best].
Exit codes: 0 done, 1 training diverged, 2 could not run, 130 interrupted.";

/// Federated learning on data that differ from client to client.
#[derive(Debug, Parser)]
#[command(name = "fedelity", version, after_help = EXAMPLES, max_term_width = 100, help_expected = true)]
#[command(propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// When to use colour. NO_COLOR in the environment turns it off as well.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Global options")]
    pub(crate) color: When,

    /// Say only what went wrong.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub(crate) quiet: bool,

    /// Say more: one line a round, and what was decided.
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
