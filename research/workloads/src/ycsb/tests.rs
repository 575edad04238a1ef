use super::*;
use crate::oracle::Oracle;
use hyades::{Abort, Partitions, Table, Transaction};

const TABLE: Users = Users::of(Table::nth(0));

fn run(tx: &Transaction<'_>, input: &YcsbInput, reads: Reads) -> Result<(), Abort> {
    match input.operation {
        Operation::Access => access(tx, TABLE, &input.given.accesses, reads),
        Operation::AccessAll => access_all(tx, TABLE, &input.given.accesses, reads),
        Operation::AccessGiven => access_given(tx, TABLE, &input.given, reads),
        Operation::Store => store(tx, TABLE, &input.given.accesses),
        Operation::StoreGiven => store_given(tx, TABLE, &input.given),
        Operation::Insert => insert(tx, TABLE, &input.insert),
        Operation::Scan => scan(tx, TABLE, &input.scan).map(drop),
        Operation::Modify => modify(tx, TABLE, &input.modify),
        Operation::WriteAndScan => write_and_scan(tx, TABLE, &input.write_and_scan).map(drop),
    }
}

fn populated(config: &YcsbConfig) -> Oracle {
    let oracle = Oracle::new(vec![schema(config.is_ordered())]);
    for part in parts(config) {
        oracle.transact(|tx| populate(tx, TABLE, &part)).unwrap();
    }
    oracle
}

fn small() -> YcsbConfig {
    YcsbConfig { rows: 1500, ..YcsbConfig::default() }
}

/// Runs `count` transactions from one seed; returns the digest afterwards and the number of missing
/// rows.
fn after(config: &YcsbConfig, count: usize) -> (u64, usize) {
    let oracle = populated(config);
    let inputs = YcsbInputs::new(config.clone());
    let (mut rng, mut input, mut missing) = (Rng::with_seed(8), YcsbInput::default(), 0);
    for _ in 0..count {
        inputs.draw(&mut rng, &mut input);
        match oracle.transact(|tx| run(tx, &input, config.reads)) {
            Ok(()) => {}
            Err(Abort::User(crate::MISSING_ROW)) => missing += 1,
            Err(other) => panic!("{other:?} by {input:?}"),
        }
    }
    (oracle.digest(), missing)
}

#[test]
fn population_follows_from_its_seed() {
    let a = populated(&small());
    assert_eq!(a.len(TABLE.untyped()), 1500);
    assert_eq!(a.digest(), populated(&small()).digest());
    assert_ne!(a.digest(), populated(&YcsbConfig { seed: 2, ..small() }).digest());
}

#[test]
fn every_form_runs_and_repeats_itself() {
    let untouched = populated(&small()).digest();
    let mut digests = vec![untouched];
    for write_columns in [WriteColumns::One, WriteColumns::All] {
        for values in [Values::Derived, Values::Argument] {
            let config = YcsbConfig { write_columns, values, ..small() };
            let (digest, missing) = after(&config, 300);
            assert_eq!((digest, missing), after(&config, 300));
            assert_eq!(missing, 0);
            assert!(!digests.contains(&digest), "{config:?} did what another did");
            digests.push(digest);
        }
    }
    assert_eq!(after(&YcsbConfig { write_share: 0.0, ..small() }, 300).0, untouched);
}

#[test]
fn standard_mixes_run() {
    for mix in [Standard::A, Standard::B, Standard::C, Standard::D, Standard::E, Standard::F] {
        let config = YcsbConfig::standard(mix, 1500);
        let untouched = populated(&config).digest();
        let (digest, missing) = after(&config, 500);
        assert_eq!(missing, 0, "{mix:?}");
        assert_eq!(digest == untouched, mix == Standard::C, "{mix:?}");
    }
}

#[test]
fn a_quarter_of_the_transactions_only_reads() {
    let inputs = YcsbInputs::new(YcsbConfig::default());
    let (mut rng, mut input) = (Rng::with_seed(1), YcsbInput::default());
    let (mut read_only, mut writes) = (0, 0);
    const DRAWS: usize = 100_000;
    for _ in 0..DRAWS {
        inputs.draw(&mut rng, &mut input);
        let rows = &input.given.accesses.rows;
        assert!(rows.len() == 2 && rows[0].id() != rows[1].id());
        assert!(rows.iter().all(|row| row.id() < 1 << 20));
        let written = rows.iter().filter(|row| row.is_write()).count();
        writes += written;
        read_only += (written == 0) as usize;
    }
    assert!((read_only as f64 / DRAWS as f64 - 0.25).abs() < 0.006);
    assert!((writes as f64 / DRAWS as f64 - 1.0).abs() < 0.01);
}

