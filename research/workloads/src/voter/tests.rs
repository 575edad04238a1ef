use super::*;
use crate::{Workload, populate};
use fastrand::Rng;
use hyades::{Database, Protocol};
use hyades_schemes::{PARTITIONED, PHYSIOLOGICAL};

/// Casts this many votes that count, and returns the log bytes of each vote.
fn bytes_of_a_vote(protocol: Protocol, votes: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let mut workload = Voter::new(VoterConfig::default());
    let mut builder =
        Database::builder().protocol(protocol).concurrency(PARTITIONED).streams(1).log_settings(
            |log| {
                log.segment_bytes = 4 << 20;
                log.research.undo = false;
            },
        );
    workload.declare(&mut builder);
    let database = builder.open(dir.path()).unwrap();
    populate(&workload, &database, 1, |_| {}).unwrap();
    let written = || {
        database.log().unwrap().flush().unwrap();
        database.stats().log_bytes
    };
    let before = written();
    let mut session = database.session().unwrap();
    let (mut rng, mut ballot, mut counted) = (Rng::with_seed(1), Ballot::default(), 0);
    while counted < votes {
        workload.draw(&mut rng, 0, &mut ballot);
        workload.run(&mut session, &ballot).unwrap().0.unwrap();
        counted += usize::from(session.result::<Counted>().unwrap() == Counted::Yes);
    }
    (written() - before) as f64 / votes as f64
}

/// The paper has 81 bytes (section V-C). Ours is a byte or two longer where epochs and positions
/// have more digits than here.
#[test]
fn a_vote_takes_no_more_bytes_than_in_the_paper() {
    let bytes = bytes_of_a_vote(PHYSIOLOGICAL, 4000);
    // Two rows and a record: three frames of 6 bytes, a row of 14 bytes and one of 12.
    assert!((60.0..=79.0).contains(&bytes), "{bytes} bytes for each vote");
}
