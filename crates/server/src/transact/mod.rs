//! Transactions with retries and waiting, of whatever runs on no event loop, and what clients are
//! told if one fails.

mod failing;

pub use failing::{OUTCOME_UNKNOWN, failure};

use crate::data::Tables;
use crate::data::keyspace::{self, Context, Effects, Stop};
use crate::state::Shared;
use crate::state::live_import::READ_ONLY;
use hyades::{Abort, SessionOrder, Ticket, Transaction};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

/// What a transaction of commands is given now.
pub fn context<'t>(shared: &'t Shared, effects: &'t RefCell<Effects>) -> Context<'t> {
    Context {
        tables: Tables::BY_PLACE,
        now_ms: shared.clock.now_ms(),
        databases: shared.settings.databases(),
        longest: shared.settings.longest_argument(),
        packed: shared.settings.packed(),
        counts: &shared.store.counts,
        effects,
        names_filled: shared.wiring.waiting.wants_keys(),
        has_waited: false,
        events: shared.settings.events(),
        tracks: shared.wiring.tracking.is_on(),
        is_exec: false,
        is_script: false,
        is_patient: false,
        only_reads: shared.membership.only_reads(),
        is_import: false,
    }
}

/// What the client is told of a transaction that was aborted.
pub fn abort_text(abort: Abort) -> String {
    match abort {
        keyspace::TOO_MUCH => {
            let most = keyspace::MOST_COPIED >> 20;
            format!("ERR the transaction reads and writes more than {most} MiB")
        }
        Abort::ReadOnly => READ_ONLY.to_string(),
        abort => format!("ERR {abort}"),
    }
}

/// Whether a transaction was refused since it would copy too much, by its error.
pub fn is_too_much(text: &str) -> bool {
    text == abort_text(keyspace::TOO_MUCH)
}

/// Runs all items in a transaction, or in several if they are too much for one: in halves, and in
/// halves of these, in their order. `run` is given the items of a transaction, and the number of
/// those that follow, `behind` these included.
///
/// # Errors
/// Those of `run`; that a single item is too much.
pub fn in_parts<T>(
    items: &[T],
    behind: usize,
    run: &mut impl FnMut(&[T], usize) -> Result<(), String>,
) -> Result<(), String> {
    match run(items, behind) {
        Err(text) if items.len() > 1 && is_too_much(&text) => {
            let (first, second) = items.split_at(items.len() / 2);
            in_parts(first, behind + second.len(), run)?;
            in_parts(second, behind, run)
        }
        result => result,
    }
}

/// Counts the patient runs that are under way.
pub struct Underway<'a>(&'a Shared);

impl Underway<'_> {
    /// Counts one, until this is dropped.
    pub fn begin(shared: &Shared) -> Underway<'_> {
        shared.patient.fetch_add(1, Relaxed);
        Underway(shared)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.patient.fetch_sub(1, Relaxed);
    }
}

/// Runs a transaction of a command outside of runs, with retries and waiting, in the order of the
/// client, and applies the effects beside the rows. Returns the body's result, the effects, and the
/// ticket: the result counts once the ticket is acknowledged.
///
/// # Errors
/// The text for the client: an error of the body, once all rows read for the error are on disk, or
/// an error of the engine.
pub fn patiently<T>(
    shared: &Shared,
    order: &mut SessionOrder,
    body: impl Fn(&Transaction<'_>, Context<'_>) -> Result<T, Stop>,
) -> Result<(T, Effects, Ticket), String> {
    let _underway = Underway::begin(shared);
    let effects = RefCell::default();
    let context = Context { is_patient: true, ..context(shared, &effects) };
    let opened = shared.opened()?;
    let failed = |error| failure(shared, error);
    let mut session = opened.database.session().map_err(failed)?;
    let submitted = session.in_order(order).try_submit(|tx| {
        effects.borrow_mut().clear();
        // It may have waited for long.
        body(tx, Context { now_ms: shared.clock.now_ms(), ..context })
    });
    let (result, ticket) = submitted.map_err(failed)?;
    let effects = effects.into_inner();
    match result {
        Ok(value) => {
            shared.apply(&effects);
            Ok((value, effects, ticket))
        }
        Err(stop) => {
            ticket.wait().map_err(failed)?;
            Err(match stop {
                Stop::Error(text) | Stop::ErrorKept(text) => text.into_owned(),
                Stop::Abort(abort) => abort_text(abort),
            })
        }
    }
}

/// Runs a transaction as [`patiently`], for no client, and returns once all that it has read and
/// written is on disk.
///
/// # Errors
/// What the operator is told.
pub fn durably<T>(
    shared: &Shared,
    body: impl Fn(&Transaction<'_>, Context<'_>) -> Result<T, Stop>,
) -> Result<T, String> {
    let (value, _, ticket) = patiently(shared, &mut SessionOrder::default(), body)?;
    ticket.wait().map_err(|error| failure(shared, error))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_for_a_transaction_is_halved_in_its_order() {
        let mut ran = Vec::new();
        let mut run = |items: &[u32], behind: usize| match items.len() {
            0..=2 => {
                ran.push((items.to_vec(), behind));
                Ok(())
            }
            _ => Err(abort_text(keyspace::TOO_MUCH)),
        };
        in_parts(&[1, 2, 3, 4, 5], 7, &mut run).unwrap();
        assert_eq!(ran, [(vec![1, 2], 10), (vec![3], 9), (vec![4, 5], 7)]);
        let mut calls = 0;
        let error = in_parts(&[1, 2], 0, &mut |_: &[u32], _| {
            calls += 1;
            Err(abort_text(keyspace::TOO_MUCH))
        });
        assert!(is_too_much(&error.unwrap_err()) && calls == 2);
        let error = in_parts(&[1, 2], 0, &mut |_: &[u32], _| Err("ERR other".to_string()));
        assert_eq!(error, Err("ERR other".to_string()));
    }
}
