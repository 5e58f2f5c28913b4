//! `fedelity sweep`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use fedelity_record::{Status as Ending, names, read_summary};
use fedelity_report::{Comparison, Options, Source, Study};
use serde_json::json;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::compare;
use super::run::threads;
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::status::Status;
use crate::terminal;
use crate::units::{percent, plural, seconds};

const EXAMPLES: &str = "\
A sweep file names keys of the configuration and their values:

  config = \"experiment.toml\"      # optional: what all runs have in common
  seeds = [1, 2, 3]

  [grid]                          # every value with every other
  \"method.name\" = [\"fedavg\", \"fedntd\"]
  \"partition.alpha\" = [0.1, 1.0]

  [[list]]                        # and, instead or as well, settings one by one
  \"clients.epochs\" = 1
  \"optimizer.lr\" = 0.05

Examples:
  fedelity sweep sweep.toml -o runs/sweep     again, it goes on where it stopped
  fedelity sweep sweep.toml --dry-run         what would run
  fedelity compare runs/sweep --force";

/// Run a grid or a list of settings over seeds
///
/// As many runs go at once as there are cores, each on one thread. What is done is not done again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sweep {
    /// The sweep file.
    file: PathBuf,

    /// Folder for the runs; a sweep that was stopped there goes on [default: runs/<name of the file>].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Runs at once [default: all cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Folder that holds the data sets.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Only say what would run.
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object a run.
    #[arg(long)]
    json: bool,
}

const KEYS: &[&str] = &["config", "seeds", "set", "grid", "list"];

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
struct Job {
    /// Its folder below the sweep's.
    folder: String,
    /// Assignments as `--set` takes them.
    set: Vec<String>,
    seed: u64,
}

/// How a job ended.
enum Done {
    Before,
    Now,
    Failed(String),
}

