//! A kept failing history: the transactions and the acknowledgements, with the disk left by the
//! history. Threads do not run the same way twice, but a kept disk can be checked any number of
//! times.

use crate::database;
use crate::history::History;
use crate::plan::{Combination, Plan};
use crate::schema;
use hyades::Replay;
use hyades_platform::device::SimulatedDisk;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A kept history. The disk is stored beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedFailure {
    /// The plan of the history.
    pub plan: Plan,
    /// The combination of the opening with the failure.
    pub combination: Combination,
    /// Number of log directories used by then.
    pub dirs: usize,
    /// Number of programs created by then.
    pub programs: u64,
    /// The life before the crash, and the state at its start.
    pub history: History,
}

impl SavedFailure {
    /// Recovers copies of the disk in several ways and checks each. Returns the violations.
    pub fn judge(&self, disk: &SimulatedDisk) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut digests = Vec::new();
        for (threads, replay) in [
            (1, Replay::Wavefront),
            (1, Replay::Serial),
            (2, Replay::Wavefront),
            (3, Replay::Pools),
            (3, Replay::Automatic),
            (2, Replay::Phases),
        ] {
            let what = format!("recovered by {threads} threads, {replay:?}");
            let device = disk.fork().process(1);
            let (plan, combination) = (&self.plan, self.combination);
            let (builder, _) = database::builder(plan, combination, &device, self.dirs, 1);
            let db = match builder.recovery_threads(threads).replay(replay).open("/db") {
                Ok(db) => db,
                Err(error) => {
                    wrong.push(format!("{what}: refused: {error}"));
                    continue;
                }
            };
            digests.push(db.digest());
            match schema::dump(&db, plan.tables, self.programs) {
                Ok(state) => {
                    let verdict = self.history.judge(&state);
                    wrong.extend(verdict.sentences().map(|s| format!("{what}: {s}")));
                }
                Err(complaint) => wrong.push(format!("{what}: {complaint}")),
            }
        }
        digests.dedup();
        if digests.len() > 1 {
            wrong.push("the ways of recovery give several states".to_string());
        }
        wrong
    }

    /// Writes the history to `history.bin` in a directory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn save(&self, place: &Path) -> io::Result<()> {
        let bytes = postcard::to_stdvec(self).map_err(io::Error::other)?;
        std::fs::write(place.join("history.bin"), bytes)
    }

    /// Reads the files of [`save`](Self::save), and the disk beside `history.bin`.
    ///
    /// # Errors
    /// I/O errors; or another version wrote the files.
    pub fn load(place: &Path) -> io::Result<(SavedFailure, SimulatedDisk)> {
        let bytes = std::fs::read(place.join("history.bin"))?;
        let kept = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        Ok((kept, SimulatedDisk::load(&place.join("disk"))?))
    }
}
