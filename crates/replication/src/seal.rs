//! Sealing a lane: the end of all earlier incarnations.
//!
//! A seal is appended without a condition: a seal under a condition would lose the race against a
//! writer that appends all the time. The sealer then reads the lane up to its own seal: a seal of a
//! later incarnation before means that the sealer is fenced.

use crate::hex::hex;
use crate::message::{Message, MessageBody};
use crate::service::{LogService, Place, Reply, Request};
use hyades_wal::{Lsn, RemoteEnded};
use std::sync::Arc;

/// The writer of the lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The database's uuid.
    pub database: [u8; 16],
    /// The incarnation.
    pub incarnation: u32,
    /// The name of the node.
    pub node: String,
}

/// A lane that an incarnation has sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The place of the seal.
    pub place: Place,
    /// The chain of the seal, on which the chain of the incarnation's messages begins.
    pub chain: u32,
}

/// The seal of a writer for the lane of a stream, among `lanes` lanes.
pub fn seal_message(writer: &Writer, stream: usize, lanes: usize) -> Message {
    Message {
        database: writer.database,
        stream: stream as u32,
        incarnation: writer.incarnation,
        index: 0,
        start: 0,
        stored: vec![0; lanes],
        previous: 0,
        body: MessageBody::Seal(writer.node.clone()),
    }
}

/// Seals the lane of a stream that no incarnation has written, for an incarnation that begins at
/// `start`. Blocks until the service answers.
///
/// # Errors
/// A later incarnation has sealed the lane, or the lane holds the log of a database.
pub fn seal_new_lane(
    service: &dyn LogService,
    (stream, lanes): (usize, usize),
    writer: &Writer,
    start: Lsn,
) -> Result<Sealed, RemoteEnded> {
    let (seal, chain) = seal_message(writer, stream, lanes).encode();
    let seal = Arc::new(seal);
    loop {
        let message = seal.clone();
        let request = service.begin(Request::Append { lane: stream, after: None, message });
        match service.answer(request, true) {
            Some(Reply::Appended(_)) => break,
            Some(Reply::Gone(what)) => return Err(RemoteEnded::Different(what)),
            // A seal that is appended twice does no harm.
            _ => {}
        }
    }
    let mut behind = Place::START;
    loop {
        let request = service.begin(Request::Read { lane: stream, behind });
        let messages = match service.answer(request, true) {
            Some(Reply::Messages(messages)) => messages,
            Some(Reply::Gone(what)) => return Err(RemoteEnded::Different(what)),
            _ => continue,
        };
        for (place, bytes) in messages {
            if bytes == seal {
                return Ok(Sealed { place, chain });
            }
            refuse(stream, place, &bytes, writer, start)?;
            behind = place;
        }
    }
}

/// Refuses a lane by a message before the seal, unless the message is an earlier seal of the same
/// database.
fn refuse(
    stream: usize,
    place: Place,
    bytes: &[u8],
    writer: &Writer,
    start: Lsn,
) -> Result<(), RemoteEnded> {
    let at = format!("lane {stream}, place {}", place.0);
    let (message, _) = Message::decode(bytes)
        .map_err(|malformed| RemoteEnded::Different(format!("{at}: {malformed}")))?;
    if message.incarnation > writer.incarnation {
        return Err(RemoteEnded::Fenced { by: message.incarnation });
    }
    let found = match message.body {
        _ if message.database != writer.database => {
            format!("a log of database {}", hex(&message.database))
        }
        MessageBody::Data(_) => {
            format!("frames of incarnation {} from {} on", message.incarnation, message.start)
        }
        MessageBody::Seal(_) => return Ok(()),
    };
    Err(RemoteEnded::Different(format!(
        "{at} holds {found}, where database {} would begin at position {start}: name lanes that \
         are not in use",
        hex(&writer.database)
    )))
}
