//! The transaction component over redb: log and data component both lose power.
#![allow(missing_docs)]

use hyades_deuteronomy::torture::{LifeCounts, RedbStore, live};

#[test]
fn acknowledged_is_recovered_from_log_and_redb() {
    let mut met = LifeCounts::default();
    for seed in 0..120 {
        if let Err(wrong) = live(seed, &mut RedbStore::default(), &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.scans > 1000, "{met:?}");
    assert!(met.committed > 6000 && met.acknowledged > 3000 && met.truncated > 0, "{met:?}");
}
