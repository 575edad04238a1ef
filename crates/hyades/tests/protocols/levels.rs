//! Promise: docs/protocols/levels.md states the orders that each logging protocol imposes, and the
//! level of recoverability that follows (Zhou et al., "Poplar", section 3.1 and table 1). The table
//! is made from what the protocols do.

use super::recoverability::{ALL, Form, Higher, Second, second_before_first, second_behind_first};
use hyades::{Concurrency, Database, Protocol, RecordKind};
use hyades_schemes::{ARRIVAL, all_protocols};
use std::time::Duration;

const DOCUMENT: &str = include_str!("../../../../docs/protocols/levels.md");
const BOTH: [Concurrency; 2] = [Concurrency::NoWait, Concurrency::Silo];

/// Short, so that epochs end while a transaction waits.
const SHORT: Duration = Duration::from_millis(2);
/// Long, so that both transactions are of one epoch mostly.
const LONG: Duration = Duration::from_millis(500);

/// What a protocol does, as derived.
#[derive(Debug, PartialEq)]
struct Orders {
    protocol: &'static str,
    commands: bool,
    one_stream: bool,
    /// The cases in which the second record is behind the first.
    records: Vec<Second>,
    /// The cases in which the second transaction is not acknowledged before the first.
    acknowledged: Vec<Second>,
    /// The same, if the first transaction's stream has the lower numbers.
    stalled: Vec<Second>,
    replay_threads: usize,
}

/// Takes a result that must be the same under both concurrency controls.
fn under_both<T: PartialEq + std::fmt::Debug>(
    protocol: Protocol,
    find: impl Fn(Concurrency) -> T,
) -> T {
    let [one, other] = BOTH.map(find);
    assert_eq!(one, other, "{protocol:?}: it depends on the concurrency control");
    one
}

fn takes_commands(protocol: Protocol) -> bool {
    under_both(protocol, |concurrency| {
        let dir = crate::common::directory();
        let streams = if protocol.has_one_stream() { 1 } else { 2 };
        let builder = Database::builder().protocol(protocol).concurrency(concurrency);
        let builder = builder.streams(streams);
        builder.record(RecordKind::Command).open(dir.path()).is_ok()
    })
}

fn orders(protocol: Protocol) -> Orders {
    let form = |concurrency, epoch| -> Form { (protocol, concurrency, epoch) };
    let is_behind = |second: Second| {
        under_both(protocol, |control| second_behind_first(form(control, LONG), second))
    };
    let places = ALL.map(is_behind);
    let waits = |higher: Higher| {
        move |second: &Second| {
            let waits = |control| !second_before_first(form(control, SHORT), *second, higher);
            under_both(protocol, waits)
        }
    };
    Orders {
        protocol: protocol.name(),
        commands: takes_commands(protocol),
        one_stream: protocol.has_one_stream(),
        records: ALL.into_iter().zip(places).filter(|(_, at)| at.0).map(|(case, _)| case).collect(),
        acknowledged: ALL.into_iter().filter(waits(Higher::First)).collect(),
        stalled: ALL.into_iter().filter(waits(Higher::Second)).collect(),
        replay_threads: places[0].1,
    }
}

impl Orders {
    /// The level, by the paper's definitions. The orders of records are relative to an epoch.
    fn level(&self) -> &'static str {
        let dependent = &ALL[..3];
        let both = |case: &Second| self.records.contains(case) && self.acknowledged.contains(case);
        let least = self.acknowledged.contains(&Second::ReadAfterWrite)
            && self.records.contains(&Second::WriteAfterWrite);
        match () {
            () if !least => "none",
            () if ALL.iter().all(both) => "sequential",
            () if ALL.iter().all(|case| self.acknowledged.contains(case)) => {
                "sequential, by epochs"
            }
            () if dependent.iter().all(both) => "rigorous",
            () => "recoverable",
        }
    }

    /// The row of the table.
    fn row(&self) -> String {
        let cases = |cases: &[Second]| {
            let name = |case: &Second| match case {
                Second::ReadAfterWrite => "RAW",
                Second::WriteAfterWrite => "WAW",
                Second::WriteAfterRead => "WAR",
                Second::Writes => "writers",
                Second::Reads => "readers",
            };
            let names: Vec<_> = cases.iter().map(name).collect();
            if cases == ALL { "all".to_string() } else { names.join(", ") }
        };
        let parallel = |is: bool| if is { "parallel" } else { "serial" };
        let content = if self.commands { "values, commands" } else { "values" };
        let cells = [
            self.protocol,
            content,
            &cases(&self.records),
            parallel(!self.one_stream),
            &cases(&self.acknowledged),
            &cases(&self.stalled),
            parallel(self.replay_threads > 1),
            self.level(),
        ];
        format!("| {} |", cells.join(" | "))
    }
}

#[test]
fn the_documented_levels_are_what_the_protocols_do() {
    let has_level = |protocol: &Protocol| ![Protocol::None, ARRIVAL].contains(protocol);
    let mut rows: Vec<String> =
        all_protocols().filter(has_level).map(|protocol| orders(protocol).row()).collect();
    rows.sort();
    let table = DOCUMENT.lines().skip_while(|line| !line.starts_with("| protocol | content |"));
    let documented: Vec<_> = table.skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(documented == rows, "docs/protocols/levels.md has to state:\n{}", rows.join("\n"));
}

/// A protocol without a level, for the rule of levels itself: an order that is missing is seen.
#[test]
fn a_level_needs_the_orders_of_its_definition() {
    use Second::{ReadAfterWrite, Reads, WriteAfterRead, WriteAfterWrite, Writes};
    let level = |records: &[Second], acknowledged: &[Second]| {
        let (records, acknowledged) = (records.to_vec(), acknowledged.to_vec());
        let orders = Orders {
            protocol: "any",
            commands: false,
            one_stream: false,
            records,
            acknowledged,
            stalled: Vec::new(),
            replay_threads: 2,
        };
        orders.level()
    };
    let dependent = [ReadAfterWrite, WriteAfterWrite, WriteAfterRead];
    assert_eq!(level(&ALL, &ALL), "sequential");
    assert_eq!(level(&dependent, &ALL), "sequential, by epochs");
    assert_eq!(level(&dependent, &dependent), "rigorous");
    assert_eq!(level(&[ReadAfterWrite, WriteAfterWrite], &dependent), "recoverable");
    assert_eq!(level(&[WriteAfterWrite], &[ReadAfterWrite]), "recoverable");
    assert_eq!(level(&[ReadAfterWrite], &ALL), "none");
    assert_eq!(level(&ALL, &[WriteAfterWrite, WriteAfterRead, Writes, Reads]), "none");
}