impl Sweep {
    pub(crate) fn run(self, printer: &Printer) -> Result<Status> {
        let at_once =
            threads(self.jobs).map_err(|error| anyhow!("{}", error.to_string().replace("--threads", "--jobs")))?;
        let text = fs::read_to_string(&self.file).with_context(|| format!("{}: cannot read", self.file.display()))?;
        let table: Table = text.parse().map_err(|error| anyhow!("{}: {error}", self.file.display()))?;
        let config = config(&self.file, &table)?;
        let jobs = jobs(&table).map_err(|error| anyhow!("{}: {error}", self.file.display()))?;
        let stem = self.file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("sweep");
        let output = self.output.clone().unwrap_or_else(|| Path::new("runs").join(stem));
        if self.dry_run {
            for job in &jobs {
                let state = if finished(&output.join(&job.folder)) { "done" } else { "to run" };
                printer.line(format!("{state:<6}  {}  seed {}", job.set.join(" "), job.seed))?;
            }
            return Ok(Status::Done);
        }
        let print = fingerprint(config.as_deref())?;
        fs::create_dir_all(&output).with_context(|| format!("{}: cannot create", output.display()))?;
        let interrupt = Interrupt::listen(printer)?;
        let workers = at_once.min(jobs.len());
        printer.say(format_args!("{}, {} at once, into {}", plural(jobs.len(), "run"), workers, output.display()));
        let bar = printer.bar(jobs.len() as u64);
        let (next, ended) = (AtomicUsize::new(0), Mutex::new((0usize, Vec::<String>::new(), None::<anyhow::Error>)));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while !interrupt.is_asked() {
                        let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                        let done = self.execute(job, &output, config.as_deref(), &print, &interrupt);
                        let mut ended = ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        ended.0 += 1;
                        bar.set_position(ended.0 as u64);
                        let told = bar.suspend(|| self.tell(printer, job, &output, &done, (ended.0, jobs.len())));
                        if let Done::Failed(reason) = done {
                            ended.1.push(format!("{}, seed {}: {reason}", job.set.join(" "), job.seed));
                        }
                        if let Err(error) = told {
                            ended.2 = Some(error);
                            return;
                        }
                    }
                });
            }
        });
        bar.finish_and_clear();
        let (_, failed, broken) = ended.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(error) = broken {
            return Err(error);
        }
        if interrupt.is_asked() {
            printer.say("Interrupted; the same command goes on where it stopped");
            return Ok(Status::Interrupted);
        }
        if !self.json {
            self.table(printer, &output)?;
        }
        if !failed.is_empty() {
            bail!("{} failed; the first: {}", plural(failed.len(), "run"), failed[0]);
        }
        Ok(Status::Done)
    }

    /// Runs one job in a process of its own, beside its folder, which is there when it is complete.
    fn execute(&self, job: &Job, output: &Path, config: Option<&Path>, print: &str, interrupt: &Interrupt) -> Done {
        let folder = output.join(&job.folder);
        let stamp = json!({ "config-sha256": print, "set": job.set, "seed": job.seed }).to_string() + "\n";
        if finished(&folder) {
            return match fs::read_to_string(folder.join("sweep.json")) {
                Ok(found) if found == stamp => Done::Before,
                _ => Done::Failed(format!(
                    "{} is there already from other settings; choose another folder or remove it",
                    folder.display()
                )),
            };
        }
        let aside =
            folder.with_file_name(format!(".{}.part", folder.file_name().and_then(|n| n.to_str()).unwrap_or("run")));
        match self.attempt(job, config, &aside) {
            Ok(()) if interrupt.is_asked() => {
                let _ = fs::remove_dir_all(&aside);
                Done::Failed("interrupted".to_string())
            }
            Ok(()) => {
                let _ = fs::remove_dir_all(&folder);
                let moved = fs::write(aside.join("sweep.json"), stamp).and_then(|()| fs::rename(&aside, &folder));
                moved.map_or_else(|error| Done::Failed(format!("{}: {error}", folder.display())), |()| Done::Now)
            }
            Err(error) => {
                let _ = fs::remove_dir_all(&aside);
                Done::Failed(format!("{error:#}"))
            }
        }
    }

    fn attempt(&self, job: &Job, config: Option<&Path>, aside: &Path) -> Result<()> {
        if aside.exists() {
            fs::remove_dir_all(aside).with_context(|| format!("{}: cannot remove", aside.display()))?;
        }
        if let Some(above) = aside.parent() {
            fs::create_dir_all(above).with_context(|| format!("{}: cannot create", above.display()))?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").args(config).args(["--quiet", "--threads", "1", "--output"]).arg(aside);
        for assignment in &job.set {
            command.args(["--set", assignment]);
        }
        command.arg("--set").arg(format!("seeds=[{}]", job.seed));
        if let Some(folder) = &self.data_dir {
            command.arg("--data-dir").arg(folder);
        }
        let output = command.stdin(Stdio::null()).output()?;
        match output.status.code() {
            // A run that diverged is a result.
            Some(0 | 1) => Ok(()),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.lines().last().unwrap_or("it ended without a word");
                Err(anyhow!("{}", last.strip_prefix("error: ").unwrap_or(last)))
            }
        }
    }

    /// One line a run.
    fn tell(&self, printer: &Printer, job: &Job, output: &Path, done: &Done, (n, of): (usize, usize)) -> Result<()> {
        let summary = read_summary(&output.join(&job.folder).join(names::SUMMARY)).ok();
        let state = match done {
            Done::Before => "was done",
            Done::Now => "done",
            Done::Failed(_) => "failed",
        };
        if self.json {
            return printer.json(&json!({
                "folder": output.join(&job.folder),
                "set": job.set,
                "seed": job.seed,
                "state": state,
                "summary": summary,
                "error": if let Done::Failed(reason) = done { Some(reason) } else { None },
            }));
        }
        let result = match (done, &summary) {
            (Done::Failed(reason), _) => reason.clone(),
            (_, Some(summary)) => {
                let accuracy = summary.final_accuracy.map_or("-".to_string(), percent);
                let note = if matches!(summary.status, Ending::Diverged { .. }) { "  diverged" } else { "" };
                format!("{accuracy}  {}{note}", seconds(summary.seconds.total()))
            }
            _ => String::new(),
        };
        printer.say(format_args!("[{n}/{of}] {state:<8}  {}  seed {}  {result}", job.set.join(" "), job.seed));
        Ok(())
    }

    /// The comparison of all that is there.
    fn table(&self, printer: &Printer, output: &Path) -> Result<()> {
        let study = Study::new(Source::load(&[output.to_path_buf()])?);
        let comparison = Comparison::new(&study, &Options { force: true, ..Options::default() })?;
        for mismatch in &comparison.mismatches {
            printer.warn(mismatch);
        }
        for line in compare::lines(&comparison, printer, terminal::width()) {
            printer.line(line)?;
        }
        Ok(())
    }
}

/// Whether a run is there with all its rounds, or diverged.
fn finished(folder: &Path) -> bool {
    read_summary(&folder.join(names::SUMMARY)).is_ok_and(|summary| summary.status != Ending::Interrupted)
}

/// The configuration that all runs share.
fn config(file: &Path, table: &Table) -> Result<Option<PathBuf>> {
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        bail!("{}: unknown key '{key}' (allowed: {})", file.display(), KEYS.join(", "));
    }
    match table.get("config") {
        None => Ok(None),
        Some(Value::String(path)) => {
            let path = file.parent().unwrap_or(Path::new("")).join(path);
            if !path.is_file() {
                bail!("{}: config = \"{}\": there is no such file", file.display(), path.display());
            }
            Ok(Some(path))
        }
        Some(other) => bail!("{}: config = {other}: expected the path of a file", file.display()),
    }
}

