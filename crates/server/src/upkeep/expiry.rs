//! Removes keys as they expire, at the cost of what expires and not of what is there. Nothing
//! depends on it: a key that has expired is absent already.
//!
//! Each key that expires has a *timer*: an entry of the [`Wheel`], with a time and the key. A
//! thread turns the wheel, looks up the keys of the timers that are due, and removes those that
//! have expired, many in a transaction. A key that expires later by now gets a timer for that time.
//!
//! Fields of hashes are removed in the same way: the key of a hash whose fields expire has a timer
//! of the first of these times, or of an earlier one.
//!
//! Invariant: a row that expires at some time has a timer of that time or an earlier one. A
//! transaction that writes a row adds a timer after its commit, unless the row expired before, and
//! not later (`needs_timer`). A timer that is due is dropped after the row was found absent, or
//! without an expiry, or after it was removed, or with another one added in its place: by a
//! transaction, so between two writes of the row. A start adds one for each row that expires.
//!
//! So a time that is put off again and again costs nothing. Timers of keys that were deleted, or
//! expire no more, stay until they are due. Once there are twice as many timers as keys that
//! expire, the thread *sweeps*: it looks up the key of each timer, bucket by bucket, and keeps
//! those that are still needed, each once. What a sweep costs is a small share of what added the
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
