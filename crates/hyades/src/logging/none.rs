//! No log: every transaction is acknowledged at pre-commit, and none survives. The baseline.

use super::{LoggingProtocol, Needs};
use hyades_wal::Lsn;

#[derive(Default)]
pub struct NoLog;

impl LoggingProtocol for NoLog {
    type RowStamp = ();
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    fn follow(&self, _: &mut (), _: &Needs) {}
    fn needs(&self, _: &mut (), _: Option<(usize, Lsn)>, _: &mut Needs) {}
}