#[test]
fn operations_come_in_the_shares_of_their_mix() {
    for (mix, operation, expected) in [
        (Standard::D, Operation::Insert, 0.05),
        (Standard::E, Operation::Insert, 0.05),
        (Standard::E, Operation::Scan, 0.95),
        (Standard::F, Operation::Modify, 0.5),
    ] {
        let inputs = YcsbInputs::new(YcsbConfig::standard(mix, 10_000));
        let (mut rng, mut input) = (Rng::with_seed(1), YcsbInput::default());
        let mut count = 0;
        for _ in 0..50_000 {
            inputs.draw(&mut rng, &mut input);
            count += (input.operation == operation) as usize;
        }
        assert!((count as f64 / 50_000.0 - expected).abs() < 0.01, "{mix:?} {count}");
    }
}

/// What a call states are the partitions of its rows: one, or two neighbours.
#[test]
fn a_share_of_the_transactions_spans_partitions() {
    for (share, accesses, rows) in [(0.0, 2, 1500), (0.3, 20, 5000), (1.0, 3, 1400)] {
        let config =
            YcsbConfig { remote: Some(share), accesses, rows, theta: 0.0, ..YcsbConfig::default() };
        let inputs = YcsbInputs::new(config);
        let (mut rng, mut input) = (Rng::with_seed(1), YcsbInput::default());
        let (mut spanning, mut homes) = (0, HashSet::new());
        const DRAWS: usize = 20_000;
        for _ in 0..DRAWS {
            inputs.draw(&mut rng, &mut input);
            let accesses = &input.given.accesses;
            assert!(accesses.rows.iter().all(|row| row.id() < rows));
            let slots: HashSet<u64> = accesses.rows.iter().map(|row| row.id() % 64).collect();
            let home = accesses.rows[0].id() % 64;
            assert!(slots.iter().all(|slot| [home, (home + 1) % 64].contains(slot)), "{slots:?}");
            let first = Partitions::of(home);
            assert_eq!(partitions(accesses), slots.iter().fold(first, |all, slot| all.with(*slot)));
            homes.insert(home);
            spanning += slots.len() - 1;
        }
        assert_eq!(homes.len(), 64);
        assert!((spanning as f64 / DRAWS as f64 - share).abs() < 0.02, "{spanning}");
    }
}

#[test]
fn many_distinct_accesses_are_distinct() {
    let config = YcsbConfig { accesses: 200, rows: 1000, theta: 0.9, ..YcsbConfig::default() };
    let inputs = YcsbInputs::new(config);
    let (mut rng, mut input) = (Rng::with_seed(1), YcsbInput::default());
    for _ in 0..20 {
        inputs.draw(&mut rng, &mut input);
        let ids: HashSet<u64> = input.given.accesses.rows.iter().map(|row| row.id()).collect();
        assert_eq!(ids.len(), 200);
    }
}

/// The second row would be drawn once in a thousand times, the sixteenth once in 10^12.
#[test]
fn a_great_skew_leaves_enough_distinct_rows() {
    for (accesses, hot_share) in [(16, 0.0), (40, 0.0), (16, 1.0), (1, 1.0)] {
        let config = YcsbConfig { rows: 1500, theta: 10.0, accesses, hot_share, ..small() };
        let inputs = YcsbInputs::new(config);
        let (mut rng, mut input) = (Rng::with_seed(3), YcsbInput::default());
        inputs.draw(&mut rng, &mut input);
        let rows = input.given.accesses.rows.iter().map(|row| row.id());
        let distinct: HashSet<u64> = rows.collect();
        assert_eq!(distinct.len(), accesses);
        assert!(distinct.contains(&HOT));
    }
}

