use super::schema::*;
use super::*;
use crate::oracle::Oracle;
use fastrand::Rng;
use hyades::{Abort, Table, Transaction};

const CONFIG: TatpConfig = TatpConfig { subscribers: 450, seed: 4 };

/// The oracle with the population of these settings.
pub(crate) fn populated_with(config: &TatpConfig) -> (Oracle, TatpTables) {
    let mut schemas = Vec::new();
    let tables = TatpTables::declare(|schema| {
        schemas.push(schema);
        Table::nth(schemas.len() as u32 - 1)
    });
    let oracle = Oracle::new(schemas);
    for part in parts(config) {
        oracle.transact(|tx| populate(tx, &tables, &part)).unwrap();
    }
    (oracle, tables)
}

fn populated() -> (Oracle, TatpTables) {
    populated_with(&CONFIG)
}

/// Runs the transaction of an input.
pub(crate) fn run(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    input: &TatpInput,
) -> Result<(), Abort> {
    match input {
        TatpInput::GetSubscriberData(call) => get_subscriber_data(tx, tables, call).map(drop),
        TatpInput::GetNewDestination(call) => get_new_destination(tx, tables, call).map(drop),
        TatpInput::GetAccessData(call) => get_access_data(tx, tables, call).map(drop),
        TatpInput::UpdateSubscriberData(call) => update_subscriber_data(tx, tables, call),
        TatpInput::UpdateLocation(call) => update_location(tx, tables, call),
        TatpInput::InsertCallForwarding(call) => insert_call_forwarding(tx, tables, call),
        TatpInput::DeleteCallForwarding(call) => delete_call_forwarding(tx, tables, call),
    }
}

fn broken(oracle: &Oracle, tables: &TatpTables) -> Vec<u8> {
    let found = check(oracle, tables, &CONFIG).unwrap();
    found.iter().map(|violation| violation.condition).collect()
}

/// All special facilities.
fn facilities(oracle: &Oracle, tables: &TatpTables) -> Vec<(u32, u32, bool)> {
    let read = |tx: &Transaction<'_>| {
        let rows = tables.special_facility.scan(tx).rows()?;
        Ok(rows.map(|row| (row.s_id, row.sf_type, row.is_active)).collect())
    };
    oracle.transact(read).unwrap()
}

#[test]
fn the_population_follows_the_rules_and_its_seed() {
    let (oracle, tables) = populated_with(&TatpConfig { subscribers: 4000, ..CONFIG });
    let near = |table: Table, expected: f64| {
        let count = oracle.len(table) as f64;
        assert!((count / expected - 1.0).abs() < 0.05, "{count}, not about {expected}");
    };
    assert_eq!(oracle.len(tables.subscriber.untyped()), 4000);
    near(tables.access_info.untyped(), 10_000.0);
    near(tables.special_facility.untyped(), 10_000.0);
    near(tables.call_forwarding.untyped(), 15_000.0);
    let facilities = facilities(&oracle, &tables);
    let active = facilities.iter().filter(|(.., is_active)| *is_active).count() as f64;
    assert!((active / facilities.len() as f64 - 0.85).abs() < 0.02, "{active}");

    let digest = populated().0.digest();
    assert_eq!(digest, populated().0.digest());
    assert_ne!(digest, populated_with(&TatpConfig { seed: 5, ..CONFIG }).0.digest());
}

#[test]
fn the_mix_keeps_the_conditions_and_fails_as_often_as_expected() {
    let (oracle, tables) = populated();
    assert_eq!(check(&oracle, &tables, &CONFIG).unwrap(), []);
    let (inputs, mut rng) = (TatpInputs::new(CONFIG), Rng::with_seed(2));
    let (mut input, mut kinds, mut failed) = (TatpInput::default(), [0; 7], [0; 7]);
    for _ in 0..40_000 {
        inputs.draw(&mut rng, &mut input);
        kinds[input.kind()] += 1;
        match oracle.transact(|tx| run(tx, &tables, &input)) {
            Ok(()) => {}
            Err(Abort::User(NO_SUCH_ROW | ROW_EXISTS)) => failed[input.kind()] += 1,
            Err(other) => panic!("{other:?} by {input:?}"),
        }
    }
    assert_eq!(check(&oracle, &tables, &CONFIG).unwrap(), []);
    for (count, percent) in kinds.iter().zip([35, 10, 35, 2, 14, 2, 2]) {
        assert!((count - percent * 400i32).abs() < 500, "{kinds:?}");
    }
    // 2.5 of 4 types exist; about half of the possible call forwardings of a facility do.
    let shares = [0, 1, 2, 3, 4, 5, 6].map(|kind| failed[kind] as f64 / kinds[kind] as f64);
    assert_eq!((shares[0], shares[4]), (0.0, 0.0));
    for (kind, expected) in [(2, 0.375), (3, 0.375), (5, 0.69), (6, 0.69)] {
        assert!((shares[kind] - expected).abs() < 0.08, "{kind}: {shares:?}");
    }
    assert!((0.6..0.95).contains(&shares[1]), "{shares:?}");
}

#[test]
fn subscribers_with_many_bits_set_are_drawn_more_often() {
    let config = TatpConfig { subscribers: 100_000, ..CONFIG };
    let (inputs, mut rng) = (TatpInputs::new(config), Rng::with_seed(6));
    let (mut input, mut draws, mut frequent) = (TatpInput::default(), 0, 0);
    while draws < 10_000 {
        inputs.draw(&mut rng, &mut input);
        if let TatpInput::GetSubscriberData(GetSubscriberData { s_id }) = input {
            assert!((1..=100_000).contains(&s_id));
            draws += 1;
            frequent += u32::from((s_id - 1).count_ones() > 10);
        }
    }
    // About one in eight of the numbers has more than 10 bits set.
    assert!(frequent > draws / 2, "{frequent}");
    assert_eq!([1, 1_000_000, 1_000_001].map(non_uniform_mask), [65_535, 65_535, 1_048_575]);
    assert_eq!([10_000_000, 10_000_001].map(non_uniform_mask), [1_048_575, 2_097_151]);
}

