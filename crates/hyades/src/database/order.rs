//! The order of a session's transactions, apart from the session.

use super::Session;
use crate::logging::Needs;
use crate::ticket::LogHandles;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

/// An order of transactions: each follows the transaction before it, even if the two have no row in
/// common, and whichever sessions run them. A crash leaves a prefix of an order: if a transaction
/// is recovered, so are all earlier transactions of the order, and the transactions that these had
/// read from.
///
/// A session may keep such an order by itself ([`Builder::session_order`]). Orders apart from
/// sessions are for programs in which one session runs the transactions of many clients, or several
/// sessions the transactions of one client: each client has an order, to be taken by
/// [`Session::in_order`]. An order holds the needs of the last transactions that were not durable,
/// a few numbers for each log stream, and nothing of a client whose transactions are on disk.
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
    /// The order's database, set by its first transaction. Weak: an order keeps no log open.
    database: Option<Weak<LogHandles>>,
}

/// A session whose transactions are in a [`SessionOrder`]: see [`Session::in_order`].
pub struct InOrder<'s> {
    session: &'s mut Session,
    order: &'s mut SessionOrder,
    /// The session's own order, if there is one.
    own: Option<Needs>,
}

impl Session {
    /// Returns the session with an order in place of its own order, if any: each transaction
    /// follows the previous transaction of this order, whichever session has run the previous one.
    /// Reading a [snapshot](Session::read) counts as a transaction.
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
