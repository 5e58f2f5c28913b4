//! One file over HTTP, into a part file that a later attempt resumes.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use ureq::Agent;

use crate::{FetchError, connection};

/// Progress of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A file is being downloaded: bytes so far, and the total if known.
    Bytes { name: String, have: u64, total: Option<u64> },
    /// The connection was lost; another attempt follows.
    Again { reason: String },
    /// An address failed; the next one is tried.
    Elsewhere { reason: String, url: String },
    /// A file or its content is being checked.
    Checking { name: String },
    /// There is no checksum to check this file with.
    Unchecked { name: String },
    /// The data set's folder exists but is empty; the data set is fetched.
    Incomplete { path: PathBuf, missing: String },
    /// Waiting for another process that is fetching this data set.
    Waiting { name: String },
    /// An archive is being unpacked.
    Unpacking { name: String },
}

/// Timeouts and numbers of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A connection that receives nothing for this long is abandoned.
    pub stall: Duration,
    /// Consecutive attempts without progress before giving up.
    pub attempts: usize,
    /// The pause before the second attempt; it doubles with each one.
    pub pause: Duration,
    /// The maximum size in bytes of a file about whose length nothing is known.
    pub most_bytes: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { stall: Duration::from_secs(30), attempts: 4, pause: Duration::from_secs(1), most_bytes: 16 << 30 }
    }
}

/// Bytes per read.
const BLOCK: usize = 1 << 16;
/// Maximum number of blocks waiting to be written.
const WAITING: usize = 4;

/// The result of an attempt.
enum Attempt {
    Whole,
    Lost(String),
}

/// The source of a file.
enum FileHome {
    Folder(PathBuf),
    Server(Agent),
}

/// A server's response.
struct FileAnswer {
    status: u16,
    /// The offset of the first byte.
    start: u64,
    /// The length of the whole file, if the server states it.
    total: Option<u64>,
    blocks: Receiver<Result<Vec<u8>, String>>,
}

pub(crate) struct Transfer<'a> {
    pub(crate) url: String,
    pub(crate) name: &'a str,
    pub(crate) part: PathBuf,
    /// The length of the published file, if known.
    pub(crate) expected: Option<u64>,
    /// The most bytes that it can have.
    pub(crate) most: u64,
    pub(crate) patience: Patience,
}

