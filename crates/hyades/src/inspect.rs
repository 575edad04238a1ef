//! Decodes the transaction records of a log for people and tools, without running any transaction.
//!
//! An [`Inspector`] reads the tables and procedures of a log from its manifest; no declaration is
//! needed. A [`StreamInspector`] decodes the frames of one stream of one incarnation, in order.

mod keys;
mod liveness;
mod parts;
mod shares;

pub use self::liveness::Liveness;
pub(crate) use self::liveness::is_live;
pub use self::parts::{InspectedPart, ListedPredecessor};
pub use self::shares::{Share, ShareOf};
pub use crate::calendar::time;
use crate::checkpoint::verify;
use crate::config::{Builder, Concurrency, Protocol};
use crate::error::Error;
use crate::logging::NumberStamp;
use crate::logging::predecessors::Predecessor;
use crate::logging::record::{Change, RecordHead, RecordKind, TableShape, take_change};
use crate::logging::row_frame::RowFrames;
use crate::origin;
use crate::recovery::catalogue::{self, Catalogue};
use crate::recovery::decode::{Decoded, Decoder, RecordShape};
use crate::storage::edits::{Edit, Edits};
use crate::storage::key;
use crate::storage::layout::Layout;
use crate::storage::row::{Assignments, take_varint};
use crate::storage::schema::Schema;
use crate::storage::value::{Type, Value, text};
use hyades_wal::{Checkpoint, Chunk, Frame, Incarnation, Lsn, Manifest, Recovering, StreamId};
use keys::key_text;
use std::borrow::Cow;
use std::collections::HashMap;

/// The tables and procedures of a log.
pub struct Inspector {
    tables: HashMap<u64, KnownTable>,
    procedures: HashMap<u64, (String, u32)>,
    checkpoint: Option<Checkpoint>,
}

struct KnownTable {
    schema: Schema,
    layout: Layout,
    key_bytes: Option<usize>,
}

impl KnownTable {
    fn new(schema: Schema) -> KnownTable {
        let layout = Layout::new(&schema, 0);
        let widths = schema.key.iter().map(|&c| key::width(schema.columns[c as usize].kind, false));
        let key_bytes = if schema.key.is_empty() { Some(8) } else { widths.sum() };
        KnownTable { schema, layout, key_bytes }
    }

    fn name(&self, column: u16) -> &str {
        self.schema.columns.get(column as usize).map_or("?", |column| &column.name)
    }
}

/// Reads and checks every block of the checkpoint, if there is one. Returns the numbers of rows and
/// bytes.
///
/// # Errors
/// [`Error::Checkpoint`]: a file is missing, damaged, or of another format; states the file and the
/// place.
pub fn verify_checkpoint(recovering: &Recovering) -> Result<Option<(u64, u64)>, Error> {
    let checkpoint = recovering.manifest().checkpoint.as_ref();
    checkpoint.map(|checkpoint| verify::verify(recovering, checkpoint)).transpose()
}

/// Reads every block of the checkpoint, if there is one, and skips damaged blocks. Returns the
/// number of rows and bytes in intact blocks, and the errors.
pub fn examine_checkpoint(recovering: &Recovering) -> (u64, u64, Vec<Error>) {
    match &recovering.manifest().checkpoint {
        Some(checkpoint) => verify::examine(recovering, checkpoint),
        None => (0, 0, Vec::new()),
    }
}

/// Returns a builder with the protocol, streams and concurrency control of the last opening, but
/// without tables and procedures. The builder logs data where the protocol takes data.
///
/// # Errors
/// [`Error::Mismatch`]: the manifest was written by another version or crate, or has no
/// incarnation.
pub fn builder_without_tables(manifest: &Manifest) -> Result<Builder, Error> {
    origin::check(manifest)?;
    let unknown = |what: &str| Error::Mismatch(format!("the manifest states no {what} known here"));
    let newest = manifest.newest().ok_or_else(|| unknown("incarnation"))?;
    let of_scheme = |name: &str| {
        Error::Mismatch(format!(
            "the database was last opened with the concurrency control {name:?}, which is none of \
             this engine's: open the directory with `hyades-lab`, which has those of the crate \
             `hyades-schemes`"
        ))
    };
    let control = match newest.settings.get("concurrency") {
        Some(name) => Concurrency::named(name).ok_or_else(|| of_scheme(name))?,
        None => Concurrency::default(),
    };
    let protocol = Protocol::named(&newest.protocol).ok_or_else(|| unknown("protocol"))?;
    let record = if protocol.takes_data() { RecordKind::Data } else { RecordKind::Command };
    Ok(Builder::default()
        .protocol(protocol)
        .streams(newest.dims.len())
        .concurrency(control)
        .record(record))
}

