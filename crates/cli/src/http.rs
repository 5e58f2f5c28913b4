//! A small HTTP server for programs on this computer.
//!
//! It serves pages beside a training run, which nothing that arrives here may harm. One thread looks after a fixed
//! number of connections and never waits for any of them. A connection has one request, without a body, of a limited
//! length, and a limited time; one that rests makes room for a new one. So neither memory nor descriptors nor threads
//! grow with what clients do, and a client that does nothing keeps nobody out.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections at a time. A browser uses up to six.
const CONNECTIONS: usize = 16;
/// Bytes of a request line with its headers.
const LONGEST_HEAD: usize = 8 << 10;
/// How long a client may take to send its request.
const TO_ASK: Duration = Duration::from_secs(5);
/// How long a client may take to receive the response.
const TO_READ: Duration = Duration::from_secs(20);
/// How long, and how many bytes, a client may go on sending after its response. If the connection were closed at once,
/// the client's system might discard the response.
const TO_LEAVE: Duration = Duration::from_secs(1);
const LEFTOVER: usize = 64 << 10;
/// A connection that has rested for this long makes room for another.
const REST: Duration = Duration::from_millis(100);
/// The pause when nothing happens.
const PAUSE: Duration = Duration::from_millis(20);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) path: &'a str,
    /// What follows the question mark.
    pub(crate) query: &'a str,
}

#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// The media type.
    pub(crate) kind: &'static str,
    pub(crate) body: Arc<str>,
}

impl HttpResponse {
    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }

    fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            204 => "No Content",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            413 => "Content Too Large",
            431 => "Request Header Fields Too Large",
            _ => "Error",
        };
        let length = match self.status {
            204 => String::new(),
            _ => format!("Content-Length: {}\r\n", self.body.len()),
        };
        let allow = if self.status == 405 { "Allow: GET\r\n" } else { "" };
        format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\n{length}{allow}Connection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\r\n",
            self.status, self.kind
        )
    }
}

/// Listens on the loopback address only.
pub(crate) struct HttpServer {
    listener: TcpListener,
    port: u16,
    connections: Vec<Connection>,
}

