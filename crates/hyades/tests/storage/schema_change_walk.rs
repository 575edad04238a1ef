//! Changes of the schema that are interrupted, and many of them, against a model. Promise: until a
//! change is in force the database has its old schema, and nothing is lost at any step.

use crate::common::evolving::{
    ColumnOf, IndexOf, Op, Owned, Rows, TableOf, Tables, With, column, copy, index, nullable, open,
    random_ops, rows, run, taken, try_open, whole, with_default,
};
use crate::common::{Combination, combinations, directory, fingerprint, power_cut, refused};
use hyades::{Database, Error, RecordKind, Type};
use std::collections::BTreeMap;
use std::path::Path;

/// A change of everything that can change at once.
fn changed(before: &Tables, c: Combination) -> Tables {
    let mut after = before.clone();
    let accounts = after.table("accounts");
    accounts.columns.insert(1, with_default("level", Type::I64, Owned::Int(3)));
    accounts.indexes.remove(0);
    accounts.indexes.push(index("by_id_and_level", &["level", "id"], true));
    after.table("events").columns.push(nullable("note", Type::Text));
    let added = TableOf { name: "added".into(), ..after.table("old").clone() };
    after.tables.push(added);
    if c.record == RecordKind::Data {
        after.drop_table("old");
    }
    after
}