/// Whether a builder declares exactly the tables of the last opening, unchanged: only then does
/// opening with the builder leave the tables unchanged.
///
/// # Errors
/// The errors of reading the catalogue, except [`Error::Mismatch`], since a mismatch is a
/// difference.
pub fn declares_same_tables(manifest: &Manifest, builder: &Builder) -> Result<bool, Error> {
    let stored = &manifest.catalogue;
    let Builder { tables, procedures, dropped, .. } = builder;
    match Catalogue::join(stored, tables, procedures, dropped, None) {
        // Additions to an empty catalogue are not reported as changes.
        Ok(joined) => Ok(!stored.is_empty() && joined.changes.is_empty()),
        Err(Error::Mismatch(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns a builder with the settings and the tables of the last opening. Procedures are not in
/// the manifest: register the procedures called by the log.
///
/// # Errors
/// As [`builder_without_tables`].
pub fn builder(manifest: &Manifest) -> Result<Builder, Error> {
    let mut builder = builder_without_tables(manifest)?;
    for (_, schema) in catalogue::entries(&manifest.catalogue)?.0 {
        builder.table(schema);
    }
    Ok(builder)
}

impl Inspector {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// [`Error::Mismatch`]: the log has a protocol unknown to this process, or the catalogue has
    /// another format than this version's.
    pub fn new(manifest: &Manifest) -> Result<Inspector, Error> {
        origin::check(manifest)?;
        let (tables, procedures) = catalogue::entries(&manifest.catalogue)?;
        Ok(Inspector {
            tables: tables.into_iter().map(|(id, s)| (u64::from(id), KnownTable::new(s))).collect(),
            procedures: procedures.into_iter().map(|(id, n, v)| (u64::from(id), (n, v))).collect(),
            checkpoint: manifest.checkpoint.clone(),
        })
    }

    /// Starts reading a stream, given by its id, of an incarnation.
    pub fn stream(&self, incarnation: &Incarnation, stream: u32) -> StreamInspector<'_> {
        let stream = StreamId(stream);
        let checkpoint = self.checkpoint.as_ref();
        let shape = RecordShape::of(incarnation, incarnation.dims.len(), checkpoint);
        let lane = incarnation.dims.iter().position(|dim| dim.stream == stream).unwrap_or(0);
        let decoder = Decoder::new(shape, stream);
        let incarnation = incarnation.number;
        StreamInspector { inspector: self, decoder, shape, stream, incarnation, lane }
    }
}

impl Inspector {
    /// Takes the next change off an encoded body; `None` if the change does not fit the catalogue.
    fn take_change<'b>(
        &self,
        rest: &mut &'b [u8],
    ) -> Option<(&KnownTable, Option<&'b [u8]>, Change<'b>)> {
        let shape = |id: u64| {
            let known = self.tables.get(&id)?;
            let keyless = known.schema.key.is_empty();
            Some(TableShape { layout: &known.layout, keyless, key_bytes: known.key_bytes })
        };
        let (table, key, change) = take_change(rest, shape)?;
        Some((self.tables.get(&table)?, key, change))
    }
}

/// Decodes the frames of one stream, in order.
pub struct StreamInspector<'i> {
    inspector: &'i Inspector,
    decoder: Decoder,
    shape: RecordShape,
    stream: StreamId,
    incarnation: u32,
    /// The stream's lane in the incarnation.
    lane: usize,
}

impl StreamInspector<'_> {
    /// Starts a chunk. Must be called before the chunk's frames are read.
    pub fn enter(&mut self, chunk: &Chunk) {
        self.decoder.enter(chunk);
    }

    /// Decodes a frame. Returns `None` if the frame is no transaction's record.
    ///
    /// # Errors
    /// The record has another format than this version's.
    pub fn read<'a>(&'a mut self, frame: &Frame<'a>) -> Result<Option<Inspected<'a>>, Error> {
        let Some(Decoded { head, body, stamp }) = self.decoder.decode(frame)? else {
            return Ok(None);
        };
        let before_bytes = match self.shape.rows {
            RowFrames::Both => self.decoder.before_bytes(head.continued),
            RowFrames::None | RowFrames::After => 0,
        };
        self.decoder.forget_parts(head.continued);
        Ok(Some(Inspected {
            head,
            body,
            before_bytes,
            stamp,
            needs: &self.decoder.validity,
            predecessors: &self.decoder.predecessors,
            vectors: self.shape.has_vectors(),
            order: if self.shape.data_only { &[] } else { &self.decoder.order },
            inspector: self.inspector,
            place: (self.stream, frame.start),
            incarnation: self.incarnation,
            lane: self.lane,
            end: frame.end,
        }))
    }
}

