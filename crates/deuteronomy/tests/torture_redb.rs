//! The transaction component over redb: log and data component both lose power, and both fail.
#![allow(missing_docs)]

use hyades_deuteronomy::torture::{LifeCounts, RedbStore, live};

#[test]
fn acknowledged_is_recovered_from_log_and_redb() {
    let (mut met, mut failed) = (LifeCounts::default(), 0);
    for seed in 0..160 {
        let mut store = RedbStore::default();
        if let Err(wrong) = live(seed, &mut store, &mut met) {
            panic!("seed {seed}: {wrong}");
        }
        failed += usize::from(store.failed() > 0);
    }
    println!("{met:#?}, redb has failed with {failed} seeds");
    assert!(met.scans > 1000 && failed > 80, "{failed}, {met:?}");
    assert!(met.committed > 6000 && met.acknowledged > 3000 && met.truncated > 0, "{met:?}");
}
