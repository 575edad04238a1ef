//! Serial logging: one stream in a valid replay order (Taurus, section 2.1).
//!
//! Rows have no stamps. A transaction reserves its frame while it holds its write locks, and as a
//! command before validation of its reads, so conflicting transactions are in the stream in
//! serialization order. The exception are data records of transactions with a late commit, as under
//! timestamps: a late record may be behind the record of a transaction that overwrote rows read by
//! the late transaction. The overwriting transaction does not depend on the late one. A reader saw
//! only transactions with frames reserved before the reader ended, and needs the stream up to the
//! reserved end at that time.

use super::{LoggingProtocol, Needs, StartContext, StartsOnLog};
use hyades_platform::broken;
use hyades_wal::{Lane, Log, Lsn};

pub struct Serial {
    log: Log,
}

impl LoggingProtocol for Serial {
    type RowStamp = ();
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    /// The loss of a frame includes all later frames of the stream.
    fn follow(&self, _: &mut (), _: &Needs) {}
    fn needs(&self, _: &mut (), own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if broken!(AckBeforeOwnFrame) {
            return;
        }
        let lsn = own.map_or_else(|| self.log.next_lsn(0), |(_, lsn)| lsn);
        needs.push((Lane::position(0), lsn));
    }
}

impl StartsOnLog for Serial {
    const NAME: &'static str = "serial";
    const VECTORS: bool = false;
    fn start(context: &StartContext<'_>) -> Self {
        Serial { log: context.log.clone() }
    }
}
