//! A logging protocol in one file. Rows have no stamps: a transaction depends on all earlier log
//! records. Its record states the length of each stream.
//!
//! **The rule.** A record is live if every stream is valid up to the end stated for it in the
//! record, and a transaction is acknowledged once every stream is durable up to this end, and its
//! own stream up to the end of its record.
//!
//! **Why this is correct.** The rows that a transaction has read or overwrites were published after
//! their writer had a position, so the ends that the transaction reads afterwards are behind that
//! position. And the ends of the writer were not larger, so the live records are closed under
//! dependencies. Readers leave no trace: replay cannot run commands, and data records are replayed
//! by version.

use hyades::plug::{
    Draft, LoggingProtocol, Needs, Reserved, Stamp, StampFormat, StampKind, StartContext,
    StartsOnLog, VectorStamp,
};
use hyades::wal::{Lane, Log, Lsn};

/// See the module.
pub struct AllStreams {
    log: Log,
}

impl AllStreams {
    /// Notes the length of each stream.
    fn note(&self, ends: &mut [Lsn]) {
        ends.iter_mut().enumerate().for_each(|(at, end)| *end = self.log.next_lsn(at));
    }
}

impl LoggingProtocol for AllStreams {
    type RowStamp = ();
    /// The ends of the streams.
    type TxnStamp = Vec<Lsn>;

    fn txn_stamp(&self) -> Vec<Lsn> {
        vec![0; self.log.streams()]
    }

    /// The predecessors of the transaction have positions, below the ends.
    fn follow(&self, _: &mut Vec<Lsn>, _: &Needs) {}

    fn append<'w, M: Stamp>(&self, ends: &mut Vec<Lsn>, draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        self.note(ends);
        let encode = |out: &mut Vec<u8>| {
            ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
        };
        draft.compose(encode).reserve()
    }

    /// A transaction without a record needs the content of the log at its end.
    fn needs(&self, ends: &mut Vec<Lsn>, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        match own {
            Some((stream, end)) => ends[stream] = end,
            None => self.note(ends),
        }
        for (at, end) in ends.iter().enumerate() {
            needs.push((Lane::position(at), *end));
        }
    }
}

impl StartsOnLog for AllStreams {
    const NAME: &'static str = "all-streams";
    const VECTORS: bool = true;
    const STAMPS: StampFormat = StampFormat::Vectors { read: read_stamp, skip: None };

    fn start(context: &StartContext<'_>) -> Self {
        assert!(context.data_only, "readers leave no trace, so that commands are not replayed");
        AllStreams { log: context.log.clone() }
    }
}

/// Reads the stamp written by `append`.
fn read_stamp(_: StampKind, stamp: &mut &[u8], out: VectorStamp<'_>) -> Result<(), &'static str> {
    for end in out.validity.iter_mut() {
        let (first, rest) = stamp.split_first_chunk().ok_or("the ends of streams are cut off")?;
        (*end, *stamp) = (Lsn::from_le_bytes(*first), rest);
    }
    out.order.copy_from_slice(out.validity);
    Ok(())
}
