//! Tests of the figures of a run with standbys.

use super::super::following::ServedState;
use super::*;
use crate::bench::tally::Tally;

fn measured(transactions: u64) -> Measured {
    Measured { transactions, ..Tally::new(false).measured(1.0, (0, 0)) }
}

fn followed(digest: u64, at_ms: u64) -> Followed {
    let state = |at_ms: u64, epoch| ServedState { at_ns: at_ms * 1_000_000, epoch, age_ns: 0 };
    Followed { states: vec![state(0, 1), state(500, 4), state(at_ms, 9)], digest, rows: 3 }
}

const TIMES: RunTimes =
    RunTimes { began_ns: 0, processor_ns: 4_000_000_000, ended_ns: 1_000_000_000, epoch: 9 };

#[test]
fn all_copies_have_a_transaction_once_the_last_standby_shows_it() {
    let standbys = [followed(7, 1_500), followed(7, 3_000)];
    let figures = figures(7, &measured(600), &TIMES, &standbys).unwrap();
    assert_eq!((figures.state_matches, figures.catch_up_ms), (Some(true), Some(2_000.0)));
    assert_eq!((figures.copied_per_s, figures.processor_seconds), (200.0, 4.0));
    assert_eq!(figures.each[0].catch_up_ms, 500.0);
    // From 0 to 500 ms, and from 500 to 1000 ms.
    assert_eq!((figures.age_ms, figures.longest_age_ms), (Some(250.0), Some(500.0)));
    // Without standbys nothing is waited for, and nothing is compared.
    let alone = super::figures(7, &measured(600), &TIMES, &[]).unwrap();
    assert_eq!((alone.state_matches, alone.copied_per_s), (None, 600.0));
    assert!(alone.holds() && alone.age_ms.is_none() && alone.catch_up_ms.is_none());
}

#[test]
fn a_standby_with_another_state_is_told() {
    let standbys = [followed(7, 1_500), followed(8, 1_500)];
    let figures = figures(7, &measured(600), &TIMES, &standbys).unwrap();
    assert_eq!(figures.state_matches, Some(false));
    assert!(!figures.holds() && figures.text().contains("DIFFER"));
    let matches: Vec<bool> = figures.each.iter().map(|one| one.state_matches).collect();
    assert_eq!(matches, [true, false]);
}

#[test]
fn a_standby_that_shows_too_little_is_a_failure() {
    let late = Followed { states: Vec::new(), digest: 7, rows: 0 };
    assert!(figures(7, &measured(1), &TIMES, &[late]).is_err());
}
