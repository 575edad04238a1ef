//! Values of keys, as JSON with the number of their format.

use crate::service::{LogService, Patience, Reply, Request, Revision, Versioned};
use hyades_wal::RemoteEnded;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The format of the keys.
pub(crate) const FORMAT: u32 = 3;

/// The service holds something else than was stored there.
pub(crate) fn different(what: impl Into<String>) -> RemoteEnded {
    RemoteEnded::Different(what.into())
}

/// How long a key is asked for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Reads a key, and waits for the service. `None`: the key has no value.
///
/// # Errors
/// [`RemoteEnded::Silent`]: the service does not answer; or it holds something else.
pub(crate) fn get(service: &dyn LogService, key: &str) -> Result<Option<Versioned>, RemoteEnded> {
    let patience = Patience::new(PATIENCE);
    loop {
        match service.ask(Request::Get { key: key.to_owned() }) {
            Reply::Value(value) => return Ok(value),
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            _ => patience.check()?,
        }
    }
}

/// The value as the bytes of a key.
pub(crate) fn encode(value: &impl Serialize) -> Arc<Vec<u8>> {
    Arc::new(serde_json::to_vec(value).expect("the values of keys are plain"))
}

/// The request that stores a value, if the key's newest value has this revision.
pub(crate) fn put(key: &str, after: Revision, value: Arc<Vec<u8>>) -> Request {
    Request::Put { key: key.to_owned(), after, value }
}

/// The value in the bytes of a key.
///
/// # Errors
/// The bytes are no value of this format.
pub(crate) fn decode<T: for<'d> Deserialize<'d>>(
    key: &str,
    value: &[u8],
) -> Result<T, RemoteEnded> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let wrong = |why: String| different(format!("key {key:?} of the log service: {why}"));
    let Format { format } =
        serde_json::from_slice(value).map_err(|error| wrong(error.to_string()))?;
    if format != FORMAT {
        return Err(wrong(format!(
            "its format is {format}, and this program knows format {FORMAT}: use the program that \
             wrote it"
        )));
    }
    serde_json::from_slice(value).map_err(|error| wrong(error.to_string()))
}