#[test]
fn a_change_depends_on_what_was_read() {
    let oracle = populated(&small());
    let order = |calls: [Modify; 2]| {
        let oracle = populated(&small());
        calls.iter().for_each(|call| oracle.transact(|tx| modify(tx, TABLE, call)).unwrap());
        oracle.digest()
    };
    // Two seeds that change the same column.
    let column_of = |seed: u32| column(crate::bytes::mix(seed as u64, 0)).only();
    let other = (1..).find(|&seed| column_of(seed) == column_of(0)).unwrap();
    let (a, b) = (Modify { id: 3, seed: 0 }, Modify { id: 3, seed: other });
    assert_ne!(order([a, b]), order([b, a]));
    assert_ne!(oracle.digest(), order([a, b]));
}

#[test]
fn wrong_amounts_of_values_are_refused() {
    let oracle = populated(&small());
    let mut call = Given::default();
    call.accesses.rows.push(RowAccess::new(1, true));
    for len in [0, 99, 101, 200, 999] {
        call.values = Bytes([0; 1000][..len].into());
        let outcome = oracle.transact(|tx| access_given(tx, TABLE, &call, Reads::default()));
        assert_eq!(outcome, Err(Abort::BadArguments), "{len}");
    }
    call.values = Bytes([0; 1000][..100].into());
    assert_eq!(oracle.transact(|tx| access_given(tx, TABLE, &call, Reads::default())), Ok(()));
}

#[test]
fn arguments_travel_and_are_small() {
    let inputs = YcsbInputs::new(YcsbConfig { values: Values::Argument, ..YcsbConfig::default() });
    let (mut rng, mut input) = (Rng::with_seed(1), YcsbInput::default());
    for _ in 0..100 {
        inputs.draw(&mut rng, &mut input);
        let bytes = postcard::to_stdvec(&input.given).unwrap();
        assert_eq!(postcard::from_bytes::<Given>(&bytes).unwrap(), input.given);
        assert!(postcard::to_stdvec(&input.given.accesses).unwrap().len() <= 14);
    }
}

#[test]
fn a_range_is_scanned_and_one_column_is_written() {
    let config = YcsbConfig { scan_length: Some(40), theta: 0.9, ..small() };
    assert!(config.is_ordered() && !config.is_spread());
    let oracle = populated(&config);
    let inputs = YcsbInputs::new(config.clone());
    let (mut rng, mut input) = (Rng::with_seed(1), YcsbInput::default());
    for _ in 0..200 {
        inputs.draw(&mut rng, &mut input);
        let call = &input.write_and_scan;
        assert!(call.from + 40 <= config.rows);
        assert_eq!(oracle.transact(|tx| write_and_scan(tx, TABLE, call)), Ok(40));
    }
    assert_ne!(oracle.digest(), populated(&config).digest());
    let none = WriteAndScan { count: 0, ..input.write_and_scan };
    assert_eq!(oracle.transact(|tx| write_and_scan(tx, TABLE, &none)), Ok(0));
    // With fewer rows than the scan length, all rows are scanned.
    let all = YcsbConfig { scan_length: Some(2000), ..small() };
    YcsbInputs::new(all).draw(&mut rng, &mut input);
    assert_eq!(oracle.transact(|tx| write_and_scan(tx, TABLE, &input.write_and_scan)), Ok(1500));
}

#[test]
fn what_is_written_is_read_before_if_asked_and_the_outcome_is_the_same() {
    for write_columns in [WriteColumns::One, WriteColumns::All] {
        for values in [Values::Derived, Values::Argument] {
            let run_with = |before_writes| {
                let reads = Reads { before_writes, ..Reads::default() };
                let config =
                    YcsbConfig { write_share: 1.0, write_columns, values, reads, ..small() };
                let oracle = populated(&config);
                let inputs = YcsbInputs::new(config);
                let (mut rng, mut input) = (Rng::with_seed(8), YcsbInput::default());
                for _ in 0..50 {
                    inputs.draw(&mut rng, &mut input);
                    oracle.transact(|tx| run(tx, &input, reads)).unwrap();
                }
                (oracle.gets(), oracle.digest())
            };
            let (without, with) = (run_with(false), run_with(true));
            assert_eq!((without.0, with.0), (0, 100));
            assert_eq!(without.1, with.1);
        }
    }
}