/// A transaction record.
pub struct Inspected<'a> {
    head: RecordHead,
    body: Cow<'a, [u8]>,
    /// Bytes of the before-images in the frames ahead of the record.
    before_bytes: u64,
    /// The data logged by the protocol beside vectors.
    stamp: Option<NumberStamp>,
    /// The values that the frontier has to reach for the record to be live, by lane.
    needs: &'a [Lsn],
    predecessors: &'a [Predecessor],
    vectors: bool,
    order: &'a [Lsn],
    inspector: &'a Inspector,
    place: (StreamId, Lsn),
    incarnation: u32,
    lane: usize,
    end: Lsn,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// A call of a procedure.
    Command {
        /// The procedure's name.
        procedure: String,
        /// The procedure's version.
        version: u32,
        /// The length of the encoded arguments in bytes.
        argument_bytes: usize,
    },
    /// Changed rows.
    Rows(Vec<RowChange>),
}

/// A change of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowChange {
    /// The table's name.
    pub table: String,
    /// The primary key as text, or the hidden row id if the table has no primary key.
    pub key: String,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The columns written, with their values as text.
    pub columns: Vec<(String, String)>,
}

/// The kind of a row's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The whole row was written.
    Put,
    /// Some columns changed, relative to the version with this epoch and sequence number.
    Delta(u64, u64),
    /// The row was deleted.
    Delete,
}

impl Inspected<'_> {
    /// Returns the transaction's TID: epoch and sequence number.
    pub fn tid(&self) -> (u64, u64) {
        (self.head.tid.epoch().0, self.head.tid.sequence())
    }

    /// Whether the record is a command.
    pub fn is_command(&self) -> bool {
        self.head.command
    }

    /// Returns the LSNs that must be durable for the record to be live, by lane, except the
    /// record's own LSN; empty if records carry no vectors.
    pub fn validity(&self) -> &[Lsn] {
        if self.vectors { self.needs } else { &[] }
    }

    /// Returns the record's number, if records have numbers.
    pub fn number(&self) -> Option<u64> {
        self.stamp.map(|stamp| stamp.number)
    }

    /// Whether the record is live only if all records with lower numbers are durable, because the
    /// transaction has read. `None` if the condition holds for every numbered record, or if records
    /// have no numbers.
    pub fn has_read(&self) -> Option<bool> {
        self.stamp.and_then(|stamp| stamp.has_read)
    }

    /// Whether the transaction is counted by this record: true for exactly one record of a
    /// transaction.
    pub fn counts(&self) -> bool {
        self.stamp.is_none_or(|stamp| stamp.counts)
    }

    /// Returns the LSNs up to which replay must be complete before this record, by lane. Empty if
    /// the record waits for nothing, or follows the order of the stream.
    pub fn order(&self) -> &[Lsn] {
        self.order
    }

    /// Returns the transaction's time in microseconds since 1970, if the time was used.
    pub fn time_us(&self) -> Option<i64> {
        self.head.time_us
    }

    /// Returns the start time of the record's epoch, in microseconds since 1970, if stated by the
    /// record.
    pub fn epoch_us(&self) -> Option<u64> {
        self.head.epoch_us
    }

    /// Returns the seed of the transaction's random numbers, if any were used.
    pub fn seed(&self) -> Option<u64> {
        self.head.seed
    }

    /// Returns the TID as of which a command read, as epoch and sequence number, if stated:
    /// otherwise the command read as of its own TID. Only where replay keeps several versions of
    /// rows.
    pub fn reads_as_of(&self) -> Option<(u64, u64)> {
        self.head.as_of.map(|tid| (tid.epoch().0, tid.sequence()))
    }

    /// Returns the lowest TID as of which this record, and records whose positions were reserved
    /// later, read, as epoch and sequence number, if stated.
    pub fn floor(&self) -> Option<(u64, u64)> {
        self.head.floor.map(|tid| (tid.epoch().0, tid.sequence()))
    }

    /// Returns the length in bytes of the body: the procedure and its arguments, or the changed
    /// rows. The rest of the frame is overhead of logging.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Decodes the content.
    ///
    /// # Errors
    /// [`Error::Recovery`] if the content does not fit the log's own catalogue.
    pub fn content(&self) -> Result<Content, Error> {
        let content = if self.head.command { self.command() } else { self.rows() };
        content.ok_or_else(|| self.misfit())
    }

    fn misfit(&self) -> Error {
        Error::Recovery(format!(
            "the record at Lsn {} of log stream {} does not fit the log's catalogue, though its \
             checksum is right: it was written by another version of Hyades",
            self.place.1, self.place.0
        ))
    }

    fn command(&self) -> Option<Content> {
        let mut rest = &self.body[..];
        let id = take_varint(&mut rest)?;
        let (name, version) = self.inspector.procedures.get(&id)?;
        let (procedure, version) = (name.clone(), *version);
        Some(Content::Command { procedure, version, argument_bytes: rest.len() })
    }

    fn rows(&self) -> Option<Content> {
        let mut rest = &self.body[..];
        let mut rows = Vec::new();
        while !rest.is_empty() {
            let (known, key, change) = self.inspector.take_change(&mut rest)?;
            rows.push(describe(known, key, change)?);
        }
        Some(Content::Rows(rows))
    }
}

