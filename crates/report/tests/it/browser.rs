//! A headless Chromium, driven over its DevTools socket.

#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// One page in its own browser.
pub(crate) struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    next: u64,
    width: u32,
    /// Errors and warnings of the page.
    pub(crate) complaints: Vec<String>,
    /// Every requested address.
    pub(crate) requests: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; prints a note and returns `None` if there is none.
    pub(crate) fn start() -> Option<Self> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let Some(name) = names.iter().find(|name| {
            Command::new(name)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|s| s.success())
        }) else {
            assert!(
                std::env::var_os("FEDELITY_BROWSER").is_none(),
                "FEDELITY_BROWSER is set, and there is no Chromium"
            );
            eprintln!("skipped: the page is tested in Chromium, and there is none");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new(name)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--hide-scrollbars"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("Chromium ended before it listened").unwrap();
            if let Some(address) = line.strip_prefix("DevTools listening on ") {
                break address.trim().to_string();
            }
        };
        // Nothing else reads its output, and it must not block on it.
        std::thread::spawn(move || lines.for_each(drop));
        let (socket, _) = tungstenite::connect(&address).unwrap();
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        }
        let (complaints, requests) = (Vec::new(), Vec::new());
        let mut new = Self {
            process,
            socket,
            session: String::new(),
            next: 0,
            width: 0,
            complaints,
            requests,
            _profile: profile,
        };
        new.tab();
        Some(new)
    }

    /// Switches to a new tab; returns its name, for [`Browser::turn_to`].
    pub(crate) fn tab(&mut self) -> String {
        self.session.clear();
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = self.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        self.session = attached["sessionId"].as_str().unwrap().to_string();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.session.clone()
    }

    /// Switches to an open tab.
    pub(crate) fn turn_to(&mut self, tab: &str) {
        self.session = tab.to_string();
    }

    /// Sends a command and waits for its response; handles events on the way.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn read(&mut self) -> Value {
        loop {
            let message = match self.socket.read() {
                // A test that was paused continues.
                Err(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                found => found.unwrap(),
            };
            let Message::Text(text) = message else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            let about = &message["params"];
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.complaints.push(about["exceptionDetails"].to_string()),
                Some("Runtime.consoleAPICalled")
                    if ["error", "warning"].contains(&about["type"].as_str().unwrap_or("")) =>
                {
                    self.complaints.push(about["args"].to_string());
                }
                Some("Log.entryAdded") => self.complaints.push(about["entry"].to_string()),
                Some("Network.requestWillBeSent") => {
                    self.requests.push(about["request"]["url"].as_str().unwrap_or("").to_string());
                }
                _ => {}
            }
            return message;
        }
    }

    /// Opens an address and waits until the page is loaded.
    pub(crate) fn open(&mut self, address: &str) {
        // The old page must not be mistaken for the new one.
        self.value("window.old = true");
        self.call("Page.navigate", json!({ "url": address }));
        let width = self.width;
        self.until(&format!(
            "document.readyState === 'complete' && !window.old && !!window.fedelity && innerWidth === {width}"
        ));
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != true {
            assert!(start.elapsed() < Duration::from_secs(60), "never true: {expression}; {:?}", self.complaints);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let found = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    /// Sets the width of the window, and whether it is dark.
    pub(crate) fn look(&mut self, width: u32, dark: bool) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.width = width;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// The page on paper.
    pub(crate) fn print(&mut self, path: &Path) {
        let found =
            self.call("Page.printToPDF", json!({ "printBackground": false, "paperWidth": 8.27, "paperHeight": 11.69 }));
        std::fs::write(path, BASE64_STANDARD.decode(found["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// A picture of the whole page.
    pub(crate) fn picture(&mut self, path: &Path) {
        // The window becomes as high as the page: capturing beyond the window would change the size of the figures.
        let height = self.value("document.documentElement.scrollHeight").as_u64().unwrap();
        let size = json!({ "width": self.width, "height": height, "deviceScaleFactor": 1, "mobile": self.width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.value("fedelity.drawAll()");
        std::thread::sleep(Duration::from_millis(300));
        let found = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        std::fs::write(path, BASE64_STANDARD.decode(found["data"].as_str().unwrap()).unwrap()).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
