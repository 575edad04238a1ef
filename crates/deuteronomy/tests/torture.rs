//! The transaction component over the data component in memory, on disks that fail.
#![allow(missing_docs)]

mod common;
#[path = "common/torture.rs"]
mod lives;

use lives::{Memory, Met, torture};

#[test]
fn acknowledged_is_recovered_and_reads_are_serializable() {
    let mut met = Met::default();
    for seed in 0..400 {
        if let Err(wrong) = torture(seed, &mut Memory::new(), &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.committed > 10_000 && met.acknowledged > 4_000, "{met:?}");
    assert!(met.checkpoints > 100 && met.truncated > 0 && met.failed_openings > 50, "{met:?}");
    assert!(met.redone > 500 && met.dead > 20 && met.aborted.len() >= 4, "{met:?}");
}
