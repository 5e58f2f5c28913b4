//! The frame around every message: whose agreement it belongs to.

use fedelity_fl::{FlError, Rejection, wire::WireError};

const MAGIC: [u8; 4] = *b"FDLE";
/// Magic and digest.
const FRAME: usize = 4 + 32;
/// No round, where one may be given.
const NONE: u64 = u64::MAX;

/// Why a message cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    #[error(
        "not a message between a Fedelity server and its clients: the sender must send what its half made, whole and unchanged"
    )]
    Foreign,
    #[error(
        "the message belongs to another agreement: server and client must run the same version of Fedelity with the same \
         configuration; restart the client with the agreement of this server"
    )]
    Agreement,
    #[error(
        "this was saved under another agreement: go on with the version of Fedelity and the configuration that it had"
    )]
    Saved,
    #[error(
        "this is not what a server or client saved, whole and unchanged: take a copy of it, or begin a new federation"
    )]
    Damaged,
    /// The study of a server is none of a federation.
    #[error("{0}")]
    Study(String),
    #[error("{0}: {remedy}", remedy = repair(.0))]
    Wire(#[from] WireError),
    /// The upload names another client than the one that sent it.
    #[error("client {sender} sent an upload of client {named}: two nodes must not have one number; give one another")]
    Sender { sender: usize, named: usize },
    /// The server's message is for another client.
    #[error(
        "client {client} was given the server's message for {}: whatever carries messages must give each client its own",
        match named { Some(named) => format!("client {named}"), None => "nobody".to_string() }
    )]
    Addressee { client: usize, named: Option<usize> },
    /// A client is given what another remembers.
    #[error("this is the memory of client {found}, not of client {client}: give each client its own")]
    Stranger { client: usize, found: usize },
    /// The server does not use it.
    #[error("the upload is refused: {0}: {remedy}", remedy = remedy(.0))]
    Refused(#[from] Rejection),
    /// The site does not let it leave.
    #[error("the upload has {bytes} bytes, and the site's policy allows {most} (policy.most-bytes-up)")]
    Bytes { bytes: u64, most: u64 },
    /// The client has lost what it remembers.
    #[error(
        "the server has accepted an upload of client {client} in round {expected}, but the client remembers {}: restore its \
         memory, or begin a new federation", match found { Some(round) => format!("round {round}"), None => "nothing".to_string() }
    )]
    Memory { client: usize, expected: usize, found: Option<usize> },
    /// The client cannot use the server's message.
    #[error("{0}: the server must send what its half made, unchanged")]
    Broadcast(FlError),
    #[error(transparent)]
    Round(FlError),
}

impl From<FlError> for ExchangeError {
    fn from(error: FlError) -> Self {
        if matches!(error, FlError::Broadcast { .. }) { Self::Broadcast(error) } else { Self::Round(error) }
    }
}

impl ExchangeError {
    /// The same about something that was saved, instead of a message.
    pub(super) fn of_saved(self) -> Self {
        match self {
            Self::Agreement => Self::Saved,
            Self::Foreign | Self::Wire(_) => Self::Damaged,
            other => other,
        }
    }
}

/// Which side must change what, so that a message can be read.
fn repair(error: &WireError) -> &'static str {
    match error {
        WireError::Version { .. } => "install the same version of Fedelity on both sides",
        WireError::Kind { .. } => "the sender must send that instead",
        _ => "the sender must send it again, whole and unchanged",
    }
}

/// Which side must change what, so that an upload is used.
fn remedy(rejection: &Rejection) -> &'static str {
    match rejection {
        Rejection::Stranger { .. } => "the client must wait until the server sends it a message",
        Rejection::Twice { .. } => "the first one counts, and the client must not send another",
        Rejection::Round { .. } => "it is too late for it, and the client must answer the server's newest message",
        Rejection::NotFinite { .. } | Rejection::Variance { .. } | Rejection::Enormous { .. } => {
            "look for broken samples at the client, or lower the learning rate at the server"
        }
        _ => "the client must send what its half made of the server's message, unchanged",
    }
}

/// A message of one agreement.
pub(super) fn seal(digest: &[u8; 32], numbers: &[Option<usize>], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME + 8 * numbers.len() + body.len());
    out.extend(MAGIC);
    out.extend(digest);
    for number in numbers {
        out.extend(number.map_or(NONE, |number| number as u64).to_le_bytes());
    }
    out.extend(body);
    out
}

/// The numbers and the body of a message, if it belongs to the agreement.
pub(super) fn unseal<'a, const N: usize>(
    digest: &[u8; 32],
    bytes: &'a [u8],
) -> Result<([Option<usize>; N], &'a [u8]), ExchangeError> {
    let (frame, rest) = bytes.split_at_checked(FRAME).ok_or(ExchangeError::Foreign)?;
    if frame[..4] != MAGIC {
        return Err(ExchangeError::Foreign);
    }
    if frame[4..] != digest[..] {
        return Err(ExchangeError::Agreement);
    }
    let (numbers, body) = rest.split_at_checked(8 * N).ok_or(ExchangeError::Foreign)?;
    let mut found = [None; N];
    for (number, bytes) in found.iter_mut().zip(numbers.as_chunks::<8>().0) {
        let value = u64::from_le_bytes(*bytes);
        *number = (value != NONE).then(|| usize::try_from(value).unwrap_or(usize::MAX));
    }
    Ok((found, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_unsealed_by_the_same_agreement_only() {
        let (ours, theirs) = ([1; 32], [2; 32]);
        let sealed = seal(&ours, &[Some(7), None], b"body");
        assert_eq!(unseal::<2>(&ours, &sealed).unwrap(), ([Some(7), None], &b"body"[..]));
        assert!(matches!(unseal::<2>(&theirs, &sealed), Err(ExchangeError::Agreement)));
        for cut in [0, 3, 20, 36, 50] {
            assert!(matches!(unseal::<2>(&ours, &sealed[..cut]), Err(ExchangeError::Foreign)), "{cut}");
        }
        assert!(matches!(
            unseal::<0>(&ours, b"GET / HTTP/1.1\r\nHost: a.long.enough.name\r\n\r\n"),
            Err(ExchangeError::Foreign)
        ));
    }
}
