//! Verification: whether the members of a database have the same rows.
//!
//! A process asks by a broadcast with a number. The primary makes a cut mark together with a
//! snapshot of the mark's epoch, and sends the mark with the number. A standby that replays the
//! mark opens a snapshot then. Each member computes digests of the snapshot, beside its other work,
//! and broadcasts them. A message that is lost costs an answer: ask again.

use crate::hex::hex;
use crate::marks::{self, ToldMark};
use crate::reports::{self, Told, Verified};
use crate::service::LogService;
use hyades::{CutMark, Database, Error, Snapshot, TableDigest};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The state of a database as of a mark.
#[derive(Debug)]
pub(crate) struct ComparedState {
    /// The number of the verification.
    pub verification: u64,
    pub incarnation: u32,
    pub epoch: u64,
    pub snapshot: Snapshot,
}

/// Computes the digests of a member, one state at a time.
#[derive(Debug)]
pub(crate) struct Verifier {
    node: String,
    service: Arc<dyn LogService>,
    under_way: Option<JoinHandle<()>>,
}

impl Verifier {
    pub fn new(node: &str, service: Arc<dyn LogService>) -> Verifier {
        Verifier { node: node.to_owned(), service, under_way: None }
    }

    /// Answers a verification as the primary. Ignored while another one is under way.
    pub fn begin(&mut self, uuid: [u8; 16], number: u64, database: Database) {
        let (service, node) = (self.service.clone(), self.node.clone());
        self.run(move || {
            let (mark, snapshot) = match database.mark_with_snapshot() {
                Ok(marked) => marked,
                Err(error) => return say(&*service, (uuid, &node), (number, 0, 0), Err(error)),
            };
            drop(database);
            let CutMark { incarnation, epoch, .. } = mark;
            let told = ToldMark { database: uuid, mark, verification: number };
            service.broadcast(marks::encode(&told));
            let digests = snapshot.table_digests();
            say(&*service, (uuid, &node), (number, incarnation, epoch), digests);
        });
    }

    /// Answers a verification with a state of a standby. Ignored while another one is under way.
    pub fn compare(&mut self, uuid: [u8; 16], state: ComparedState) {
        let (service, node) = (self.service.clone(), self.node.clone());
        self.run(move || {
            let ComparedState { verification, incarnation, epoch, snapshot } = state;
            let digests = snapshot.table_digests();
            say(&*service, (uuid, &node), (verification, incarnation, epoch), digests);
        });
    }

    fn run(&mut self, body: impl FnOnce() + Send + 'static) {
        if self.under_way.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let thread = std::thread::Builder::new().name("verification".into());
        // Without a thread there is no answer.
        self.under_way = thread.spawn(body).ok();
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        if let Some(thread) = self.under_way.take() {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

fn say(
    service: &dyn LogService,
    (database, node): ([u8; 16], &str),
    (number, incarnation, epoch): (u64, u32, u64),
    digests: Result<Vec<TableDigest>, Error>,
) {
    let table = |digest: TableDigest| (digest.table, digest.rows, digest.digest);
    let tables = digests.map(|digests| digests.into_iter().map(table).collect());
    let tables = tables.map_err(|error| error.to_string());
    let (database, node) = (hex(&database), node.to_owned());
    let found = Verified { database, number, node, incarnation, epoch, tables };
    service.broadcast(reports::encode(&Told::Verified(found)));
}

/// The message that asks the members of a database, by its uuid in hexadecimal digits, for the
/// digests of one state.
pub fn question(database: &str, number: u64) -> Vec<u8> {
    reports::encode(&Told::Verify { database: database.to_owned(), number })
}

/// The answer of a member in a broadcast; `None` if the broadcast is none for the number.
pub fn answer(broadcast: &[u8], number: u64) -> Option<Verified> {
    match reports::decode(broadcast) {
        Some(Told::Verified(found)) if found.number == number => Some(found),
        _ => None,
    }
}
