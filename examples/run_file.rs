//! Runs a configuration file, as `fedelity run FILE` does:
//!
//!     cargo run --release -p fedelity-experiment --example run_file -- examples/quickstart.toml

#![allow(clippy::print_stdout)]

use std::path::Path;

use fedelity_experiment::{Document, ExperimentError, Study};

fn main() -> Result<(), ExperimentError> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "examples/quickstart.toml".to_string());
    let study = Study::load(&Document::read(Path::new(&file))?)?;
    let folder = study.folder(None)?;
    for group in study.run(&folder, 2, &mut ())?.groups {
        for run in group.runs {
            println!("{}, seed {}: {:?}", group.label, run.header.seed, run.summary.final_accuracy);
        }
    }
    println!("Results are in {}", folder.path().display());
    Ok(())
}
