//! The handshake with the primary, as begun by a replica of Redis 7.0.

use super::link::Link;
use crate::data::primary::PrimaryPosition;
use crate::state::Shared;
use std::sync::atomic::Ordering::Relaxed;

/// The data that the primary is about to send.
#[derive(Debug, PartialEq, Eq)]
pub enum SyncReply {
    /// All values as of an offset, then the commands behind the offset.
    Full {
        /// The id of the history.
        id: String,
        /// The offset.
        offset: u64,
    },
    /// The commands behind the requested offset, of the same or another history.
    Continue {
        /// The new id of the history, if there is one.
        id: Option<String>,
    },
}

/// Offsets are lower: an addition does not overflow.
const LATEST_OFFSET: u64 = i64::MAX as u64;

/// Whether a text may be the id of a history.
fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Reads the reply to PSYNC.
fn read_sync(line: &str) -> Result<SyncReply, String> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["+FULLRESYNC", id, offset] if is_id(id) => match offset.parse::<u64>() {
            Ok(offset) if offset < LATEST_OFFSET => {
                Ok(SyncReply::Full { id: id.to_string(), offset })
            }
            _ => Err(format!("the primary has replied {line:?} to PSYNC")),
        },
        ["+CONTINUE"] => Ok(SyncReply::Continue { id: None }),
        ["+CONTINUE", id] if is_id(id) => Ok(SyncReply::Continue { id: Some(id.to_string()) }),
        _ if line.starts_with("-NOAUTH") => {
            Err(format!("the primary wants a password (masterauth): {line}"))
        }
        _ => Err(format!("the primary has replied {line:?} to PSYNC")),
    }
}

/// Begins a connection.
///
/// # Errors
/// The primary refuses, in a sentence.
pub fn shake(
    shared: &Shared,
    link: &mut Link<'_>,
    position: &PrimaryPosition,
) -> Result<SyncReply, String> {
    let pong = link.ask(&["PING"])?;
    // A password may be missing.
    let may_go_on = ["+", "-NOAUTH", "-NOPERM", "-ERR operation not permitted"];
    if !may_go_on.iter().any(|begin| pong.starts_with(begin)) {
        return Err(format!("the primary has replied {pong:?} to PING"));
    }
    let credentials = shared.settings.primary_credentials();
    if !credentials.is_empty() {
        let words: Vec<&str> =
            ["AUTH"].into_iter().chain(credentials.iter().map(String::as_str)).collect();
        let reply = link.ask(&words)?;
        if reply != "+OK" {
            return Err(format!("the primary refuses masteruser and masterauth: {reply}"));
        }
    }
    let own_port = u64::from(shared.settings.announced_port().unwrap_or_default());
    let port = if own_port > 0 { own_port } else { shared.wiring.port.load(Relaxed) };
    // Servers without these options are accepted as well.
    let _reply = link.ask(&["REPLCONF", "listening-port", &port.to_string()])?;
    let _reply = link.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"])?;
    let offset = (position.offset + 1).to_string();
    let (id, offset) = match position.id.is_empty() {
        true => ("?", "-1"),
        false => (&position.id[..], &offset[..]),
    };
    read_sync(&link.ask(&["PSYNC", id, offset])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_to_psync_are_read() {
        let id = "0123456789abcdef0123456789abcdef01234567".to_string();
        let read = |text: &str| read_sync(&text.replace("ID", &id));
        let full = SyncReply::Full { id: id.clone(), offset: 7 };
        assert_eq!(read("+FULLRESYNC ID 7"), Ok(full));
        assert_eq!(read("+CONTINUE"), Ok(SyncReply::Continue { id: None }));
        assert_eq!(read("+CONTINUE ID"), Ok(SyncReply::Continue { id: Some(id.clone()) }));
        for bad in ["+FULLRESYNC ID x", "+FULLRESYNC a 7", "+CONTINUE a", "-ERR no", "+OK", ":1"] {
            assert!(read(bad).unwrap_err().contains("to PSYNC"), "{bad}");
        }
        assert!(read("-NOAUTH x").unwrap_err().contains("masterauth"));
    }
}
