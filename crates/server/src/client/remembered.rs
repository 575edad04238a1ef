//! The commands of a tracking client whose keys are remembered.

use super::Client;
use crate::clients::tracking::TrackingState;

/// Commands of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remembered {
    /// None.
    #[default]
    None,
    /// The first.
    First,
    /// All but the first.
    AllButFirst,
    /// All.
    All,
}

impl Remembered {
    /// Whether the command with the number `number` is included.
    #[inline]
    pub fn has(self, number: usize) -> bool {
        match self {
            Remembered::None => false,
            Remembered::First => number == 0,
            Remembered::AllButFirst => number > 0,
            Remembered::All => true,
        }
    }
}

impl Client {
    /// The remembered commands of the next transaction, perhaps an EXEC: CLIENT CACHING is about
    /// the next command, or about a whole EXEC.
    pub fn remembered(&self, is_exec: bool) -> Remembered {
        let Some(tracks) = &self.tracks else { return Remembered::None };
        let state = &self.entry.tracking;
        if state.has(TrackingState::BCAST) {
            return Remembered::None;
        }
        let opts_in = state.has(TrackingState::OPTIN);
        if !opts_in && !state.has(TrackingState::OPTOUT) {
            return Remembered::All;
        }
        match (opts_in, tracks.is_named) {
            (true, true) if is_exec => Remembered::All,
            (true, true) => Remembered::First,
            (true, false) => Remembered::None,
            (false, true) if is_exec => Remembered::None,
            (false, true) => Remembered::AllButFirst,
            (false, false) => Remembered::All,
        }
    }

    /// Notes that the subject of CLIENT CACHING has been run.
    pub fn end_caching(&mut self) {
        if let Some(tracks) = &mut self.tracks {
            tracks.is_named = false;
        }
    }
}
