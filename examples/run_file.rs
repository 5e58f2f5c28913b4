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
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for group in study.run(&folder, threads, &mut ())?.groups {
        for run in group.runs {
            let accuracy =
                run.summary.final_accuracy.map_or("-".to_string(), |share| format!("{:.2} %", 100.0 * share));
            println!("{}, seed {}: {accuracy}", group.label, run.header.seed);
        }
    }
    println!("Results are in {}", folder.path().display());
    Ok(())
}
