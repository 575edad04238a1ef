//! Promise: a transaction that commits alone is acknowledged. No stream may sleep through a
//! request, however rare.
#![allow(missing_docs)]

mod common;
use common::{ACCOUNT_COUNT, ACCOUNTS, BALANCE, How, combinations, directory, populate, try_open};
use hyades::Abort;
use std::time::Duration;

/// Transactions of each of the two sessions, for each combination.
const EACH: u64 = 60;

#[test]
fn a_lone_transaction_is_answered() {
    let each = std::env::var("HYADES_LONE").map_or(EACH, |each| each.parse().unwrap());
    for (seed, c) in combinations().into_iter().enumerate() {
        let dir = directory();
        let opened = try_open(dir.path(), c, How::default()).unwrap();
        populate(&opened);
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        let mut sessions = [opened.db.session().unwrap(), opened.db.session().unwrap()];
        for n in 0..2 * each {
            let id = rng.i64(0..ACCOUNT_COUNT);
            let (result, ticket) = sessions[rng.usize(0..2)]
                .try_submit(|tx| {
                    let balance = tx.get(ACCOUNTS, id)?.unwrap().get(BALANCE);
                    if n % 3 > 0 {
                        tx.update(ACCOUNTS, (id + 1) % ACCOUNT_COUNT, &[BALANCE.set(balance)])?;
                    }
                    Ok::<_, Abort>(())
                })
                .unwrap();
            result.unwrap();
            ticket.wait().unwrap();
            // Occasional pauses, about as long as threads take to fall asleep, or longer.
            match rng.u32(0..8) {
                0 => std::thread::sleep(Duration::from_micros(rng.u64(0..3000))),
                1 => std::thread::sleep(Duration::from_micros(rng.u64(0..100))),
                _ => {}
            }
        }
    }
}
