//! Keyspaces: any keys, in order, apart from each other, up to the limits; scans.
#![allow(missing_docs)]

mod common;

use common::World;
use hyades_deuteronomy::{DataComponent, DataLayer, Database, Limits, MemoryData, Transaction};
use hyades_tables::{Bytes, Error, Keyspace, Tables, View};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

fn keyspaces<const N: usize>(database: &Database, names: [&str; N]) -> [Keyspace; N] {
    let builder = names.iter().fold(Tables::builder(), |builder, name| builder.keyspace(name));
    let tables = builder.open(database).unwrap();
    names.map(|name| tables.keyspace(name).unwrap())
}

fn rows<V: View>(keyspace: &Keyspace, view: &mut V) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = keyspace.scan(view).rows();
    rows.map(|row| row.map(|(key, value)| (key, value.into_vec())).unwrap()).collect()
}

/// Keys of bytes at the edges.
fn keys() -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    for a in [0, 1, 127, 128, 254, 255] {
        keys.push(vec![a]);
        keys.extend([0, 128, 255].map(|b| vec![a, b]));
        keys.push(vec![a; 300]);
    }
    keys.sort();
    keys
}

#[test]
fn keyspaces_do_not_see_each_other() {
    let world = World::new();
    let database = world.open();
    let names: Vec<_> = (0..130).map(|n| format!("keyspace {n}")).collect();
    let builder = names.iter().fold(Tables::builder(), |builder, name| builder.keyspace(name));
    let tables = builder.open(&database).unwrap();
    let all: Vec<_> = names.iter().map(|name| tables.keyspace(name).unwrap()).collect();
    let mut session = database.session().unwrap();
    // Of numbers of one byte and of two.
    let written = [&all[0], &all[1], &all[125], &all[126], &all[129]];
    session
        .execute(|tx| {
            for keyspace in written {
                for key in keys() {
                    keyspace.put(tx, &key, keyspace.name().as_bytes())?;
                }
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    let mut snapshot = session.snapshot().unwrap();
    for keyspace in &all {
        let is_written = written.iter().any(|other| other.name() == keyspace.name());
        let wanted = if is_written { keys() } else { Vec::new() };
        let wanted: Vec<_> =
            wanted.into_iter().map(|key| (key, keyspace.name().as_bytes().to_vec())).collect();
        assert_eq!(rows(keyspace, &mut snapshot), wanted, "{}", keyspace.name());
    }
    drop(snapshot);
    session.execute(|tx| keys().iter().try_for_each(|key| all[0].delete(tx, key))).unwrap();
    let mut snapshot = session.snapshot().unwrap();
    assert_eq!(rows(&all[0], &mut snapshot), []);
    assert_eq!(rows(&all[1], &mut snapshot).len(), keys().len());
}

/// All bounds over all keys, in both orders, with and without a limit, in each view.
fn assert_scans<V: View>(keyspace: &Keyspace, view: &mut V, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let keys = keys();
    let bounds = |key: &'_ [u8]| [Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec())];
    let mut ranges = vec![(Bound::Unbounded, Bound::Unbounded)];
    for (from, to) in keys.iter().zip(keys.iter().cycle().skip(7)) {
        ranges.extend(bounds(from).map(|from| (from, Bound::Unbounded)));
        ranges.extend(bounds(to).map(|to| (Bound::Unbounded, to)));
        let both =
            bounds(from).into_iter().flat_map(|from| bounds(to).map(|to| (from.clone(), to)));
        ranges.extend(both);
    }
    for (at, (from, to)) in ranges.iter().enumerate() {
        use std::ops::RangeBounds;
        let range = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
        let is_in = |key: &&Vec<u8>| RangeBounds::<[u8]>::contains(&range, &key[..]);
        let mut wanted: Vec<_> = model.keys().filter(is_in).cloned().collect();
        let mut scan = keyspace.scan(view).range(range);
        if at % 2 == 1 {
            wanted.reverse();
            scan = scan.descending();
        }
        if at % 3 == 1 {
            wanted.truncate(4);
            scan = scan.limit(4);
        }
        let found: Vec<_> = scan.rows().map(|row| row.unwrap().0).collect();
        assert_eq!(found, wanted, "{range:?}");
    }
    for prefix in [&b""[..], &[0], &[127], &[255], &[255, 255], b"none"] {
        let wanted: Vec<_> = model.keys().filter(|key| key.starts_with(prefix)).collect();
        let mut found = Vec::new();
        let each = |key: &[u8], value: &[u8]| {
            assert_eq!(model[key], value);
            found.push(key.to_vec());
            ControlFlow::Continue(())
        };
        keyspace.scan(view).prefix(prefix).each(each).unwrap();
        assert!(found.iter().eq(wanted), "{prefix:?}");
    }
}

#[test]
fn scans_are_of_ordered_maps_in_every_view() {
    let world = World::new();
    let database = world.open();
    let [keyspace] = keyspaces(&database, ["all"]);
    let mut session = database.session().unwrap();
    let model: BTreeMap<_, _> = keys().into_iter().map(|key| (key.clone(), key)).collect();
    session
        .execute(|tx| {
            model.iter().try_for_each(|(key, value)| keyspace.put(tx, key, value))?;
            assert_scans(&keyspace, tx, &model);
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_scans(&keyspace, &mut session.snapshot().unwrap(), &model);
    assert_scans(&keyspace, &mut database.long_snapshot().unwrap(), &model);
}

/// Chunks end somewhere in the range: no row is twice, none is left out.
#[test]
fn scans_of_many_chunks_have_each_row_once() {
    let world = World::new();
    let database = world.open();
    let [keyspace] = keyspaces(&database, ["many"]);
    let mut session = database.session().unwrap();
    for start in (0..5000u32).step_by(500) {
        let put = |tx: &mut Transaction<'_>, n: u32| {
            // Some values are long, so chunks have different numbers of rows.
            let value = vec![1; if n.is_multiple_of(97) { 60_000 } else { 3 }];
            keyspace.put(tx, &n.to_be_bytes(), &value)
        };
        session.execute(|tx| (start..start + 500).try_for_each(|n| put(tx, n))).unwrap();
    }
    let mut snapshot = database.long_snapshot().unwrap();
    let number = |row: Result<(Vec<u8>, Bytes), Error>| {
        u32::from_be_bytes(row.unwrap().0.try_into().unwrap())
    };
    let up: Vec<_> = keyspace.scan(&mut snapshot).rows().map(number).collect();
    assert!(up.into_iter().eq(0..5000));
    let down = session.execute(|tx| {
        Ok::<Vec<_>, Error>(keyspace.scan(tx).descending().rows().map(number).collect())
    });
    assert!(down.unwrap().into_iter().eq((0..5000).rev()));
    let mut taken = 0;
    let stop = |_: &[u8], _: &[u8]| {
        taken += 1;
        if taken < 2500 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    keyspace.scan(&mut snapshot).each(stop).unwrap();
    assert_eq!(taken, 2500);
}

/// A scan in a transaction is serializable: no phantom in the scanned chunks.
#[test]
fn a_writer_into_a_scanned_range_is_before_or_behind_the_scan() {
    let world = World::new();
    let database = world.open();
    let [keyspace] = keyspaces(&database, ["shared"]);
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (mut session, keyspace) = (database.session().unwrap(), keyspace.clone());
            scope.spawn(move || {
                for n in 0..60u8 {
                    // The number of rows becomes the key: two transactions with the same number
                    // would write the same key.
                    let done = session.execute(|tx| {
                        let count = keyspace.scan(tx).rows().count() as u64;
                        keyspace.insert(tx, &count.to_be_bytes(), &[thread, n])
                    });
                    done.unwrap();
                }
            });
        }
    });
    let mut session = database.session().unwrap();
    assert_eq!(rows(&keyspace, &mut session.snapshot().unwrap()).len(), 180);
}

/// A data component of short keys.
struct ShortKeys(MemoryData);

impl DataLayer for ShortKeys {
    fn below(&self) -> &dyn DataComponent {
        &self.0
    }

    fn limits(&self) -> Limits {
        Limits { key_bytes: 64, ..self.0.limits() }
    }
}

#[test]
fn keys_up_to_the_limit_of_the_data_component_are_taken() {
    let world = World::new();
    let database = world.open_over(Arc::new(ShortKeys(MemoryData::outliving())));
    let [keyspace] = keyspaces(&database, ["short"]);
    let mut session = database.session().unwrap();
    let long = vec![255; 63];
    session.execute(|tx| keyspace.put(tx, &long, &vec![1; 600_000])).unwrap();
    let longer = vec![255; 64];
    let refused = session.execute(|tx| keyspace.put(tx, &longer, b"")).unwrap_err();
    use hyades_deuteronomy::Error::KeyTooLong;
    assert!(matches!(refused, Error::Database(KeyTooLong(65, 64))), "{refused}");
    session
        .execute(|tx| {
            assert_eq!(keyspace.get(tx, &long)?.unwrap().len(), 600_000);
            assert_eq!(keyspace.get(tx, &longer)?, None);
            let range = &long[..]..&longer[..];
            assert_eq!(keyspace.scan(tx).range(range).rows().count(), 1);
            assert_eq!(keyspace.scan(tx).prefix(&longer).rows().count(), 0);
            Ok::<_, Error>(())
        })
        .unwrap();
}

#[test]
fn operations_say_what_was_there() {
    let world = World::new();
    let database = world.open();
    let builder = Tables::builder().keyspace("any").small_keyspace("small").piece_bytes(100);
    let tables = builder.open(&database).unwrap();
    let mut session = database.session().unwrap();
    for name in ["any", "small"] {
        let keyspace = tables.keyspace(name).unwrap();
        session
            .execute(|tx| {
                keyspace.insert(tx, b"", b"")?;
                assert!(matches!(keyspace.insert(tx, b"", b"1"), Err(Error::Exists(_))));
                assert_eq!(keyspace.get(tx, b"")?.as_deref(), Some(&b""[..]));
                keyspace.put(tx, b"", &[7; 100])?;
                assert!(keyspace.contains(tx, b"")?);
                keyspace.delete(tx, b"")?;
                keyspace.delete(tx, b"")?;
                assert!(!keyspace.contains(tx, b"")?);
                Ok::<_, Error>(())
            })
            .unwrap();
    }
    let small = tables.keyspace("small").unwrap();
    let refused = session.execute(|tx| small.put(tx, b"k", &[7; 101])).unwrap_err();
    assert!(matches!(refused, Error::ValueTooLarge { bytes: 101, source: None }), "{refused}");
    assert!(matches!(tables.keyspace("other"), Err(Error::Declaration(_))));
}