#[test]
fn a_call_forwarding_is_inserted_found_and_deleted() {
    let (oracle, tables) = populated();
    let run = |input| oracle.transact(|tx| run(tx, &tables, &input));
    let (missing, exists) = (Err(Abort::User(NO_SUCH_ROW)), Err(Abort::User(ROW_EXISTS)));
    let all = facilities(&oracle, &tables);
    let (number, sf_type, _) = *all.iter().find(|(.., is_active)| *is_active).unwrap();
    let s_id = number;
    for start_time in STARTS {
        let call = DeleteCallForwarding { number, sf_type, start_time };
        let _ = run(TatpInput::DeleteCallForwarding(call));
        assert_eq!(run(TatpInput::DeleteCallForwarding(call)), missing);
    }
    let find = |start_time, end_time| {
        let call = GetNewDestination { s_id, sf_type, start_time, end_time };
        run(TatpInput::GetNewDestination(call))
    };
    assert_eq!(find(8, 9), missing);
    let call = InsertCallForwarding { number, sf_type, start_time: 8, end_time: 12, numberx: 77 };
    assert_eq!(run(TatpInput::InsertCallForwarding(call)), Ok(()));
    assert_eq!(run(TatpInput::InsertCallForwarding(call)), exists);
    assert_eq!(
        [find(8, 11), find(16, 1), find(8, 12), find(0, 11)],
        [Ok(()), Ok(()), missing, missing]
    );
    let found =
        oracle.transact(|tx| Ok(*tables.call_forwarding.require(tx, (s_id, sf_type, 8))?.numberx));
    assert_eq!(&found.unwrap(), b"000000000000077");

    let absent = |facility_type: &u32| {
        !all.iter().any(|(s_id, sf_type, _)| (*s_id, *sf_type) == (1, *facility_type))
    };
    if let Some(sf_type) = TYPES.into_iter().find(absent) {
        let call = InsertCallForwarding { number: 1, sf_type, ..call };
        assert_eq!(run(TatpInput::InsertCallForwarding(call)), missing);
        let call = UpdateSubscriberData { s_id: 1, bit_1: true, sf_type, data_a: 1 };
        assert_eq!(run(TatpInput::UpdateSubscriberData(call)), missing);
    }
    let (number, vlr_location) = (9, 1234);
    run(TatpInput::UpdateLocation(UpdateLocation { number, vlr_location })).unwrap();
    let call = GetSubscriberData { s_id: 9 };
    assert_eq!(oracle.transact(|tx| get_subscriber_data(tx, &tables, &call)), Ok(1234));
}

#[test]
fn a_facility_that_is_not_active_has_no_destination() {
    let (oracle, tables) = populated();
    let all = facilities(&oracle, &tables);
    for (s_id, sf_type, _) in all.into_iter().filter(|(.., is_active)| !is_active) {
        let call = GetNewDestination { s_id, sf_type, start_time: 16, end_time: 1 };
        let found = oracle.transact(|tx| get_new_destination(tx, &tables, &call));
        assert_eq!(found, Err(Abort::User(NO_SUCH_ROW)));
    }
}

/// Makes a change, which must be possible, in a populated database; returns the broken conditions.
fn after(change: impl Fn(&Transaction<'_>, &TatpTables) -> Result<bool, Abort>) -> Vec<u8> {
    let (oracle, tables) = populated();
    assert!(oracle.transact(|tx| change(tx, &tables)).unwrap());
    broken(&oracle, &tables)
}

#[test]
fn each_condition_can_break() {
    let numberx = &[b'1'; 15];
    let orphan = CallForwarding { s_id: 451, sf_type: 1, start_time: 0, end_time: 1, numberx };
    assert_eq!(after(|tx, tables| Ok(tables.call_forwarding.insert(tx, &orphan)? == 0)), [4]);
    let info =
        AccessInfo { s_id: 0, ai_type: 1, data1: 0, data2: 0, data3: b"ABC", data4: b"ABCDE" };
    assert_eq!(after(|tx, tables| Ok(tables.access_info.insert(tx, &info)? == 0)), [2]);
    let mut found = after(|tx, tables| tables.subscriber.delete(tx, 20));
    found.dedup();
    assert_eq!(found, [1]);
    let renumber = [Subscriber::SUB_NBR.set(&[b'2'; 15])];
    assert_eq!(after(|tx, tables| tables.subscriber.update(tx, 20, &renumber)), [1]);
    let first = facilities(&populated().0, &populated().1)[0];
    let (s_id, sf_type, _) = first;
    for (start_time, end_time, broken) in [(4, 5, &[5][..]), (7, 7, &[5]), (9, 25, &[5])] {
        let row = CallForwarding { s_id, sf_type, start_time, end_time, numberx };
        assert_eq!(after(|tx, tables| Ok(tables.call_forwarding.insert(tx, &row)? == 0)), broken);
    }
    let without = after(|tx, tables| {
        for sf_type in TYPES {
            tables.special_facility.delete(tx, (s_id, sf_type))?;
        }
        Ok(true)
    });
    assert_eq!(without.first(), Some(&3));
    assert!(without[1..].iter().all(|condition| *condition == 4), "{without:?}");
}
