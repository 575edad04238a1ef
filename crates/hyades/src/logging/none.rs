//! No log: every transaction is acknowledged as it pre-commits, and none survives. The yardstick.

use super::{LoggingProtocol, Needs};
use hyades_wal::Lsn;

pub(crate) struct NoLog;

impl LoggingProtocol for NoLog {
    type RowStamp = ();
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    fn begin(&self, _: &mut ()) {}
    fn observe_read(&self, _: &(), _: &mut ()) {}
    fn observe_write(&self, _: &(), _: &mut ()) {}
    fn depth(&self, _: &()) -> u32 {
        0
    }
    fn encode(&self, _: &mut (), _: usize, _: bool, _: &mut Vec<u8>) {}
    fn place(&self, _: &mut (), _: usize, _: Lsn) {}
    fn publish_read(&self, _: &(), _: &mut ()) {}
    fn publish_write(&self, _: &(), _: &mut ()) {}
    fn inherit(&self, _: &(), _: &(), _: &mut ()) {}
    fn needs(&self, _: &mut (), _: Option<(usize, Lsn)>) -> Needs {
        Needs::new()
    }
}
