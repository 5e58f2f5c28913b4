//! Runs: training on a thread of its own, so that Python can show progress and be interrupted.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use fedelity_cli::{find_run, place_data, resumable, startable};
use fedelity_experiment::{
    Checkpoints, Document, ExperimentError, FrontError, Observer, Outcome, Resources, Run, StopSign, Study,
};
use fedelity_record::{Notice, RoundRecord, RunFolder};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use serde::Serialize;

use crate::config::{document, shared, warn};
use crate::dataset::{given, resources};
use crate::entry::registry;
use crate::error::{Error, raised, raised_by};
use crate::method::MethodClass;
use crate::whole::whole;

/// How often Python is asked whether somebody wants to interrupt it.
const PATIENCE: Duration = Duration::from_millis(50);

/// Most threads that can be asked for.
const MOST_THREADS: u64 = 1024;

/// The stack of the main thread of a program in Linux.
pub(crate) const STACK: usize = 8 << 20;

/// What the thread that trains tells Python.
enum Event {
    /// Something that the user should know.
    Note(String),
    /// A line of JSON for whoever shows progress.
    Progress(String),
    Ended(Result<Ended, ExperimentError>),
}

struct Ended {
    folder: PathBuf,
    interrupted: bool,
}

/// A round, with the run that it belongs to.
#[derive(Serialize)]
struct Line<'a> {
    method: &'a str,
    seed: u64,
    rounds: usize,
    #[serde(flatten)]
    record: &'a RoundRecord,
}

/// What to run, and where.
enum Task {
    New { document: Document, output: Option<PathBuf> },
    Resumed { document: Document, folder: RunFolder },
}

/// What a run uses.
struct Session {
    resources: Resources,
    /// Methods in Python.
    methods: Vec<&'static MethodClass>,
    threads: usize,
    checkpoints: bool,
}

/// Runs a configuration; returns its folder.
#[pyfunction]
#[pyo3(signature = (config, output, threads, checkpoints, progress, data))]
pub(crate) fn run(
    py: Python<'_>,
    config: Option<&Bound<'_, PyAny>>,
    output: Option<PathBuf>,
    threads: Option<&Bound<'_, PyAny>>,
    checkpoints: bool,
    progress: Option<&Bound<'_, PyAny>>,
    data: Option<&Bound<'_, PyAny>>,
) -> PyResult<PathBuf> {
    let (registry, methods) = registry(py)?;
    let mut document = document(config)?;
    document.know(&registry);
    let resources = resources(&mut document, data)?;
    let session = Session { resources, methods, threads: threads_of(threads)?, checkpoints };
    execute(py, Task::New { document, output }, session, progress)
}

/// Goes on with the runs of a folder; returns it.
#[pyfunction]
#[pyo3(signature = (folder, rounds, threads, progress, data))]
pub(crate) fn resume(
    py: Python<'_>,
    folder: PathBuf,
    rounds: Option<&Bound<'_, PyAny>>,
    threads: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
    data: Option<&Bound<'_, PyAny>>,
) -> PyResult<PathBuf> {
    let found = find_run(&folder).and_then(|folder| resumable(&folder));
    let (folder, config) = found.map_err(|error| Error::new_err(format!("{error:#}")))?;
    let mut document = Document::read(&config).map_err(raised)?;
    if let Some(rounds) = rounds {
        let rounds = whole(rounds, "rounds", 1, u32::MAX.into())?;
        document.put(&["rounds"], toml::Value::Integer(rounds as i64), "rounds").map_err(raised)?;
    }
    place_data(&mut document, None).map_err(raised)?;
    let (registry, methods) = registry(py)?;
    document.know(&registry);
    let resources = match data {
        // The partition is that of the run.
        Some(data) => given(data)?,
        None => shared()?,
    };
    let session = Session { resources, methods, threads: threads_of(threads)?, checkpoints: true };
    execute(py, Task::Resumed { document, folder }, session, progress)
}

fn execute(py: Python<'_>, task: Task, session: Session, progress: Option<&Bound<'_, PyAny>>) -> PyResult<PathBuf> {
    let Session { resources, methods, threads, checkpoints } = session;
    let (sign, (told, mut events)) = (StopSign::default(), channel());
    let viewer = Viewer { told: told.clone(), sign: sign.clone(), checkpoints, noticed: Vec::new() };
    let work = move || {
        let ended = train(task, &resources, startable(threads), viewer);
        // If nobody listens any more, nobody waits.
        let _ = told.send(Event::Ended(ended));
    };
    thread::Builder::new()
        .name("fedelity".to_string())
        .stack_size(STACK)
        .spawn(work)
        .map_err(|error| Error::new_err(format!("cannot start a thread: {error}")))?;
    let ended = follow(py, &mut events, &sign, progress)?.map_err(|error| raised_by(py, error, &methods))?;
    let name = ended.folder.display().to_string();
    if ended.interrupted {
        let how = format!("what was recorded is in {name}; go on with fedelity.resume({name:?})");
        return Err(PyKeyboardInterrupt::new_err(how));
    }
    Ok(ended.folder)
}

