//! The protocol of replay: rows have the stamps of the protocol that will run after replay. Replay
//! does not use the stamps.

use super::{LoggingProtocol, Needs};
use crate::storage::Stamp;
use hyades_wal::Lsn;
use std::marker::PhantomData;

pub(crate) struct Unstamped<S>(PhantomData<fn() -> S>);

impl<S> Default for Unstamped<S> {
    fn default() -> Self {
        Unstamped(PhantomData)
    }
}

impl<S: Stamp> LoggingProtocol for Unstamped<S> {
    type RowStamp = S;
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    fn follow(&self, _: &mut (), _: &Needs) {}
    fn needs(&self, _: &mut (), _: Option<(usize, Lsn)>, _: &mut Needs) {}
}
