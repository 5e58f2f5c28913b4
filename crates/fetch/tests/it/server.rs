//! A small HTTP server that misbehaves on request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How the server handles every request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    /// Closes the connection after this many bytes of a body.
    pub(crate) cut: Option<usize>,
    /// Sends the whole file regardless of the requested range.
    pub(crate) ignore_range: bool,
    /// Adds this to the true length in Content-Length.
    pub(crate) lie: i64,
    /// Responds with this status.
    pub(crate) status: Option<u16>,
    /// Responds with 503 this many times first.
    pub(crate) busy: usize,
    /// Redirects to the same path below this one first.
    pub(crate) redirect: bool,
    /// Sends this many bytes, then stalls without closing.
    pub(crate) stall: Option<usize>,
    /// Delay between blocks of 1000 bytes.
    pub(crate) slow: Duration,
    /// Sends no length and ends by closing the connection.
    pub(crate) no_length: bool,
}

pub(crate) struct Server {
    pub(crate) base: String,
    manner: Arc<Mutex<Manner>>,
    files: Arc<Files>,
    /// The first line and the Range of each request.
    pub(crate) requests: Arc<Requests>,
}

impl Server {
    pub(crate) fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/data", listener.local_addr().unwrap());
        let server =
            Self { base, manner: Arc::new(Mutex::new(manner)), files: Arc::default(), requests: Arc::default() };
        let (manner, files, requests) = (server.manner.clone(), server.files.clone(), server.requests.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (manner, files, requests) = (manner.clone(), files.clone(), requests.clone());
                thread::spawn(move || {
                    // The client may have disconnected.
                    let _ = serve(stream, &manner, &files, &requests);
                });
            }
        });
        server
    }

    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        self.files.lock().unwrap().insert(format!("/data/{name}"), content.to_vec());
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub(crate) fn ranges(&self) -> Vec<Option<String>> {
        self.requests.lock().unwrap().iter().map(|(_, range)| range.clone()).collect()
    }
}

type Requests = Mutex<Vec<(String, Option<String>)>>;
type Files = Mutex<BTreeMap<String, Vec<u8>>>;

fn serve(stream: TcpStream, manner: &Mutex<Manner>, files: &Files, requests: &Requests) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut range = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("range")
        {
            range = Some(value.trim().to_string());
        }
    }
    requests.lock().unwrap().push((first.clone(), range.clone()));
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    let now = {
        let mut manner = manner.lock().unwrap();
        let now = manner.clone();
        manner.busy = manner.busy.saturating_sub(1);
        now
    };
    let mut out = stream;
    let empty =
        |status: &str, more: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n{more}\r\n");
    if now.busy > 0 {
        return out.write_all(empty("503 Busy", "").as_bytes());
    }
    if let Some(status) = now.status {
        return out.write_all(empty(&format!("{status} No"), "").as_bytes());
    }
    if now.redirect && !path.starts_with("/data/there/") {
        let to = path.replace("/data/", "/data/there/");
        return out.write_all(empty("302 Found", &format!("Location: {to}\r\n")).as_bytes());
    }
    let content = files.lock().unwrap().get(&path.replace("/there/", "/")).cloned();
    let Some(content) = content else {
        return out.write_all(empty("404 Not Found", "").as_bytes());
    };
    let from = range.filter(|_| !now.ignore_range);
    let from: Option<usize> = from.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    if from.is_some_and(|from| from >= content.len()) {
        let more = format!("Content-Range: bytes */{}\r\n", content.len() as i64 + now.lie);
        return out.write_all(empty("416 Range Not Satisfiable", &more).as_bytes());
    }
    let body = &content[from.unwrap_or(0)..];
    let mut head = match from {
        Some(from) => {
            let (last, all) = (content.len() - 1, content.len() as i64 + now.lie);
            format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{last}/{all}\r\n")
        }
        None => "HTTP/1.1 200 OK\r\n".to_string(),
    };
    if !now.no_length {
        head += &format!("Content-Length: {}\r\n", body.len() as i64 + now.lie);
    }
    out.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    let end = now.cut.or(now.stall).unwrap_or(body.len()).min(body.len());
    for block in body[..end].chunks(1000) {
        out.write_all(block)?;
        out.flush()?;
        if now.slow > Duration::ZERO {
            thread::sleep(now.slow);
        }
    }
    if now.stall.is_some() {
        thread::sleep(Duration::from_secs(20));
    }
    Ok(())
}