impl HttpServer {
    /// On a free port.
    pub(crate) fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port, connections: Vec::new() })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Does what can be done without waiting, or pauses a little if that is nothing.
    pub(crate) fn turn(&mut self, answer: &mut dyn FnMut(HttpRequest<'_>) -> HttpResponse) {
        let mut moved = false;
        while self.has_room() {
            // An error may be that of a client that has left, or there are no descriptors for now.
            let Ok((stream, _)) = self.listener.accept() else { break };
            moved = true;
            if stream.set_nonblocking(true).is_ok() {
                if self.connections.len() == CONNECTIONS {
                    self.connections.swap_remove(self.idlest());
                }
                self.connections.push(Connection::new(stream));
            }
        }
        let port = self.port;
        self.connections.retain_mut(|connection| match connection.go_on(port, answer) {
            Ok(went_on) => {
                if went_on {
                    (moved, connection.moved) = (true, Instant::now());
                }
                !connection.is_over()
            }
            Err(_) => false,
        });
        if !moved {
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether another connection can be accepted. Otherwise clients wait in the system's queue.
    fn has_room(&self) -> bool {
        self.connections.len() < CONNECTIONS || self.connections[self.idlest()].moved.elapsed() >= REST
    }

    /// The connection on which nothing has happened for the longest time.
    fn idlest(&self) -> usize {
        let moved = |(_, connection): &(usize, &Connection)| connection.moved;
        self.connections.iter().enumerate().min_by_key(moved).map_or(0, |(at, _)| at)
    }
}

struct Connection {
    stream: TcpStream,
    state: Stage,
    /// When its time for this stage is over.
    until: Instant,
    /// When anything happened last.
    moved: Instant,
}

enum Stage {
    Asking { head: Vec<u8> },
    Answering { head: Vec<u8>, body: Arc<str>, sent: usize },
    Leaving { received: usize },
    Left,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let now = Instant::now();
        Self { stream, state: Stage::Asking { head: Vec::new() }, until: now + TO_ASK, moved: now }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, Stage::Left) || Instant::now() >= self.until
    }

    /// One step; whether anything happened.
    fn go_on(&mut self, port: u16, answer: &mut dyn FnMut(HttpRequest<'_>) -> HttpResponse) -> io::Result<bool> {
        let mut buffer = [0; 4 << 10];
        match &mut self.state {
            Stage::Asking { head } => {
                let Some(n) = ready(self.stream.read(&mut buffer))? else { return Ok(false) };
                head.extend_from_slice(&buffer[..n]);
                let end = end_of_head(head);
                let response = match end {
                    Some(end) if end <= LONGEST_HEAD => respond(&head[..end], port, answer),
                    None if n > 0 && head.len() <= LONGEST_HEAD => return Ok(true),
                    // The client has left in the middle of its request.
                    None if n == 0 => {
                        self.state = Stage::Left;
                        return Ok(true);
                    }
                    _ => HttpResponse::text(431, "the request is too long\n"),
                };
                let (head, body) = (response.head().into_bytes(), response.body);
                self.enter(Stage::Answering { head, body, sent: 0 }, TO_READ);
            }
            Stage::Answering { head, body, sent } => {
                let rest = if *sent < head.len() { &head[*sent..] } else { &body.as_bytes()[*sent - head.len()..] };
                if !rest.is_empty() {
                    let Some(n) = ready(self.stream.write(rest))? else { return Ok(false) };
                    if n == 0 {
                        return Err(ErrorKind::WriteZero.into());
                    }
                    *sent += n;
                    return Ok(true);
                }
                self.stream.shutdown(Shutdown::Write)?;
                self.enter(Stage::Leaving { received: 0 }, TO_LEAVE);
            }
            Stage::Leaving { received } => {
                let Some(n) = ready(self.stream.read(&mut buffer))? else { return Ok(false) };
                *received += n;
                if n == 0 || *received > LEFTOVER {
                    self.state = Stage::Left;
                }
            }
            Stage::Left => {}
        }
        Ok(true)
    }

    fn enter(&mut self, state: Stage, time: Duration) {
        (self.state, self.until) = (state, Instant::now() + time);
    }
}

/// The number of bytes, or `None` if the call would have to wait.
fn ready(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(n) => Ok(Some(n)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where the empty line after the headers begins.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|part| part == b"\r\n\r\n")
}

/// The response to a request line with headers. Whatever is not a plain GET from a page of this server is refused.
fn respond(head: &[u8], port: u16, answer: &mut dyn FnMut(HttpRequest<'_>) -> HttpResponse) -> HttpResponse {
    let malformed = || HttpResponse::text(400, "not an HTTP request\n");
    let Ok(head) = std::str::from_utf8(head) else { return malformed() };
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or("").split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else { return malformed() };
    let mut headers = Vec::new();
    for line in lines {
        // A space before the colon, or at the start of a line, is how requests are smuggled.
        match line.split_once(':') {
            Some((name, value)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                headers.push((name.to_ascii_lowercase(), value.trim()));
            }
            _ => return malformed(),
        }
    }
    let named = |wanted: &'static str| headers.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| *value);
    // A page on another site must not read this one, neither through a host name that resolves to this computer (DNS
    // rebinding) nor by a request of its own.
    let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let own = |name: &str| hosts.iter().any(|host| host == name);
    let from_here = |origin: &str| origin.strip_prefix("http://").is_some_and(own);
    let is_local = named("host").count() == 1 && named("host").all(own) && named("origin").all(from_here);
    if !is_local {
        return HttpResponse::text(403, "this page is only for this computer\n");
    }
    if method != "GET" {
        return HttpResponse::text(405, "only GET\n");
    }
    if named("content-length").any(|length| length != "0") || named("transfer-encoding").next().is_some() {
        return HttpResponse::text(413, "a request has no content\n");
    }
    if !target.starts_with('/') {
        return malformed();
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    answer(HttpRequest { path, query })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> u16 {
        let mut answer = |request: HttpRequest<'_>| HttpResponse::text(200, request.path);
        respond(head.as_bytes(), 7, &mut answer).status
    }

    #[test]
    fn only_plain_requests_from_this_computer_are_answered() {
        for (status_wanted, head) in [
            (200, "GET / HTTP/1.1\r\nHost: 127.0.0.1:7"),
            (200, "GET /a?b HTTP/1.0\r\nhOST:localhost:7\r\nContent-Length: 0"),
            (200, "GET / HTTP/1.1\r\nHost: localhost:7\r\nOrigin: http://127.0.0.1:7"),
            (403, "GET / HTTP/1.1"),
            (403, "GET / HTTP/1.1\r\nHost: 127.0.0.1"),
            (403, "GET / HTTP/1.1\r\nHost: 127.0.0.1:8"),
            (403, "GET / HTTP/1.1\r\nHost: evil.example:7"),
            (403, "GET / HTTP/1.1\r\nHost: localhost:7\r\nHost: evil.example"),
            (403, "GET / HTTP/1.1\r\nHost: localhost:7\r\nOrigin: http://evil.example"),
            (403, "GET / HTTP/1.1\r\nHost: localhost:7\r\nOrigin: https://localhost:7"),
            (403, "GET / HTTP/1.1\r\nHost: localhost:7\r\nOrigin: null"),
            (405, "POST / HTTP/1.1\r\nHost: localhost:7"),
            (405, "OPTIONS * HTTP/1.1\r\nHost: localhost:7"),
            (413, "GET / HTTP/1.1\r\nHost: localhost:7\r\nContent-Length: 99999999999999999"),
            (413, "GET / HTTP/1.1\r\nHost: localhost:7\r\nTransfer-Encoding: chunked"),
            (400, "GET http://localhost:7/ HTTP/1.1\r\nHost: localhost:7"),
            (400, "GET / HTTP/2\r\nHost: localhost:7"),
            (400, "GET /"),
            (400, ""),
            (400, "GET / HTTP/1.1\r\nHost : localhost:7"),
            (400, "GET / HTTP/1.1\r\nHost: localhost:7\r\n folded"),
        ] {
            assert_eq!(status(head), status_wanted, "{head:?}");
        }
    }

    /// Bytes of a request changed, left out or repeated: it is answered only if it still names this computer.
    #[test]
    fn no_request_breaks_the_server() {
        let whole =
            b"GET /data?version=3 HTTP/1.1\r\nHost: localhost:7\r\nOrigin: http://localhost:7\r\nContent-Length: 0";
        let (mut state, mut seen) = (1u64, [0u32; 600]);
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        for _ in 0..50_000 {
            let mut head = whole.to_vec();
            for _ in 0..=below(3) {
                let (at, end) = (below(head.len() + 1), below(head.len() + 1));
                match below(4) {
                    0 => head.truncate(at.max(20)),
                    1 => drop(head.drain(at.min(end)..at.max(end))),
                    2 => drop(head.splice(at..at, [b' ', b':', b'\r', b'\n', 0, 0xff][below(6)..].to_vec())),
                    _ => head.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << below(8)),
                }
            }
            let answer = respond(&head, 7, &mut |request| HttpResponse::text(200, request.path));
            let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
            assert!(answer.status != 200 || text.contains("host:") && text.contains("localhost:7"), "{text:?}");
            assert!(answer.head().ends_with("\r\n\r\n"));
            seen[usize::from(answer.status)] += 1;
        }
        let answers: Vec<usize> = (0..600).filter(|&status| seen[status] > 0).collect();
        assert_eq!(answers, [200, 400, 403, 405, 413]);
    }
}
