//! A log and a data component that do not belong together: each mixture of newer, older, missing
//! and foreign copies is opened, with the right content, or refused.
#![allow(missing_docs)]

#[path = "common/mixtures.rs"]
mod mixtures;

use hyades_deuteronomy::DataComponent;
use mixtures::{History, Part, open, value_of_all, write_all};
use std::sync::Arc;

/// The outcome of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// Accepted, and all keys have the given value.
    Opens(u8),
    /// Refused, with an error containing the given text.
    Refused(&'static str),
}

use Decision::{Opens, Refused};
use Part::{Foreign, Missing, Newer, Older};

const OTHER: Decision = Refused("belongs to another log");
const NEW: Decision = Refused("the log is new");
const EMPTY: Decision = Refused("is truncated, and the data component is empty");
const AHEAD: Decision = Refused("is ahead of the log");
const YOUNGER: Decision = Refused("holds an operation of the timestamp");
const BEHIND: Decision = Refused("truncated beyond what the data component holds");

/// The decision on each mixture, with the log truncated before each copy, and with the log never
/// truncated.
const TABLE: [(Part, Part, Decision, Decision); 12] = [
    (Newer, Older, BEHIND, Opens(2)),
    (Newer, Missing, EMPTY, Opens(2)),
    (Newer, Foreign, OTHER, OTHER),
    // The second decision by `of_an_older_log`.
    (Older, Newer, AHEAD, AHEAD),
    (Older, Missing, EMPTY, Opens(1)),
    (Older, Foreign, OTHER, OTHER),
    (Missing, Newer, NEW, NEW),
    (Missing, Older, NEW, NEW),
    (Missing, Foreign, NEW, NEW),
    (Foreign, Newer, OTHER, OTHER),
    (Foreign, Older, OTHER, OTHER),
    (Foreign, Missing, EMPTY, Opens(3)),
];

/// An older, never truncated log, with the newer data component. A log of an earlier opening is
/// refused by the incarnation; a log of the same opening by the timestamps, unless no later
/// operation is in the data component: then the data component is not newer.
fn of_an_older_log(history: &History) -> Decision {
    match (history.within_one, history.keeps_applied) {
        (false, _) => AHEAD,
        (true, true) => YOUNGER,
        (true, false) => Opens(1),
    }
}

#[test]
fn each_mixture_of_a_log_and_a_data_component_is_decided_on() {
    for history in History::all() {
        let copies = history.run();
        for (log, data, truncated, whole) in TABLE {
            let expected = match (log, data) {
                _ if history.truncates => truncated,
                (Older, Newer) => of_an_older_log(&history),
                _ => whole,
            };
            let (dir, mut store) = copies.mix(log, data);
            let what = format!("{log:?} log, {data:?} data component, {history:?}");
            let before = (store.content(), store.resume_point().unwrap());
            let value = match (open(dir.path(), &store), expected) {
                (Ok(database), Opens(value)) => {
                    assert_eq!(value_of_all(&database), Some(value), "{what}");
                    write_all(&database, value + 10);
                    value
                }
                (Err(error), Refused(text)) => {
                    assert!(error.to_string().contains(text), "{what}: {error}");
                    let after = (store.content(), store.resume_point().unwrap());
                    assert_eq!(before, after, "{what}: it was changed");
                    continue;
                }
                (opened, _) => panic!("{what}: {:?} and not {expected:?}", opened.map(drop)),
            };
            // Transactions acknowledged from then on stay.
            for keeps in [false, true] {
                store = Arc::new(store.after_crash(|| keeps));
                let database = open(dir.path(), &store).unwrap();
                assert_eq!(value_of_all(&database), Some(value + 10), "{what}");
            }
        }
        // Matching pairs open, after any refusal before.
        for (part, value) in [(Newer, 2), (Older, 1), (Foreign, 3)] {
            let (dir, store) = copies.mix(part, part);
            assert_eq!(value_of_all(&open(dir.path(), &store).unwrap()), Some(value), "{part:?}");
        }
    }
}

/// The error states the finding, the expectation, and the remedy.
#[test]
fn the_refusal_of_an_older_log_says_what_is_wrong() {
    let history = History { within_one: true, keeps_applied: true, truncates: false };
    let (dir, store) = history.run().mix(Older, Newer);
    let error = open(dir.path(), &store).map(drop).unwrap_err().to_string();
    for part in ["the timestamp 200", "none above 100", "an older copy", "Open the newest log"] {
        assert!(error.contains(part), "{error}");
    }
}
