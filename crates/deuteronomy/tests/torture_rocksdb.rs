//! The transaction component over RocksDB: the log loses power, both lose the process.
#![allow(missing_docs)]

use hyades_deuteronomy::torture::{LifeCounts, RocksDbStore, live};

#[test]
fn acknowledged_is_recovered_from_log_and_rocksdb() {
    let mut met = LifeCounts::default();
    for seed in 0..40 {
        let mut store = RocksDbStore::new_in(&std::env::temp_dir()).unwrap();
        if let Err(wrong) = live(seed, &mut store, &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.scans > 300 && met.committed > 2000 && met.acknowledged > 1000, "{met:?}");
}
