//! Serial logging: one stream, whose order is a valid replay order (Taurus, section 2.1).
//!
//! Rows have no stamps. A transaction reserves its frame while it holds its write locks, and as a
//! command before it validates what it read, so conflicting transactions are in the stream in their
//! serialization order. The exception are data records of transactions that commit late, as under
//! timestamps: these may be behind what has overwritten rows that they read, which does not depend
//! on them. A reader saw only transactions whose frames were reserved before it ended:
//! it needs the stream up to its reserved end at that time.

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
    /// What is later in the stream is lost with what is earlier.
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
