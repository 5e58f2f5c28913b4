//! `fedelity sweep --status`.

use std::path::Path;

use anyhow::Result;
use fedelity_experiment::SweepStatus;
use fedelity_files::{ClaimState, Holder, Worker};
use serde_json::json;

use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::table::{Align, Table};
use crate::view::units::{plural, seconds};

/// Shows who works in the folder of a sweep.
pub(crate) fn show(printer: &Printer, folder: &Path, json: bool) -> Result<ExitStatus> {
    let SweepStatus { workers, claims, done } = SweepStatus::read(folder)?;
    let count = |is: fn(&ClaimState) -> bool| claims.iter().filter(|(_, state)| is(state)).count();
    let running = count(|state| matches!(state, ClaimState::Held(_)));
    let stale = count(|state| matches!(state, ClaimState::Stale(_)));
    let held_by = |worker: &Worker| {
        let is_its = |holder: &Holder| (holder.process, &holder.host) == (worker.holder.process, &worker.holder.host);
        let of = |state: &ClaimState| matches!(state, ClaimState::Held(holder) | ClaimState::Stale(holder) if is_its(holder));
        claims.iter().filter(|(_, state)| of(state)).count()
    };
    if json {
        let process = |(worker, silent): &(Worker, Option<std::time::Duration>)| {
            json!({
                "host": worker.holder.host,
                "process": worker.holder.process,
                "part": worker.note,
                "runs": held_by(worker),
                "silent-seconds": silent.map(|silent| silent.as_secs_f64()),
                "takeover-seconds": worker.patience.as_secs_f64(),
            })
        };
        let run = |(folder, state): &(String, ClaimState)| {
            let (state, holder, reason) = described(state);
            let by = holder.map(ToString::to_string);
            json!({ "folder": folder, "state": state, "by": by, "reason": reason })
        };
        let processes: Vec<_> = workers.iter().map(process).collect();
        let runs: Vec<_> = claims.iter().map(run).collect();
        printer.json(&json!({ "done": done, "processes": processes, "claims": runs }))?;
        return Ok(ExitStatus::Done);
    }
    printer.line(format!("{} done, {running} running, {stale} stale", plural(done, "run")))?;
    if !workers.is_empty() {
        let mut table = Table::new(&[
            ("process", Align::Right),
            ("host", Align::Left),
            ("runs", Align::Right),
            ("last sign of life", Align::Right),
            ("part", Align::Left),
        ]);
        for (worker, silent) in &workers {
            table.row([
                worker.holder.process.map_or("-".to_string(), |process| process.to_string()),
                worker.holder.host.clone(),
                held_by(worker).to_string(),
                silent.map_or("-".to_string(), |silent| format!("{} ago", seconds(silent.as_secs_f64()))),
                worker.note.clone(),
            ]);
        }
        let bare = workers.iter().all(|(worker, _)| worker.note.is_empty());
        printer.drawn(if bare { table.without(4) } else { table }.lines(printer))?;
    }
    for (folder, state) in &claims {
        let (state, holder, reason) = described(state);
        let by = holder.map_or(String::new(), |holder| format!("  ({holder})"));
        let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
        printer.line(format!("{state:<10}  {folder}{by}{reason}"))?;
    }
    Ok(ExitStatus::Done)
}

/// A claim in a word, with who has or had it, and why it failed.
fn described(state: &ClaimState) -> (&'static str, Option<&Holder>, Option<&str>) {
    match state {
        ClaimState::Open => ("given back", None, None),
        ClaimState::Mine => ("running", None, None),
        ClaimState::Held(holder) => ("running", Some(holder), None),
        ClaimState::Stale(holder) => ("stale", Some(holder), None),
        ClaimState::Failed(holder, reason) => ("failed", Some(holder), Some(reason)),
    }
}