impl Transfer<'_> {
    /// Downloads until the file is complete. A partial download is kept if this fails.
    pub(crate) fn run(&self, event: &mut dyn FnMut(Event)) -> Result<(), FetchError> {
        let source = match local(&self.url) {
            Some(path) => {
                look(&path)?;
                FileHome::Folder(path)
            }
            None => FileHome::Server(connection::agent(self.patience.stall)?),
        };
        let (mut fruitless, mut pause) = (0, self.patience.pause);
        // The most bytes so far: a server that keeps starting over makes no progress.
        let mut most = self.have();
        while let Attempt::Lost(reason) = self.attempt(&source, event)? {
            fruitless += 1;
            if self.have() > most {
                (most, fruitless, pause) = (self.have(), 0, self.patience.pause);
            }
            if fruitless >= self.patience.attempts {
                return Err(FetchError::Unreachable { url: self.url.clone(), reason });
            }
            event(Event::Again { reason });
            thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_secs(30));
        }
        Ok(())
    }

    fn attempt(&self, source: &FileHome, event: &mut dyn FnMut(Event)) -> Result<Attempt, FetchError> {
        let have = self.have();
        let answer = match ask(source, &self.url, have) {
            Ok(answer) => answer,
            Err(reason) => return Ok(Attempt::Lost(reason)),
        };
        match answer.status {
            200 | 206 => {}
            // Nothing follows what we have: the file is complete, or what we have is not part of it.
            416 if have > 0 && answer.total == Some(have) && self.expected.is_none_or(|expected| expected == have) => {
                return Ok(Attempt::Whole);
            }
            416 if have > 0 => {
                self.remove()?;
                let reason = "the partial download does not belong to this file; starting over".to_string();
                return Ok(Attempt::Lost(reason));
            }
            408 | 425 | 429 | 500..=599 => {
                let reason = format!("the server responded with status {}", answer.status);
                return Ok(Attempt::Lost(reason));
            }
            status => return Err(FetchError::Status { url: self.url.clone(), status }),
        }
        if let Some(total) = answer.total
            && (total > self.most || self.expected.is_some_and(|expected| expected != total))
        {
            return Err(self.wrong_length(total));
        }
        let start = if answer.start == have { have } else { 0 };
        if answer.start != start {
            let reason = format!("requested bytes from {have} on, but the server sent those from {} on", answer.start);
            return Ok(Attempt::Lost(reason));
        }
        self.write(start, &answer, event)
    }

    fn write(&self, start: u64, answer: &FileAnswer, event: &mut dyn FnMut(Event)) -> Result<Attempt, FetchError> {
        let failed = FetchError::io("write", &self.part);
        let mut file = self.open(start).map_err(&failed)?;
        let mut at = start;
        loop {
            event(Event::Bytes { name: self.name.to_string(), have: at, total: answer.total.or(self.expected) });
            let lost = |reason: String| Ok(Attempt::Lost(reason));
            match answer.blocks.recv_timeout(self.patience.stall) {
                Ok(Ok(block)) => {
                    at += block.len() as u64;
                    if at > self.most {
                        self.remove()?;
                        return Err(self.wrong_length(at));
                    }
                    file.write_all(&block).map_err(&failed)?;
                }
                Ok(Err(reason)) => return lost(reason),
                Err(RecvTimeoutError::Timeout) => {
                    return lost(format!("no data received for {} s", self.patience.stall.as_secs_f64()));
                }
                // The end.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        file.sync_all().map_err(&failed)?;
        match answer.total.or(self.expected) {
            Some(total) if at < total => {
                let reason = format!("the connection was lost at byte {at} of {total}");
                Ok(Attempt::Lost(reason))
            }
            _ => Ok(Attempt::Whole),
        }
    }

    fn wrong_length(&self, found: u64) -> FetchError {
        let url = self.url.clone();
        match self.expected {
            Some(expected) => FetchError::Length { url, expected, found },
            None => FetchError::TooLong { url, most: self.most, found },
        }
    }

    fn have(&self) -> u64 {
        fs::metadata(&self.part).map_or(0, |about| about.len())
    }

    fn open(&self, start: u64) -> std::io::Result<File> {
        if start > 0 {
            return OpenOptions::new().append(true).open(&self.part);
        }
        File::create(&self.part)
    }

    fn remove(&self) -> Result<(), FetchError> {
        fs::remove_file(&self.part).map_err(FetchError::io("remove", &self.part))
    }
}

/// Requests a file starting at this byte. A separate thread reads the body, so that a silent server can be abandoned.
fn ask(source: &FileHome, url: &str, from: u64) -> Result<FileAnswer, String> {
    let agent = match source {
        FileHome::Folder(path) => return read_file(path, from),
        FileHome::Server(agent) => agent,
    };
    let mut request = agent.get(url).header("Accept-Encoding", "identity");
    if from > 0 {
        request = request.header("Range", format!("bytes={from}-"));
    }
    let response = request.call().map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(String::from);
    let length = header("content-length").and_then(|length| length.trim().parse::<u64>().ok());
    let range = header("content-range");
    // "bytes 5-9/10" or "bytes */10".
    let total_of = |range: &String| range.rsplit('/').next().and_then(|total| total.trim().parse().ok());
    let start_of = |range: &String| range.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok();
    let (start, total) = match (status, &range) {
        (206, Some(range)) => (start_of(range).ok_or("a partial response with an invalid range")?, total_of(range)),
        (206, None) => return Err("a partial response without a range".to_string()),
        (416, Some(range)) => (0, total_of(range)),
        _ => (0, length),
    };
    Ok(FileAnswer { status, start, total, blocks: blocks(response.into_body().into_reader())? })
}

/// The path of a mirror that is a local folder.
fn local(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("file://");
    (path.is_some() || !url.contains("://")).then(|| PathBuf::from(path.unwrap_or(url)))
}

/// Whether a local file can be read.
fn look(path: &Path) -> Result<(), FetchError> {
    let Err(source) = fedelity_files::open(path) else { return Ok(()) };
    let path = path.to_path_buf();
    let reason = match path.parent() {
        _ if !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(FetchError::io("open", &path)(source));
        }
        Some(folder) if !folder.is_dir() => format!("no such folder: {}", folder.display()),
        _ => "no such file".to_string(),
    };
    Err(FetchError::NotHere { path, reason })
}

fn read_file(path: &Path, from: u64) -> Result<FileAnswer, String> {
    let mut file = fedelity_files::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if from > 0 && from >= length {
        return Ok(FileAnswer { status: 416, start: 0, total: Some(length), blocks: sync_channel(1).1 });
    }
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from)).map_err(|error| error.to_string())?;
    Ok(FileAnswer { status: 206, start: from, total: Some(length), blocks: blocks(file)? })
}

/// Blocks of a body, read by a separate thread.
fn blocks(mut body: impl Read + Send + 'static) -> Result<Receiver<Result<Vec<u8>, String>>, String> {
    let (sender, receiver) = sync_channel(WAITING);
    let started = thread::Builder::new().spawn(move || {
        loop {
            let mut block = vec![0; BLOCK];
            let sent = match body.read(&mut block) {
                Ok(0) => return,
                Ok(n) => {
                    block.truncate(n);
                    sender.send(Ok(block))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
                Err(error) => {
                    // The receiver is gone.
                    let _ = sender.send(Err(error.to_string()));
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    started.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(receiver)
}
