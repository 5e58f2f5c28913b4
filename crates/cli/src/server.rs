//! A local server for a report page that follows a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result};
use fedelity_record::names;
use fedelity_report::{FeatureLayouts, LoadedRuns, ReportPage, Results, waiting};

use crate::command::methods::paper_name;
use crate::http::{HttpRequest, HttpResponse, HttpServer};

/// The pause between two versions of the page: several times what one takes, within these bounds. However many ask, the
/// processor is left to the run.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
/// How long those who ask wait for the next version, before they get the one before it.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a viewer has to fetch the final state, and how long that may take to build: features are laid out then.
const FAREWELL: Duration = Duration::from_secs(4);
const LONGEST_BUILD: Duration = Duration::from_secs(30);

/// A server for this computer only.
pub(crate) struct LiveServer {
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveServer {
    /// Serves the runs at or below a folder, on a free port.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut http = HttpServer::listen().context("cannot listen on this computer")?;
        let address = format!("http://127.0.0.1:{}/", http.port());
        let stop = Arc::new(AtomicBool::new(false));
        let runs = Arc::new(FollowedRuns::new(folder));
        let mut site = Site { runs: Arc::clone(&runs), told: 0 };
        // Not waited for: what it is still building when the server has ended, nobody will see.
        let builder = thread::Builder::new().name("page builder".to_string()).spawn(move || runs.keep_up());
        builder.context("cannot start a thread")?;
        let asked = Arc::clone(&stop);
        let thread = thread::Builder::new().name("page".to_string()).spawn(move || site.serve(&mut http, &asked));
        Ok(Self { address, stop, thread: Some(thread.context("cannot start a thread")?) })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Stops the server. An open page gets a moment to fetch the final state.
    pub(crate) fn end(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.halt();
    }
}

/// The most recent page.
struct PageState {
    version: String,
    html: Arc<str>,
    json: Arc<str>,
}

/// The page of runs that are followed. One thread builds it, which can take seconds, and another answers.
struct FollowedRuns {
    folder: PathBuf,
    build: Mutex<Build>,
    /// A build was wanted or is done.
    moved: Condvar,
}

struct Build {
    state: Arc<PageState>,
    /// How many builds were wanted, and how many of these are done.
    wanted: usize,
    done: usize,
    /// When the files are looked at again.
    next: Instant,
    over: bool,
}

impl FollowedRuns {
    fn new(folder: &Path) -> Self {
        let (html, json) = waiting("the page is being built", "");
        let state = Arc::new(PageState { version: String::new(), html: html.into(), json: json.into() });
        let build = Build { state, wanted: 0, done: 0, next: Instant::now(), over: false };
        Self { folder: folder.to_path_buf(), build: Mutex::new(build), moved: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Build> {
        // What a thread that panicked has left is whole: it is replaced at once.
        self.build.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the page whenever it is wanted, until the server has ended.
    fn keep_up(&self) {
        // Layouts of finished runs are reused in every version of the page.
        let mut layouts = FeatureLayouts::default();
        loop {
            let build = self.lock();
            let idle = |build: &mut Build| build.wanted == build.done && !build.over;
            let build = self.moved.wait_while(build, idle).unwrap_or_else(PoisonError::into_inner);
            if build.over {
                return;
            }
            let (wanted, before) = (build.wanted, Arc::clone(&build.state));
            drop(build);
            let start = Instant::now();
            let version = version(&self.folder);
            let state = (version != before.version).then(|| {
                // Layouts of features come later.
                let mut known = layouts.only_known();
                let first = self.page(&version, &mut known);
                if !known.is_short() {
                    return first;
                }
                self.lock().state = first;
                self.moved.notify_all();
                self.page(&version, &mut layouts)
            });
            let mut build = self.lock();
            build.next = Instant::now() + (4 * start.elapsed()).clamp(PAUSES.0, PAUSES.1);
            (build.state, build.done) = (state.unwrap_or(before), wanted);
            self.moved.notify_all();
        }
    }

    /// The page, built again if a file has changed, but not too often. What takes long is not waited for: those who ask
    /// again get it then.
    fn state(&self) -> Arc<PageState> {
        let mut build = self.lock();
        if build.wanted == build.done && Instant::now() >= build.next {
            build.wanted += 1;
            self.moved.notify_all();
            let (wanted, before) = (build.wanted, Arc::clone(&build.state));
            let same = |build: &mut Build| build.done < wanted && Arc::ptr_eq(&build.state, &before);
            let waited = self.moved.wait_timeout_while(build, PATIENCE, same);
            build = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Arc::clone(&build.state)
    }

    /// Asks for the state at the end. Returns the number of that build.
    fn want_last(&self) -> usize {
        let mut build = self.lock();
        build.wanted += 1;
        self.moved.notify_all();
        build.wanted
    }

    /// The page of this version of the files. One that lacks layouts is another version.
    fn page(&self, version: &str, layouts: &mut FeatureLayouts) -> Arc<PageState> {
        let report = LoadedRuns::load(std::slice::from_ref(&self.folder))
            .and_then(|source| ReportPage::with(&Results::new(source).named(paper_name), None, layouts, true));
        let version = format!("{version}{}", if layouts.is_short() { "-" } else { "" });
        let (html, json) = match report {
            Ok(report) => (report.html(), report.news(&version)),
            Err(error) => waiting(&error.to_string(), &version),
        };
        Arc::new(PageState { version, html: html.into(), json: json.into() })
    }
}

/// The answers to those who look at a page.
struct Site {
    runs: Arc<FollowedRuns>,
    /// Update requests so far.
    told: usize,
}

impl Site {
    fn serve(&mut self, http: &mut HttpServer, stop: &AtomicBool) {
        let (mut last, mut until) = (None, None);
        loop {
            if stop.load(Ordering::Relaxed) {
                // Nobody is watching, or everybody has had enough time since the final state is there.
                let asked = Instant::now();
                let (wanted, asked) = *last.get_or_insert_with(|| (self.runs.want_last(), asked));
                let built = self.runs.lock().done >= wanted || asked.elapsed() > LONGEST_BUILD;
                let end = built.then(|| *until.get_or_insert_with(|| Instant::now() + FAREWELL));
                if self.told == 0 || end.is_some_and(|end| Instant::now() >= end) {
                    self.runs.lock().over = true;
                    self.runs.moved.notify_all();
                    return;
                }
            }
            http.turn(&mut |request| self.answer(request));
        }
    }

    /// Only these two exist: no path leads to a file.
    fn answer(&mut self, request: HttpRequest<'_>) -> HttpResponse {
        match request.path {
            "/" => {
                let body = Arc::clone(&self.runs.state().html);
                HttpResponse { status: 200, kind: "text/html; charset=utf-8", body }
            }
            "/data" => {
                self.told += 1;
                let state = self.runs.state();
                let kind = "application/json";
                if request.query.strip_prefix("version=") == Some(&state.version) {
                    return HttpResponse { status: 204, kind, body: "".into() };
                }
                HttpResponse { status: 200, kind, body: Arc::clone(&state.json) }
            }
            _ => HttpResponse::text(404, "not found\n"),
        }
    }
}

/// A string that changes whenever a file of a run changes.
fn version(folder: &Path) -> String {
    fn walk(path: &Path, depth: usize, files: &mut Vec<(PathBuf, u64, u128)>) {
        let Ok(entries) = fs::read_dir(path) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            if [names::ROUNDS, names::SUMMARY, names::FEATURES].contains(&name) {
                let Ok(about) = fs::metadata(&path) else { continue };
                let time = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                files.push((path, about.len(), time.map_or(0, |time| time.as_nanos())));
            } else if depth < 6 && path.is_dir() && !path.is_symlink() {
                walk(&path, depth + 1, files);
            }
        }
    }
    let mut files = Vec::new();
    walk(folder, 0, &mut files);
    files.sort();
    let mut hash = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&files, &mut hash);
    format!("{:x}", std::hash::Hasher::finish(&hash))
}

/// Opens an address in the programs named by BROWSER, or the default browser. Does nothing if there is none.
pub(crate) fn open(address: &str) {
    let usual = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let wanted = std::env::var("BROWSER").unwrap_or_default();
    let _ =
        wanted.split(':').chain([usual]).filter_map(|program| opener(program, address)).any(|mut command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
        });
}

/// A program with its arguments, as in BROWSER: the address replaces %s, or goes at the end.
fn opener(program: &str, address: &str) -> Option<Command> {
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words.map(|word| word.replace("%s", address)));
    if !program.contains("%s") {
        command.arg(address);
    }
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_gets_the_address_once() {
        let told = |program: &str| {
            let command = opener(program, "http://a/")?;
            let words = [command.get_program()].into_iter().chain(command.get_args());
            Some(words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(told("firefox").as_deref(), Some("firefox http://a/"));
        assert_eq!(told("firefox --new-window %s").as_deref(), Some("firefox --new-window http://a/"));
        assert_eq!(told(" "), None);
    }
}
