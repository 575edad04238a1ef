//! Sealing a lane: the end of all earlier incarnations.
//!
//! A seal is appended without a condition: a seal under a condition would lose the race against a
//! writer that appends all the time. The sealer then reads the lane up to its own seal: a seal of a
//! later incarnation before means that the sealer is fenced.

use crate::hex::hex;
use crate::lane_tail::{LaneTail, Tailed};
pub use crate::message::Sealed;
use crate::message::{Message, MessageBody};
use crate::service::{LogService, Patience, Place, Reply, Request};
use hyades_platform::broken;
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

/// Appends the seal of a writer to the lane of a stream, among `lanes` lanes. Blocks until the
/// service says that the seal is stored. Returns the message and its place.
///
/// # Errors
/// The service holds something else, or the patience is at an end.
fn append_seal(
    service: &dyn LogService,
    (stream, lanes): (usize, usize),
    (writer, patience): (&Writer, &Patience<'_>),
) -> Result<(Arc<Vec<u8>>, Place), RemoteEnded> {
    let seal = Arc::new(seal_message(writer, stream, lanes).encode().0);
    loop {
        patience.check()?;
        let message = seal.clone();
        match service.ask(Request::Append { lane: stream, after: None, message }) {
            Reply::Appended(place) => {
                patience.heard();
                return Ok((seal, place));
            }
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            // A seal that is appended twice does no harm.
            Reply::Silence => {}
            _ => patience.heard(),
        }
    }
}

/// Seals a lane whose incarnations before were read by `tail`, and reads the lane up to the own
/// seal. What the ended incarnation has is given to `take`, in order.
///
/// # Errors
/// [`RemoteEnded::Fenced`]: a later incarnation has sealed the lane before. An error of `take`; or
/// the patience is at an end.
pub fn seal_lane<E: From<RemoteEnded>>(
    service: &dyn LogService,
    lanes: (usize, usize),
    (writer, patience): (&Writer, &Patience<'_>),
    tail: &mut LaneTail,
    take: impl FnMut(Tailed) -> Result<(), E>,
) -> Result<Sealed, E> {
    let (message, place) = append_seal(service, lanes, (writer, patience))?;
    if broken!(SealUnread) {
        let chain = Message::decode(&message).expect("it was encoded here").1;
        return Ok(Sealed { place, chain });
    }
    // Otherwise the seal would be waited for, for ever.
    if place <= tail.behind() {
        let (lane, place, read) = (lanes.0, place.0, tail.behind().0);
        let what = format!(
            "lane {lane} has lost messages: it was read up to place {read}, and is sealed at place \
             {place}"
        );
        return Err(RemoteEnded::Different(what).into());
    }
    read_to_seal(service, (writer, patience), tail, take)
}

/// Reads a lane up to the seal of a writer, which is in the lane. What the incarnation of `tail`
/// has is given to `take`, in order.
///
/// # Errors
/// As [`seal_lane`].
pub(crate) fn read_to_seal<E: From<RemoteEnded>>(
    service: &dyn LogService,
    (writer, patience): (&Writer, &Patience<'_>),
    tail: &mut LaneTail,
    mut take: impl FnMut(Tailed) -> Result<(), E>,
) -> Result<Sealed, E> {
    loop {
        patience.check()?;
        let found = tail.read(service)?;
        if !found.is_empty() {
            patience.heard();
        }
        found.into_iter().try_for_each(&mut take)?;
        match tail.sealed() {
            Some((by, _)) if by > writer.incarnation => {
                return Err(RemoteEnded::Fenced { by }.into());
            }
            Some((own, sealed)) if own == writer.incarnation => return Ok(sealed),
            _ => {}
        }
    }
}

/// Seals the lane of a stream that no incarnation has written, for an incarnation that begins at
/// `start`. Blocks until the service answers.
///
/// # Errors
/// A later incarnation has sealed the lane, or the lane holds the log of a database; or the
/// patience is at an end.
pub fn seal_new_lane(
    service: &dyn LogService,
    lanes: (usize, usize),
    (writer, patience): (&Writer, &Patience<'_>),
    start: Lsn,
) -> Result<Sealed, RemoteEnded> {
    let ((seal, _), stream) = (append_seal(service, lanes, (writer, patience))?, lanes.0);
    let mut behind = Place::START;
    loop {
        patience.check()?;
        let messages = match service.ask(Request::Read { lane: stream, behind }) {
            Reply::Messages(messages) => messages,
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            _ => continue,
        };
        if !messages.is_empty() {
            patience.heard();
        }
        for (place, bytes) in messages {
            if bytes == seal {
                let chain = Message::decode(&bytes).expect("it was encoded here").1;
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
