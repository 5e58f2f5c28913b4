//! Downloads over HTTPS, from a server with a generated certificate.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use assert_cmd::Command;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Answers every request with the same few bytes. Returns its address and its certificate.
fn serve() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("localhost:0").unwrap());
    let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(connection, socket));
            let mut line = String::new();
            // A client that does not trust the certificate disconnects.
            while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.trim_end() != "" {
                line.clear();
            }
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            let _ = stream.get_mut().write_all(answer.as_bytes());
            stream.get_mut().conn.send_close_notify();
            let _ = stream.get_mut().flush();
        }
    });
    (address, made.cert.pem())
}

fn fetch(dir: &Path, mirror: &str, certificates: &Path) -> (i32, String) {
    let output = Command::cargo_bin("fedelity")
        .unwrap()
        .args(["data", "fetch", "mnist", "--mirror", mirror, "--data-dir"])
        .arg(dir.join("data"))
        .env("SSL_CERT_FILE", certificates)
        .env("NO_PROXY", "localhost")
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_server_is_trusted_by_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ((address, own), (_, other)) = (serve(), serve());
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };

    // The bytes are not MNIST, but they arrive.
    let (code, told) = fetch(dir.path(), &address, &file("own.pem", &own));
    assert!(code == 2 && told.contains("train-images-idx3-ubyte.gz: expected SHA-256"), "{told}");

    let (code, told) = fetch(dir.path(), &address, &file("other.pem", &other));
    assert!(code == 2 && told.contains("invalid peer certificate"), "{told}");

    let (code, told) = fetch(dir.path(), &address, &file("none.pem", "no certificate"));
    assert!(code == 2 && told.contains("none.pem: the file contains no PEM certificate"), "{told}");
    let (code, told) = fetch(dir.path(), &address, Path::new("nowhere.pem"));
    assert!(code == 2 && told.contains("SSL_CERT_FILE=nowhere.pem: No such file"), "{told}");
}
