//! A local server for a report page that follows a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
/// How long a viewer has to fetch the final state.
const FAREWELL: Duration = Duration::from_secs(4);

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
        let mut site = FollowedRuns {
            folder: folder.to_path_buf(),
            state: PageState::default(),
            embeddings: FeatureLayouts::default(),
            told: 0,
            next: Instant::now(),
        };
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

impl Default for PageState {
    fn default() -> Self {
        Self { version: String::new(), html: "".into(), json: "".into() }
    }
}

struct FollowedRuns {
    folder: PathBuf,
    state: PageState,
    /// Layouts of finished runs, reused in every version of the page.
    embeddings: FeatureLayouts,
    /// Update requests so far.
    told: usize,
    /// When to look for changes again.
    next: Instant,
}

impl FollowedRuns {
    fn serve(&mut self, http: &mut HttpServer, stop: &AtomicBool) {
        let mut until = None;
        loop {
            if stop.load(Ordering::Relaxed) {
                // Nobody is watching, or everybody has had enough time.
                let end = *until
                    .get_or_insert_with(|| Instant::now() + if self.told > 0 { FAREWELL } else { Duration::ZERO });
                if Instant::now() >= end {
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
                self.refresh();
                let body = Arc::clone(&self.state.html);
                HttpResponse { status: 200, kind: "text/html; charset=utf-8", body }
            }
            "/data" => {
                self.told += 1;
                self.refresh();
                let kind = "application/json";
                if request.query.strip_prefix("version=") == Some(&self.state.version) {
                    return HttpResponse { status: 204, kind, body: "".into() };
                }
                HttpResponse { status: 200, kind, body: Arc::clone(&self.state.json) }
            }
            _ => HttpResponse::text(404, "not found\n"),
        }
    }

    /// Rebuilds the page if a file changed, but not too often.
    fn refresh(&mut self) {
        let start = Instant::now();
        if start >= self.next {
            self.rebuild();
            self.next = Instant::now() + (4 * start.elapsed()).clamp(PAUSES.0, PAUSES.1);
        }
    }

    fn rebuild(&mut self) {
        let version = version(&self.folder);
        if version == self.state.version {
            return;
        }
        let report = LoadedRuns::load(std::slice::from_ref(&self.folder)).and_then(|source| {
            ReportPage::with(&Results::new(source).named(paper_name), None, &mut self.embeddings, true)
        });
        let (html, json) = match report {
            Ok(report) => (report.html(), report.news(&version)),
            Err(error) => waiting(&error.to_string(), &version),
        };
        self.state = PageState { version, html: html.into(), json: json.into() };
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
