//! A local server for a report page that follows a run.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use fedelity_record::names;
use fedelity_report::{FeatureLayouts, LoadedRuns, ReportPage, Results, waiting};
use tiny_http::{Header, Method, Request, Response};

use crate::command::methods::paper_name;

/// How long to wait for a request before checking whether to end.
const TICK: Duration = Duration::from_millis(100);
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
        let http = tiny_http::Server::http("127.0.0.1:0").map_err(|error| anyhow!("cannot listen: {error}"))?;
        let port = http.server_addr().to_ip().ok_or_else(|| anyhow!("cannot listen on this computer"))?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let mut site = FollowedRuns {
            folder: folder.to_path_buf(),
            port,
            state: PageState::default(),
            embeddings: FeatureLayouts::default(),
            told: 0,
        };
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || site.serve(&http, &asked));
        Ok(Self { address: format!("http://127.0.0.1:{port}/"), stop, thread: Some(thread) })
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
#[derive(Default)]
struct PageState {
    version: String,
    html: String,
    json: String,
}

struct FollowedRuns {
    folder: PathBuf,
    port: u16,
    state: PageState,
    /// Layouts of finished runs, reused in every version of the page.
    embeddings: FeatureLayouts,
    /// Update requests so far.
    told: usize,
}

type PageResponse = Response<Cursor<Vec<u8>>>;

impl FollowedRuns {
    fn serve(&mut self, http: &tiny_http::Server, stop: &AtomicBool) {
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
            if let Ok(Some(request)) = http.recv_timeout(TICK) {
                let answer = self.answer(&request);
                // A viewer that has disconnected is not an error.
                let _ = request.respond(answer);
            }
        }
    }

    fn answer(&mut self, request: &Request) -> PageResponse {
        // A page on another site must not read this one through a host name that resolves to this computer (DNS
        // rebinding).
        let host = request.headers().iter().find(|header| header.field.equiv("Host"));
        let known = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        if !host.is_some_and(|host| known.iter().any(|name| host.value.as_str() == name)) {
            return text(403, "text/plain", "this page is only for this computer\n");
        }
        if *request.method() != Method::Get {
            return text(405, "text/plain", "only GET\n");
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        match path {
            "/" => {
                self.refresh();
                text(200, "text/html; charset=utf-8", &self.state.html)
            }
            "/data" => {
                self.told += 1;
                self.refresh();
                if query.strip_prefix("version=") == Some(&self.state.version) {
                    return text(204, "application/json", "");
                }
                text(200, "application/json", &self.state.json)
            }
            _ => text(404, "text/plain", "not found\n"),
        }
    }

    /// Rebuilds the page if a file changed.
    fn refresh(&mut self) {
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
        self.state = PageState { version, html, json };
    }
}

fn text(status: u16, kind: &str, body: &str) -> PageResponse {
    let mut answer = Response::from_data(body.as_bytes().to_vec()).with_status_code(status);
    let headers = [("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")];
    for (name, value) in headers {
        if let Ok(header) = Header::from_bytes(name.as_bytes(), value.as_bytes()) {
            answer.add_header(header);
        }
    }
    answer
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