/// The number of threads that was asked for, or one for each core.
pub(crate) fn threads_of(threads: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
    match threads {
        Some(threads) => whole(threads, "threads", 1, MOST_THREADS).map(|threads| threads as usize),
        None => Ok(thread::available_parallelism().map_or(1, usize::from)),
    }
}

/// Trains, on its own thread.
fn train(task: Task, resources: &Resources, threads: usize, mut viewer: Viewer) -> Result<Ended, ExperimentError> {
    let (document, folder) = match task {
        Task::New { document, output } => (document, Err(output)),
        Task::Resumed { document, folder } => (document, Ok(folder)),
    };
    let study = Study::load_with(&document, resources)?;
    let skipped = study.pool.skipped.note();
    study.settings.notes.iter().chain(&skipped).chain(&study.pool.notes).for_each(|note| viewer.note(note));
    study.check(threads)?;
    let folder = match folder {
        Ok(folder) => folder,
        Err(output) => study.folder(output.as_deref().map(Path::new))?,
    };
    study.run(&folder, threads, &mut viewer)?;
    Ok(Ended { folder: folder.path().to_path_buf(), interrupted: viewer.sign.is_asked() })
}

/// Waits for the end of training, passes on what it says, and stops it if Python is interrupted or cannot be told.
fn follow(
    py: Python<'_>,
    events: &mut Receiver<Event>,
    sign: &StopSign,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Result<Ended, ExperimentError>> {
    let mut failed: Option<PyErr> = None;
    loop {
        let waiting = &mut *events;
        let event = py.detach(move || waiting.recv_timeout(PATIENCE));
        let told = match event {
            Ok(Event::Ended(ended)) => {
                return match (ended, failed) {
                    (Err(error), _) => Ok(Err(error)),
                    (Ok(_), Some(error)) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error),
                    (Ok(ended), _) => Ok(Ok(ended)),
                };
            }
            Ok(Event::Note(note)) => warn(py, &note),
            Ok(Event::Progress(line)) => progress.map_or(Ok(()), |show| show.call1((line,)).map(drop)),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::new_err("training ended without a word")),
        };
        if let Err(error) = told.and_then(|()| py.check_signals()) {
            if failed.is_some() {
                // Asked twice: the thread ends by itself once the clients in training have finished.
                return Err(error);
            }
            sign.ask();
            failed = Some(error);
        }
    }
}

/// Tells Python about a run.
struct Viewer {
    told: Sender<Event>,
    sign: StopSign,
    checkpoints: bool,
    /// What was noticed in the current run: the first of each kind.
    noticed: Vec<Notice>,
}

impl Viewer {
    fn tell(&self, event: Event) {
        // Python may have gone; training ends soon.
        let _ = self.told.send(event);
    }
}

impl Observer for Viewer {
    fn start(&mut self, _: &Run<'_>, _: &RunFolder, _: usize) -> Result<(), FrontError> {
        self.noticed.clear();
        Ok(())
    }

    fn round(&mut self, run: &Run<'_>, record: &RoundRecord) -> Result<(), FrontError> {
        let study = run.study;
        for notice in &record.notices {
            if !self.noticed.iter().any(|known| known.is_like(notice)) {
                let what = notice.describe(&study.pool.dataset.classes, &study.pool.partition.names);
                self.tell(Event::Note(format!("{}, seed {}, round {}: {what}", run.label, run.seed, record.round)));
                self.noticed.push(notice.clone());
            }
        }
        let line = Line { method: run.label, seed: run.seed, rounds: study.settings.config.rounds, record };
        self.tell(Event::Progress(serde_json::to_string(&line)?));
        Ok(())
    }

    fn end(&mut self, run: &Run<'_>, outcome: &Outcome) {
        if let Some(what) = outcome.summary.learnt_nothing(&self.noticed) {
            self.tell(Event::Note(format!("{}, seed {}: {what}", run.label, run.seed)));
        }
        if let Some(reason) = &outcome.divergence {
            self.tell(Event::Note(format!("{}, seed {}: {reason}", run.label, run.seed)));
        }
    }

    fn note(&mut self, note: &str) {
        self.tell(Event::Note(note.to_string()));
    }

    fn checkpoints(&self) -> Checkpoints {
        if self.checkpoints { Checkpoints::Clients } else { Checkpoints::Off }
    }

    fn stop(&self) -> StopSign {
        self.sign.clone()
    }
}
