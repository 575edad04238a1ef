//! Removes keys as they expire, at the cost of the expired keys and not of all keys. Nothing
//! depends on the removal: an expired key is absent already.
//!
//! Each key with an expiry has a *timer*: an entry of the [`Wheel`], with a time and the key. A
//! thread turns the wheel, looks up the keys of due timers, and removes the expired keys, many in a
//! transaction. A key with a later expiry by now gets a timer for the new time.
//!
//! Fields of hashes are removed in the same way: the key of a hash with expiring fields has a timer
//! of the first time of its fields, or of an earlier time.
//!
//! Invariant: a row that expires at some time has a timer of that time or an earlier one. A
//! transaction that writes a row adds a timer after its commit, unless the row had an expiry
//! before, no later than the new one (`needs_timer`). A due timer is dropped after the row was
//! found absent, or without an expiry, or after the row was removed, or with another timer added in
//! its place: by a transaction, so between two writes of the row. A start adds a timer for each row
//! with an expiry.
//!
//! So a time put off again and again costs nothing. Timers of deleted keys, or of keys without an
//! expiry by now, stay until they are due. Once there are twice as many timers as keys with an
//! expiry, the thread *sweeps*: it looks up the key of each timer, bucket by bucket, and keeps the
//! timers still needed, each once. The cost of a sweep is a small share of the cost of adding the
//! timers.

mod sweeping;
#[cfg(test)]
mod tests;
mod turning;
mod wheel;

#[cfg(test)]
pub use turning::remove_and_tell;
#[cfg(any(test, feature = "torture"))]
pub use turning::remove_expired;
pub use turning::run;
