//! For replay: rows have the stamps of the protocol to come, and nobody touches them.

use super::{LoggingProtocol, Needs};
use hyades_wal::Lsn;
use std::marker::PhantomData;

pub(crate) struct Unstamped<S>(pub PhantomData<fn() -> S>);

impl<S: Default + Send + Sync + 'static> LoggingProtocol for Unstamped<S> {
    type RowStamp = S;
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    fn needs(&self, _: &mut (), _: Option<(usize, Lsn)>) -> Needs {
        Needs::new()
    }
}
