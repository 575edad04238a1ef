//! For replay: rows have the stamps of the protocol to come, and nobody touches them.

use super::{LoggingProtocol, Needs};
use hyades_wal::Lsn;
use std::marker::PhantomData;

pub(crate) struct Unstamped<S>(pub PhantomData<fn() -> S>);

impl<S: Default + Send + Sync + 'static> LoggingProtocol for Unstamped<S> {
    type RowStamp = S;
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    fn begin(&self, _: &mut ()) {}
    fn observe_read(&self, _: &S, _: &mut ()) {}
    fn observe_write(&self, _: &S, _: &mut ()) {}
    fn depth(&self, _: &()) -> u32 {
        0
    }
    fn encode(&self, _: &mut (), _: usize, _: bool, _: &mut Vec<u8>) {}
    fn place(&self, _: &mut (), _: usize, _: Lsn) {}
    fn publish_read(&self, _: &S, _: &mut ()) {}
    fn publish_write(&self, _: &S, _: &mut ()) {}
    fn inherit(&self, _: &S, _: &S, _: &mut ()) {}
    fn needs(&self, _: &mut (), _: Option<(usize, Lsn)>) -> Needs {
        Needs::new()
    }
}