fn fingerprint(config: Option<&Path>) -> Result<String> {
    let bytes = match config {
        Some(path) => fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?,
        None => Vec::new(),
    };
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All runs of a sweep: the grid, with every entry of the list, with every seed.
fn jobs(table: &Table) -> Result<Vec<Job>> {
    let seeds: Vec<u64> = match table.get("seeds") {
        None => vec![1],
        Some(value) => {
            let items = value.as_array().filter(|items| !items.is_empty());
            let seeds: Option<Vec<u64>> =
                items.and_then(|items| items.iter().map(|item| item.as_integer()?.try_into().ok()).collect());
            seeds.ok_or_else(|| anyhow!("seeds = {value}: expected a list of whole numbers, such as [1, 2, 3]"))?
        }
    };
    let section = |name: &str| match table.get(name) {
        None => Ok(BTreeMap::new()),
        Some(Value::Table(found)) => Ok(flat("", found)),
        Some(other) => Err(anyhow!("{name} = {other}: expected a table [{name}]")),
    };
    let fixed: Vec<String> = section("set")?.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut combinations: Vec<Vec<String>> = vec![Vec::new()];
    for (key, value) in section("grid")? {
        let Value::Array(values) = &value else {
            bail!("grid.{key} = {value}: expected a list of values, such as [0.1, 1.0]");
        };
        if values.is_empty() {
            bail!("grid.{key} = []: expected at least one value");
        }
        let with = |so_far: &Vec<String>| {
            values.iter().map(|value| [&so_far[..], &[format!("{key}={value}")]].concat()).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(with).collect();
    }
    if let Some(list) = table.get("list") {
        let entries: Option<Vec<&Table>> = list.as_array().map(|all| all.iter().filter_map(Value::as_table).collect());
        let entries = entries.filter(|all| !all.is_empty());
        let entries = entries.ok_or_else(|| anyhow!("list: expected tables [[list]]"))?;
        let with = |so_far: &Vec<String>| {
            let one = |entry: &&Table| {
                let own = flat("", entry).into_iter().map(|(key, value)| format!("{key}={value}"));
                so_far.iter().cloned().chain(own).collect::<Vec<String>>()
            };
            entries.iter().map(one).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(with).collect();
    }
    let mut jobs: Vec<Job> = Vec::new();
    for own in &combinations {
        if let Some(assignment) =
            own.iter().chain(&fixed).find(|text| text.starts_with("seed=") || text.starts_with("seeds="))
        {
            bail!("{assignment}: seeds stand at the top of the file: seeds = [1, 2, 3]");
        }
        let name = folder_name(own);
        for &seed in &seeds {
            let folder = format!("{name}/seed-{seed}");
            let job = Job { folder, set: fixed.iter().chain(own).cloned().collect(), seed };
            if jobs.iter().any(|other| other.folder == job.folder) {
                bail!("{}, seed {seed}: the same run is there twice", own.join(" "));
            }
            jobs.push(job);
        }
    }
    Ok(jobs)
}

/// Keys by their dotted path. Tables are gone into, so `method.name = "x"` and `"method.name" = "x"` are the same.
fn flat(path: &str, table: &Table) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (key, value) in table {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Table(below) => found.extend(flat(&full, below)),
            other => {
                found.insert(full, other.clone());
            }
        }
    }
    found
}

/// A folder for a combination: its keys without their sections, and its values. Long ones end in a fingerprint.
fn folder_name(own: &[String]) -> String {
    let short = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let plain: String = value.chars().filter(|c| c.is_ascii_alphanumeric() || ".-_".contains(*c)).collect();
        if key == "method.name" { plain } else { format!("{}-{plain}", key.rsplit('.').next().unwrap_or(key)) }
    };
    let name = own.iter().map(short).collect::<Vec<_>>().join("-");
    let print: String =
        Sha256::digest(own.join("\n").as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    match name.len() {
        0 => "run".to_string(),
        1..=80 => format!("{name}-{print}"),
        _ => format!("{}-{print}", &name[..80]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Job>> {
        jobs(&text.parse::<Table>().unwrap())
    }

    #[test]
    fn a_grid_with_a_list_with_seeds() {
        let text = "seeds = [1, 2]\n[set]\nrounds = 3\n[grid]\n\"method.name\" = [\"fedavg\", \"fedntd\"]\n[[list]]\n\
                    clients.epochs = 1\n[[list]]\n\"clients.epochs\" = 5\n\"optimizer.lr\" = 0.05\n";
        let jobs = of(text).unwrap();
        assert_eq!(jobs.len(), 8);
        assert_eq!(jobs[0].set, ["rounds=3", "method.name=\"fedavg\"", "clients.epochs=1"]);
        assert_eq!((jobs[7].seed, jobs[7].set.len()), (2, 4));
        assert!(
            jobs[0].folder.starts_with("fedavg-epochs-1-") && jobs[0].folder.ends_with("/seed-1"),
            "{}",
            jobs[0].folder
        );
        assert_eq!(of("").unwrap().len(), 1);
    }

    #[test]
    fn wrong_sweeps_are_named() {
        for (text, said) in [
            ("seeds = 3", "seeds = 3: expected a list"),
            ("[grid]\nrounds = 3", "grid.rounds = 3: expected a list"),
            ("[grid]\nrounds = []", "grid.rounds = []"),
            ("list = 3", "[[list]]"),
            ("[grid]\nseeds = [[1], [2]]", "seeds stand at the top"),
            ("seeds = [1, 1]", "the same run is there twice"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