/// Cuts the power `step` changes of the device after the start of the opening. Returns whether the
/// opening completed.
fn power_fails_at(from: &Path, c: Combination, [before, after]: [&Tables; 2], step: u64) -> bool {
    let dir = directory();
    copy(from, dir.path());
    let device = power_cut(step);
    device.cut_after(step);
    let with = With { device: Some(device.clone()), ..With::default() };
    let opened = try_open(dir.path(), after, c, &with);
    let through = opened.is_ok();
    device.cut();
    drop(opened);
    let what = format!("{c:?} step {step}");
    let (wanted, ..) = reference(from, before, c);
    // Every second time with the old declaration first.
    if step.is_multiple_of(2) {
        let untouched = fingerprint(dir.path());
        match try_open(dir.path(), before, c, &With::default()) {
            Ok((db, _watched)) => {
                assert!(!through, "{what}: the change was in force when open returned");
                assert_eq!(rows(&db, before), wanted, "{what}, with the old declaration");
            }
            Err(Error::Mismatch(why)) => {
                assert!(why.contains("not declared"), "{what}: {why}");
                assert_eq!(fingerprint(dir.path()), untouched, "{what}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    for _ in 0..2 {
        let (db, _watched) = open(dir.path(), after, c);
        assert_eq!(rows(&db, after), after.convert(&wanted), "{what}, with the new declaration");
    }
    through
}

/// The rows of a database, from a copy of its directory.
fn reference(from: &Path, tables: &Tables, c: Combination) -> (Rows, u64) {
    let dir = directory();
    copy(from, dir.path());
    let (db, _watched) = open(dir.path(), tables, c);
    (rows(&db, tables), db.digest())
}

#[test]
fn a_power_cut_at_any_step_of_a_change_loses_nothing() {
    for (seed, c) in combinations().into_iter().enumerate().filter(|(_, c)| c.streams < 16) {
        let dir = directory();
        let before = Tables::first();
        let device = power_cut(seed as u64);
        let with = With { device: Some(device.clone()), ..With::default() };
        let (db, watched) = try_open(dir.path(), &before, c, &with).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        run(&db, &before, &mut rng, 30);
        if seed % 3 == 0 {
            db.checkpoint().unwrap();
            run(&db, &before, &mut rng, 20);
        }
        device.cut();
        drop((db, watched));
        let after = changed(&before, c);
        // All steps of some combinations, some steps of all combinations.
        let stride = if seed % 8 == 0 { 1 } else { 4 };
        let mut step = seed as u64 % stride;
        while !power_fails_at(dir.path(), c, [&before, &after], step) {
            step += stride;
            assert!(step < 300, "an opening has no more steps than that");
        }
        assert!(step > 10, "it has more steps than {step}");
    }
}

/// A row as the model has it.
type Row = BTreeMap<String, Owned>;

/// What transactions do, on the model. `ids` are the hidden row ids that the database used.
fn model_apply(tables: &Tables, model: &mut Rows, ops: &[Op], ids: Vec<u64>) {
    let mut ids = ids.into_iter();
    for op in ops {
        if !model_apply_one(tables, model, op, &mut ids) {
            assert!(model_apply_one(tables, model, &taken(op), &mut ids));
        }
    }
    assert_eq!(ids.next(), None);
}

fn model_apply_one(
    tables: &Tables,
    model: &mut Rows,
    op: &Op,
    ids: &mut impl Iterator<Item = u64>,
) -> bool {
    let (Op::Insert(name, _) | Op::Upsert(name, _) | Op::Update(name, ..) | Op::Delete(name, _)) =
        op;
    let table = tables.named(name).unwrap().1;
    let rows = model.entry(name.clone()).or_default();
    let named = |given: &[(String, Owned)]| -> Row {
        let names = table.columns.iter().map(|column| column.name.clone());
        names.zip(whole(table, given)).collect()
    };
    let (key, row) = match op {
        Op::Delete(_, key) => {
            rows.remove(key);
            return true;
        }
        Op::Update(_, key, sets) => {
            let Some(mut row) = rows.get(key).cloned() else { return true };
            row.extend(sets.iter().cloned());
            (*key, row)
        }
        Op::Insert(_, given) if table.keyless => {
            rows.insert(ids.next().expect("a row id") as i64, named(given));
            return true;
        }
        Op::Insert(_, given) | Op::Upsert(_, given) => {
            let row = named(given);
            let Owned::Int(key) = row["id"] else { panic!("{row:?}") };
            if matches!(op, Op::Insert(..)) && rows.contains_key(&key) {
                return false;
            }
            (key, row)
        }
    };
    let before = rows.insert(key, row);
    let fits = duplicates(table, rows).is_none();
    if !fits {
        match before {
            Some(before) => rows.insert(key, before),
            None => rows.remove(&key),
        };
    }
    fits
}

/// A unique index in which two rows share a key.
fn duplicates<'t>(table: &'t TableOf, rows: &BTreeMap<i64, Row>) -> Option<&'t IndexOf> {
    table.indexes.iter().filter(|index| index.unique).find(|index| {
        let key = |row: &Row| -> Vec<Owned> {
            index.columns.iter().map(|column| row[column].clone()).collect()
        };
        let mut keys: Vec<_> =
            rows.values().map(key).filter(|key| !key.contains(&Owned::Null)).collect();
        keys.sort();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    })
}

/// Makes one change; `n` is part of new names.
fn change(tables: &mut Tables, rng: &mut fastrand::Rng, n: usize) {
    let at = rng.usize(..tables.tables.len());
    let table = &mut tables.tables[at];
    let name = format!("c{n}");
    let mut insert = |column: ColumnOf| {
        let at = rng.usize(..=table.columns.len());
        table.columns.insert(at, column);
    };
    match n % 9 {
        0 => insert(nullable(&name, Type::Text)),
        1 => insert(with_default(&name, Type::I64, Owned::Int(n as i64))),
        2 => insert(with_default(&name, Type::Text, Owned::Text(format!("default {n}")))),
        3 => insert(ColumnOf { nullable: true, ..with_default(&name, Type::I64, Owned::Int(1)) }),
        4 => rng.shuffle(&mut table.columns),
        5 | 6 if !table.keyless => {
            let column = table.columns[rng.usize(..table.columns.len())].name.clone();
            let columns = if column == "id" { vec![column] } else { vec![column, "id".into()] };
            // Alone, the column may have duplicates.
            let columns = columns[..rng.usize(1..=columns.len())].to_vec();
            table.indexes.push(IndexOf { name: format!("i{n}"), columns, unique: n % 9 == 5 });
        }
        7 if !table.indexes.is_empty() => {
            table.indexes.remove(rng.usize(..table.indexes.len()));
        }
        8 if !["accounts", "events"].contains(&&*table.name) => {
            let name = table.name.clone();
            tables.drop_table(&name);
        }
        _ => {
            let columns = vec![column("id", Type::I64), column("owner", Type::Text)];
            let indexes = vec![index("by_owner", &["owner"], rng.bool())];
            let name = format!("t{n}");
            tables.tables.push(TableOf { name, columns, keyless: false, hash: false, indexes });
        }
    }
}

/// Runs acknowledged transactions on the database and on the model.
fn work(db: &Database, tables: &Tables, model: &mut Rows, rng: &mut fastrand::Rng) {
    let apply = db.prepare("apply").unwrap();
    let mut session = db.session().unwrap();
    let mut tickets = Vec::new();
    for _ in 0..rng.usize(0..25) {
        let ops = random_ops(tables, rng);
        let (result, ticket) = session.call(apply, &ops).unwrap();
        result.unwrap();
        model_apply(tables, model, &ops, session.result().unwrap());
        tickets.push(ticket);
    }
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
}

/// A unique index that the rows do not allow is refused, and then not declared.
fn refuse_duplicates(dir: &Path, tables: &mut Tables, c: Combination, model: &Rows) -> bool {
    let rows = tables.convert(model);
    let clash = tables.tables.iter().find_map(|table| {
        Some((table.name.clone(), duplicates(table, &rows[&table.name])?.name.clone()))
    });
    let Some((table, index)) = clash else { return false };
    let before = fingerprint(dir);
    let result = try_open(dir, tables, c, &With::default());
    let error = refused(result.map(drop), "a unique index over duplicates").to_string();
    assert!(error.contains(&format!("{index:?}")) && error.contains(&table), "{error}");
    assert_eq!(fingerprint(dir), before, "a refusal changed something");
    tables.table(&table).indexes.retain(|i| i.name != index);
    true
}

/// Random changes and transactions, with crashes. Returns how many changes there were.
fn walk(seed: u64) -> [usize; 3] {
    let mut rng = fastrand::Rng::with_seed(seed);
    let all = combinations();
    let c = all[rng.usize(..all.len())];
    let c = Combination { streams: c.streams.min(3), ..c };
    let dir = directory();
    let (mut tables, mut model) = (Tables::first(), Rows::new());
    let mut counts = [0; 3];
    for incarnation in 0..rng.usize(3..7) {
        let mut next = tables.clone();
        for n in 0..if incarnation == 0 { 0 } else { rng.usize(0..4) } {
            let number = rng.usize(0..9) + 9 * (n + 4 * incarnation);
            change(&mut next, &mut rng, number);
            counts[0] += 1;
        }
        let what = format!("seed {seed} {c:?} incarnation {incarnation}");
        if next.dropped != tables.dropped && c.record != RecordKind::Data {
            // Calls in the log may need the table.
            let (db, _watched) = open(dir.path(), &tables, c);
            db.checkpoint().unwrap();
        }
        while refuse_duplicates(dir.path(), &mut next, c, &model) {
            counts[1] += 1;
        }
        for _ in 0..rng.usize(0..3) {
            let device = power_cut(seed);
            device.cut_after(rng.u64(0..60));
            let with = With { device: Some(device.clone()), ..With::default() };
            let opened = try_open(dir.path(), &next, c, &with);
            counts[2] += usize::from(opened.is_err());
            device.cut();
        }
        // The old program would declare a dropped table anew.
        if next.dropped == tables.dropped
            && rng.bool()
            && let Ok((db, _watched)) = try_open(dir.path(), &tables, c, &With::default())
        {
            assert_eq!(rows(&db, &tables), tables.convert(&model), "{what}, under the old schema");
        }
        let device = power_cut(seed);
        let threads = rng.usize(1..4);
        let with = With { device: Some(device.clone()), threads, ..With::default() };
        let opened = try_open(dir.path(), &next, c, &with);
        let (db, _watched) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        model = next.convert(&model);
        assert_eq!(rows(&db, &next), model, "{what}");
        work(&db, &next, &mut model, &mut rng);
        if rng.u8(..3) == 0 {
            db.checkpoint().unwrap();
            work(&db, &next, &mut model, &mut rng);
        }
        device.cut();
        tables = next;
    }
    let (db, _watched) = open(dir.path(), &tables, c);
    assert_eq!(rows(&db, &tables), tables.convert(&model), "seed {seed} {c:?}, at the end");
    counts
}

#[test]
fn random_changes_and_crashes_agree_with_the_model() {
    let mut counts = [0; 3];
    for seed in 0..150 {
        counts.iter_mut().zip(walk(seed)).for_each(|(sum, n)| *sum += n);
    }
    let [changes, refusals, failures] = counts;
    assert!(changes > 300 && refusals > 2 && failures > 50, "{counts:?}");
}
