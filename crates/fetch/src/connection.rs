//! Connections to servers.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::FetchError;

/// The environment variable for a file of trusted certificates, as for OpenSSL.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// An agent that gives up on a silent server. It uses the proxy named by `HTTPS_PROXY` or `HTTP_PROXY`.
pub(crate) fn agent(stall: Duration) -> Result<Agent, FetchError> {
    let mut tls = TlsConfig::builder();
    if let Some(path) = env::var_os(CERTIFICATES).filter(|path| !path.is_empty()).map(PathBuf::from) {
        let text = fs::read(&path)
            .map_err(|source| FetchError::Certificates { reason: source.to_string(), path: path.clone() })?;
        let found: Vec<_> = parse_pem(&text)
            .filter_map(|item| if let Ok(PemItem::Certificate(one)) = item { Some(one) } else { None })
            .collect();
        if found.is_empty() {
            return Err(FetchError::Certificates { reason: "the file contains no PEM certificate".to_string(), path });
        }
        tls = tls.root_certs(RootCerts::new_with_certs(&found));
    }
    Ok(Agent::config_builder()
        .tls_config(tls.build())
        .timeout_connect(Some(stall))
        .timeout_recv_response(Some(stall))
        .http_status_as_error(false)
        .user_agent(concat!("fedelity/", env!("CARGO_PKG_VERSION")))
        .build()
        .into())
}
