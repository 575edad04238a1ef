//! The live import: a thread follows the primary that clients have chosen by REPLICAOF.
//!
//! It connects, loads all values of the primary, and follows its commands; or it goes on behind
//! what the database has, if the primary still has what follows. The primary is told of nothing
//! that is not on disk here.

mod acknowledging;
mod handshake;
mod link;
mod loading;
mod payload;
mod stream;
#[cfg(test)]
mod tests;

use crate::config::PrimaryAddress;
use crate::data::primary::{ImportStage, PrimaryPosition};
use crate::state::Shared;
use crate::state::live_import::LinkState;
use crate::transact::durably;
use handshake::SyncReply;
use link::Link;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The pauses between attempts to connect: from the first, twice as long each time, to the last.
/// (Tests do with less.)
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 250 } else { 4_000 });

/// Tells operators.
fn log(text: &str) {
    eprintln!("replicaof: {text}");
}

/// Runs until the server stops.
pub fn run(shared: &Arc<Shared>) {
    let import = &shared.live_import;
    let mut pause = SHORTEST_PAUSE;
    while let Some((primary, number)) = import.wait(&shared.stop_signal) {
        let (done, was_connected) = follow(shared, &primary, number);
        import.set_link(LinkState::Connect);
        if was_connected {
            pause = SHORTEST_PAUSE;
        }
        let is_wanted = import.is_wanted(number) && shared.stopping().is_none();
        if let Err(text) = done
            && is_wanted
        {
            let known = import.notes().error.replace(text.clone());
            if was_connected || known.as_ref() != Some(&text) {
                log(&format!("{primary}: {text}; another attempt follows"));
            }
        }
        if is_wanted {
            import.pause(pause, number, &shared.stop_signal);
            pause = (2 * pause).min(LONGEST_PAUSE);
        } else {
            pause = SHORTEST_PAUSE;
        }
        import.rest();
    }
}

/// One connection. Returns why it has ended, and whether commands were followed.
fn follow(
    shared: &Arc<Shared>,
    primary: &PrimaryAddress,
    number: u64,
) -> (Result<(), String>, bool) {
    let import = &shared.live_import;
    let mut was_connected = false;
    let mut attempt = || {
        import.set_link(LinkState::Connecting);
        let stored = durably(shared, PrimaryPosition::read)?;
        if stored.as_ref().is_some_and(|stored| stored.stage == ImportStage::Over) {
            return Err("the import is over".to_string());
        }
        let mut position = stored.unwrap_or(PrimaryPosition::new(primary.clone()));
        let mut link = Link::connect(shared, primary, number)?;
        import.set_link(LinkState::Handshake);
        let mut is_new = false;
        match handshake::shake(shared, &mut link, &position)? {
            SyncReply::Full { id, offset } => {
                log(&format!("{primary} sends all values, as they are at offset {offset}"));
                import.set_link(LinkState::Sync);
                position = loading::load(shared, &mut link, &position, (id, offset))?;
                import.numbers.full_syncs.fetch_add(1, Relaxed);
            }
            SyncReply::Continue { .. } if position.stage != ImportStage::Following => {
                return Err("the primary goes on, and nothing is here".to_string());
            }
            SyncReply::Continue { id } => {
                log(&format!("{primary} goes on behind offset {}", position.offset));
                import.numbers.partial_syncs.fetch_add(1, Relaxed);
                is_new = id.is_some();
                // An attempt to load again may have failed before it began.
                import.set_stage(ImportStage::Following);
                position.id = id.unwrap_or(position.id);
            }
        }
        was_connected = true;
        let id = position.id.clone();
        let mut notes = import.notes();
        (notes.id, notes.error) = (id, None);
        drop(notes);
        import.set_link(LinkState::Connected);
        stream::follow(shared, &mut link, position, is_new)
    };
    (attempt(), was_connected)
}