fn describe(known: &KnownTable, key: Option<&[u8]>, change: Change<'_>) -> Option<RowChange> {
    let KnownTable { schema, layout, .. } = known;
    let key = match (key, change) {
        (Some(key), _) if schema.key.is_empty() => {
            format!("row {}", u64::from_be_bytes(key.try_into().ok()?))
        }
        (Some(key), _) => key_text(layout, key)?,
        (None, Change::Put(row)) => {
            let values = schema.key.iter().map(|&c| text(layout.value(row, c)));
            values.collect::<Vec<_>>().join(", ")
        }
        (None, _) => return None,
    };
    let mut columns = Vec::new();
    let kind = match change {
        Change::Put(row) => {
            for at in (0..schema.columns.len() as u16).filter(|at| !schema.key.contains(at)) {
                columns.push((known.name(at).to_string(), text(layout.value(row, at))));
            }
            ChangeKind::Put
        }
        Change::Delta { base, delta } => {
            for (at, bytes) in Assignments::new(layout, delta) {
                let kind = layout.columns.get(at as usize)?.kind;
                let value = bytes.map_or(Value::Null, |bytes| Value::from_bytes(kind, bytes));
                columns.push((known.name(at).to_string(), text(value)));
            }
            ChangeKind::Delta(base.epoch().0, base.sequence())
        }
        Change::Edits { base, edits } => {
            for (at, value) in Edits::new(layout, edits) {
                let kind = layout.columns.get(at as usize)?.kind;
                columns.push((known.name(at).to_string(), edit_text(kind, value)));
            }
            ChangeKind::Delta(base.epoch().0, base.sequence())
        }
        Change::Delete => ChangeKind::Delete,
    };
    Some(RowChange { table: schema.name.clone(), key, kind, columns })
}

/// Describes a change of a long value: the new bytes and their places.
fn edit_text(kind: Type, value: Edit<'_>) -> String {
    match value {
        Edit::Null => text(Value::Null),
        Edit::Value(bytes) => text(Value::from_bytes(kind, bytes)),
        Edit::Splices(_) => {
            let splices = value.splices();
            let splices = splices.iter().map(|(at, replaced, bytes)| {
                format!("{} for {replaced} bytes at {at}", text(Value::Bytes(bytes)))
            });
            splices.collect::<Vec<_>>().join(", ")
        }
    }
}
