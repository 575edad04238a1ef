//! The order of a session's transactions, apart from the session.

use super::Session;
use crate::logging::Needs;
use crate::ticket::LogHandles;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

/// An order of transactions: each follows the one before it, also where the two have no row in
/// common, and whichever sessions run them. What a crash leaves of an order is a prefix: if a
/// transaction is recovered, so is each one before it, and what these had read.
///
/// A session may keep such an order by itself ([`Builder::session_order`]). Orders apart from
/// sessions are for programs in which one session runs the transactions of many clients, or
/// several sessions those of one: each client has an order, which [`Session::in_order`] takes.
/// It holds what the last transactions need that was not durable, a few numbers for each log
/// stream, and nothing of a client whose transactions are on disk.
///
/// ```
/// use hyades::{Database, Schema, SessionOrder, Type};
/// # let dir = tempfile::tempdir()?;
/// let mut builder = Database::builder();
/// let names = builder.table(Schema::new("names").column("n", Type::Text).primary_key(&["n"]));
/// let db = builder.open(dir.path())?;
/// let (mut one, mut other) = (db.session()?, db.session()?);
/// let mut order = SessionOrder::default();
/// one.in_order(&mut order).submit(|tx| Ok(tx.insert(names, &["data".into()])?))?;
/// // No crash leaves the second without the first.
/// let mut other = other.in_order(&mut order);
/// let (_, ticket) = other.submit(|tx| Ok(tx.insert(names, &["pointer".into()])?))?;
/// ticket.wait()?; // both are on disk
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// [`Builder::session_order`]: crate::Builder::session_order
#[derive(Clone, Debug, Default)]
pub struct SessionOrder {
    needs: Needs,
    /// The database that it is of, once it has a transaction. Weak: an order keeps no log open.
    database: Option<Weak<LogHandles>>,
}

/// A session whose transactions are in a [`SessionOrder`]: see [`Session::in_order`].
pub struct InOrder<'s> {
    session: &'s mut Session,
    order: &'s mut SessionOrder,
    /// The order of the session's own, if it keeps one.
    own: Option<Needs>,
}

impl Session {
    /// The session with an order in place of its own, if it keeps one: each transaction follows
    /// the one before it in this order, whichever session has run it. A [snapshot](Session::read)
    /// that is read counts as a transaction.
    ///
    /// # Panics
    /// If the order is another database's.
    pub fn in_order<'s>(&'s mut self, order: &'s mut SessionOrder) -> InOrder<'s> {
        if let Some(handles) = &self.shared.references {
            let own = order.database.get_or_insert_with(|| Arc::downgrade(handles));
            let is_own = own.as_ptr() == Arc::as_ptr(handles);
            assert!(is_own, "an order is used with the sessions of one database");
        }
        let own = self.answer.order.replace(std::mem::take(&mut order.needs));
        InOrder { session: self, order, own }
    }
}

impl Drop for InOrder<'_> {
    fn drop(&mut self) {
        let kept = std::mem::replace(&mut self.session.answer.order, self.own.take());
        self.order.needs = kept.unwrap_or_default();
    }
}

impl Deref for InOrder<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for InOrder<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}
