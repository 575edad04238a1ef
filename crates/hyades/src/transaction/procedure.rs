//! Registered procedures: named, versioned, deterministic.

use super::access::Transaction;
use crate::error::{Abort, Error};
use crate::logging::determinism::Drawn;
use crate::logging::draft::Call;
use crate::logging::record::RecordKind;
use crate::storage::origin::Origin;
use crate::storage::partition::Partitions;
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) type Body =
    dyn Fn(&Transaction<'_>, &[u8], &mut Vec<u8>) -> Result<(), Abort> + Send + Sync;

/// The partitions that a procedure accesses, given its encoded arguments.
pub(crate) type StatedPartitions = dyn Fn(&[u8]) -> Result<Partitions, Abort> + Send + Sync;

/// Whether bytes are encoded arguments of a procedure.
type Understands = dyn Fn(&[u8]) -> bool + Send + Sync;

/// A registered procedure.
#[derive(Clone)]
pub(crate) struct Procedure {
    pub name: String,
    pub version: u32,
    /// Overrides the database's default.
    pub record: Option<RecordKind>,
    pub body: Arc<Body>,
    /// Called before the body runs, where transactions take turns. Not at replay.
    pub partitions: Option<Arc<StatedPartitions>>,
    /// Whether bytes are encoded arguments of the procedure.
    understands: Arc<Understands>,
    /// The draws of the procedure's calls, see [`Drawn`]. Raised after a run, Relaxed: a call
    /// logged without this knowledge is logged again.
    drawn: Arc<AtomicU8>,
}

impl Procedure {
    pub fn new<A, R, F>(name: &str, version: u32, record: Option<RecordKind>, body: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        F: Fn(&Transaction<'_>, A) -> Result<R, Abort> + Send + Sync + 'static,
    {
        let body = move |tx: &Transaction<'_>, arguments: &[u8], result: &mut Vec<u8>| {
            let arguments = postcard::from_bytes(arguments).map_err(|_| Abort::BadArguments)?;
            let value = body(tx, arguments)?;
            if std::mem::size_of::<R>() > 0 {
                append(&value, result).map_err(|_| Abort::BadArguments)?;
            }
            Ok(())
        };
        let (name, body) = (name.to_string(), Arc::new(body));
        let understands = Arc::new(|bytes: &[u8]| postcard::from_bytes::<A>(bytes).is_ok());
        Procedure {
            name,
            version,
            record,
            body,
            partitions: None,
            understands,
            drawn: Arc::default(),
        }
    }

    /// States the partitions that the procedure accesses, as follows from its arguments.
    pub fn state_partitions<A, F>(&mut self, partitions: F)
    where
        A: DeserializeOwned,
        F: Fn(A) -> Partitions + Send + Sync + 'static,
    {
        self.partitions = Some(Arc::new(move |arguments: &[u8]| {
            let first = postcard::take_from_bytes(arguments).map_err(|_| Abort::BadArguments)?.0;
            Ok(partitions(first))
        }));
    }

    /// Whether the procedure can be called with these arguments.
    pub fn understands(&self, arguments: &[u8]) -> bool {
        (self.understands)(arguments)
    }

    /// Returns the slots that a call with these arguments states; all if none are stated.
    pub fn stated_slots(&self, arguments: &[u8]) -> u64 {
        let stated = self.partitions.as_ref().and_then(|stated| stated(arguments).ok());
        stated.map_or(u64::MAX, |stated| stated.0)
    }

    /// Returns a call of the procedure. `None` if calls are logged before they run, and the
    /// arguments do not fit.
    #[inline]
    pub fn call<'a>(&self, log_id: u32, arguments: &'a [u8], logs_first: bool) -> Option<Call<'a>> {
        let (mut slots, mut draws) = (u64::MAX, Drawn::NOTHING);
        if logs_first {
            if !self.understands(arguments) {
                return None;
            }
            if let Some(stated) = &self.partitions {
                slots = stated(arguments).ok()?.0;
            }
            draws = Drawn(self.drawn.load(Ordering::Relaxed));
        }
        Some(Call { log_id, arguments, slots, draws, outcomes: &[], ahead: None })
    }

    /// Remembers the draws that the record of the next call has to state.
    pub fn learn(&self, drawn: Drawn) {
        if !Drawn(self.drawn.load(Ordering::Relaxed)).contains(drawn) {
            self.drawn.fetch_or(drawn.0, Ordering::Relaxed);
        }
    }

    /// Runs the procedure in a transaction of a session.
    pub fn run(
        &self,
        tx: &Transaction<'_>,
        arguments: &[u8],
        result: &mut Vec<u8>,
    ) -> Result<(), Abort> {
        if let Some(partitions) = &self.partitions {
            tx.0.hold_stated(&mut || partitions(arguments))?;
        }
        (self.body)(tx, arguments, result)
    }
}

/// The procedures of a database, and how their calls are logged.
pub(crate) struct Procedures {
    all: Vec<Procedure>,
    /// The number of each procedure in the log.
    log_ids: Vec<u32>,
    /// The kind of record, unless set by a procedure or a call.
    record: RecordKind,
    /// The origin of the builder that registered the procedures.
    pub origin: Origin,
    /// The newest version of each procedure, by name.
    pub names: HashMap<String, ProcedureId>,
}

impl Procedures {
    pub fn new(
        all: Vec<Procedure>,
        log_ids: Vec<u32>,
        record: RecordKind,
        origin: Origin,
    ) -> Procedures {
        let names = by_name(&all, origin);
        Procedures { all, log_ids, record, origin, names }
    }

    /// The procedure of a handle, its number in the log, and how its calls are logged.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the handle is another builder's.
    #[inline]
    pub fn get(&self, id: ProcedureId) -> Result<(&Procedure, u32, RecordKind), Error> {
        let at = id.number as usize;
        match self.all.get(at).filter(|_| id.origin == self.origin) {
            Some(called) => Ok((called, self.log_ids[at], called.record.unwrap_or(self.record))),
            None => Err(foreign_procedure()),
        }
    }
}

#[cold]
fn foreign_procedure() -> Error {
    Error::Misuse(
        "the procedure's handle comes from another builder: use the one that this database's \
         builder returned, or Database::prepare"
            .to_string(),
    )
}

/// Encodes the arguments of a call into the empty `out`.
#[inline]
pub(crate) fn encode_arguments<A: Serialize + ?Sized>(
    arguments: &A,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    append(arguments, out)
        .map_err(|error| Error::Misuse(format!("the arguments cannot be encoded: {error}")))
}

/// Returns the newest version of each procedure, by name.
fn by_name(procedures: &[Procedure], origin: Origin) -> HashMap<String, ProcedureId> {
    let mut newest = HashMap::<String, ProcedureId>::new();
    for (at, procedure) in procedures.iter().enumerate() {
        let known = newest.get(&procedure.name).map(|id| procedures[id.number as usize].version);
        if known.is_none_or(|version| version < procedure.version) {
            let id = ProcedureId { number: at as u32, origin };
            newest.insert(procedure.name.clone(), id);
        }
    }
    newest
}

/// Appends to a borrowed vector. (The flavor of postcard owns its vector.)
struct Onto<'v>(&'v mut Vec<u8>);

impl Flavor for Onto<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        // Nearly all are numbers of so few bytes: copying them is faster than a call.
        match *bytes {
            [a] => self.0.push(a),
            [a, b] => self.0.extend_from_slice(&[a, b]),
            [a, b, c] => self.0.extend_from_slice(&[a, b, c]),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends the encoding of arguments or of a result to `out`.
fn append<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> postcard::Result<()> {
    postcard::serialize_with_flavor(value, Onto(out))
}

/// The handle of a registered procedure, see [`crate::Database::prepare`]. Valid for the database
/// opened by the builder that returned the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcedureId {
    pub(crate) number: u32,
    pub(crate) origin: Origin,
}

/// Decodes a procedure's result.
pub(crate) fn decode_result<R: DeserializeOwned>(bytes: &[u8]) -> Result<R, Error> {
    postcard::from_bytes(bytes).map_err(|error| {
        Error::Misuse(format!(
            "the procedure's result is not a {}: {error}",
            std::any::type_name::<R>()
        ))
    })
}
