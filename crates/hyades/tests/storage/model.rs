//! Random operations of one thread compared with a model, over every kind of table, with
//! savepoints, aborts and reopenings.

use crate::common::directory;
use hyades::{
    Abort, Column, Concurrency, Database, Index, Protocol, RecordKind, Replay, Row, Schema, Set,
    Table, Transaction, Type, Value,
};
use hyades_schemes::all_controls;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

const ROWS: Table = Table::nth(0);
const GROUP: Column<i32> = Column::at(1);
const NAME: Column<Option<&str>> = Column::at(2);
const TEXT: Column<str> = Column::at(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hash,
    Ordered,
    /// Hidden row ids: a step's key denotes the last row inserted under the key.
    Keyless,
}

#[derive(Clone, Debug)]
struct Content {
    group: i32,
    /// Unique, or null.
    name: Option<u8>,
    text: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(i32, Content),
    Upsert(i32, Content),
    Update(i32, Option<i32>, Option<Option<u8>>, Option<usize>),
    Delete(i32),
    Get(i32),
    Scan { from: i32, to: i32, descending: bool, limit: usize },
    ScanGroup { group: i32, descending: bool, limit: usize },
    ScanName(u8),
    Savepoint,
    Rollback,
}

#[derive(Clone, Debug)]
struct Work {
    steps: Vec<Step>,
    abort: bool,
}

fn key() -> impl Strategy<Value = i32> {
    0..12i32
}

fn content() -> impl Strategy<Value = Content> {
    (0..4i32, prop::option::of(0..5u8), prop_oneof![0..20usize, 0..400usize])
        .prop_map(|(group, name, text)| Content { group, name, text })
}

fn step() -> impl Strategy<Value = Step> {
    let change = (
        key(),
        prop::option::of(0..4i32),
        prop::option::of(prop::option::of(0..5u8)),
        prop::option::of(0..300usize),
    );
    let scan = (key(), key(), any::<bool>(), 0..6usize);
    prop_oneof![
        4 => (key(), content()).prop_map(|(k, c)| Step::Insert(k, c)),
        2 => (key(), content()).prop_map(|(k, c)| Step::Upsert(k, c)),
        4 => change.prop_map(|(k, g, n, t)| Step::Update(k, g, n, t)),
        3 => key().prop_map(Step::Delete),
        2 => key().prop_map(Step::Get),
        2 => scan.prop_map(|(from, to, descending, limit)| Step::Scan {
            from, to, descending, limit: if limit == 5 { usize::MAX } else { limit },
        }),
        2 => (0..4i32, any::<bool>(), 1..6usize).prop_map(|(group, descending, limit)| {
            Step::ScanGroup { group, descending, limit }
        }),
        1 => (0..5u8).prop_map(Step::ScanName),
        1 => Just(Step::Savepoint),
        1 => Just(Step::Rollback),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    let steps = prop::collection::vec(step(), 1..10);
    (steps, prop::bool::weighted(0.2)).prop_map(|(steps, abort)| Work { steps, abort })
}

fn schema(kind: Kind) -> Schema {
    let schema = Schema::new("rows")
        .column("id", Type::I32)
        .column("group", Type::I32)
        .nullable("name", Type::Text)
        .column("text", Type::Text);
    let schema = match kind {
        Kind::Hash => schema.primary_key(&["id"]).hash(),
        Kind::Ordered => schema.primary_key(&["id"]),
        Kind::Keyless => schema,
    };
    schema.index("by_group", &["group"]).unique("by_name", &["name"])
}

fn open(dir: &Path, kind: Kind, concurrency: Concurrency) -> Database {
    let mut builder = Database::builder()
        .concurrency(concurrency)
        .protocol(Protocol::Taurus)
        .streams(2)
        .record(RecordKind::Data)
        .recovery_threads(2)
        .replay(Replay::Wavefront)
        .log_settings(|log| {
            log.segment_bytes = 1 << 18;
            log.buffer_bytes = 1 << 14;
            log.research.anchor_interval_bytes = 500;
        });
    builder.table(schema(kind));
    builder.open(dir).unwrap()
}

/// The model: rows by primary key or by row id.
#[derive(Clone, Debug, Default)]
struct Model {
    rows: BTreeMap<u64, (i32, Content)>,
    /// In a keyless table, the row id denoted by the key of a step.
    ids: BTreeMap<i32, u64>,
}

fn text(len: usize) -> String {
    "abc".repeat(len)
}

fn name_of(name: Option<u8>) -> Option<String> {
    name.map(|n| format!("n{n}"))
}

fn same(row: &Row<'_>, id: i32, content: &Content) -> bool {
    row.value(0) == Value::I32(id)
        && row.get(GROUP) == content.group
        && row.get(NAME) == name_of(content.name).as_deref()
        && row.get(TEXT) == text(content.text)
}

impl Model {
    fn key(&self, kind: Kind, id: i32) -> u64 {
        match kind {
            // No row has this id.
            Kind::Keyless => self.ids.get(&id).copied().unwrap_or(1 << 60),
            _ => id as u64,
        }
    }

    fn name_taken(&self, name: Option<u8>, but: Option<u64>) -> bool {
        let taken = |(k, (_, c)): (&u64, &(i32, Content))| Some(*k) != but && c.name == name;
        name.is_some() && self.rows.iter().any(taken)
    }
}

const NAME_TAKEN: Abort = Abort::DuplicateKey { table: 0, index: Some(1) };

fn get<'t>(tx: &Transaction<'t>, kind: Kind, key: u64) -> Result<Option<Row<'t>>, Abort> {
    if kind == Kind::Keyless { tx.get(ROWS, key) } else { tx.get(ROWS, key as i32) }
}

/// Applies one writing step to both and compares the results.
fn write(tx: &Transaction<'_>, kind: Kind, model: &mut Model, step: &Step) -> Result<(), Abort> {
    match step {
        Step::Insert(id, content) | Step::Upsert(id, content) => {
            let upsert = matches!(step, Step::Upsert(..)) && kind != Kind::Keyless;
            let (name, text) = (name_of(content.name), text(content.text));
            let name = name.as_deref().map_or(Value::Null, Value::Text);
            let row = [(*id).into(), content.group.into(), name, text[..].into()];
            let at = (kind != Kind::Keyless).then_some(*id as u64);
            let there = at.is_some_and(|at| model.rows.contains_key(&at));
            let result =
                if upsert { tx.upsert(ROWS, &row).map(u64::from) } else { tx.insert(ROWS, &row) };
            let taken = model.name_taken(content.name, at.filter(|_| upsert));
            let new = match result {
                Err(Abort::DuplicateKey { table: 0, index: None }) => {
                    assert!(there && !upsert);
                    return Ok(());
                }
                Err(abort) if abort == NAME_TAKEN => {
                    assert!(taken, "{step:?}: the name is free");
                    return Ok(());
                }
                Err(abort) => return Err(abort),
                Ok(new) => new,
            };
            assert!(!taken && (upsert || !there), "{step:?}");
            assert!(!upsert || there == (new == 1));
            let at = at.unwrap_or(new);
            model.ids.insert(*id, at);
            model.rows.insert(at, (*id, content.clone()));
        }
        Step::Update(id, group, name, len) => {
            let at = model.key(kind, *id);
            let (new_name, new_text) = (name.map(name_of), len.map(text));
            let mut sets: Vec<Set<'_>> = Vec::new();
            sets.extend(group.map(|g| GROUP.set(g)));
            sets.extend(new_name.as_ref().map(|n| match n {
                Some(n) => NAME.set(&n[..]),
                None => NAME.set(Value::Null),
            }));
            sets.extend(new_text.as_ref().map(|t| TEXT.set(&t[..])));
            let result = match kind {
                Kind::Keyless => tx.update(ROWS, at, &sets),
                _ => tx.update(ROWS, *id, &sets),
            };
            let there = model.rows.contains_key(&at);
            let taken = name.is_some_and(|name| there && model.name_taken(name, Some(at)));
            if taken {
                assert_eq!(result, Err(NAME_TAKEN), "{step:?}");
                return Ok(());
            }
            assert_eq!(result?, there, "{step:?}");
            if let Some((_, content)) = model.rows.get_mut(&at) {
                content.group = group.unwrap_or(content.group);
                content.name = name.unwrap_or(content.name);
                content.text = len.unwrap_or(content.text);
            }
        }
        Step::Delete(id) => {
            let at = model.key(kind, *id);
            let gone = match kind {
                Kind::Keyless => tx.delete(ROWS, at)?,
                _ => tx.delete(ROWS, *id)?,
            };
            assert_eq!(gone, model.rows.remove(&at).is_some(), "{step:?}");
        }
        _ => unreachable!("it writes nothing"),
    }
    Ok(())
}

fn compare(rows: &[Row<'_>], expected: &[&(i32, Content)], what: &str) {
    assert_eq!(rows.len(), expected.len(), "{what}: {expected:?}");
    for (row, (id, content)) in rows.iter().zip(expected) {
        assert!(same(row, *id, content), "{what}: row {:?} is not {id} {content:?}", row.value(0));
    }
}

/// Applies one reading step to both and compares the results.
fn read(tx: &Transaction<'_>, kind: Kind, model: &Model, step: &Step) -> Result<(), Abort> {
    let what = format!("{step:?}");
    let ordered = |mut rows: Vec<_>, descending: bool, limit: usize| {
        if descending {
            rows.reverse();
        }
        rows.truncate(limit);
        rows
    };
    match step {
        Step::Get(id) => {
            let at = model.key(kind, *id);
            let row = get(tx, kind, at)?;
            assert_eq!(row.is_some(), model.rows.contains_key(&at), "{what}");
            if let (Some(row), Some((id, content))) = (row, model.rows.get(&at)) {
                assert!(same(&row, *id, content), "{what}");
            }
        }
        Step::Scan { from, to, descending, limit } => {
            if kind == Kind::Hash {
                return Ok(());
            }
            let value = |v: i32| match kind {
                Kind::Keyless => Value::U64(v as u64 * 3),
                _ => Value::I32(v),
            };
            let (lower, upper) = ([value(*from)], [value(*to)]);
            let scan = tx.scan(ROWS).from(&lower).before(&upper).limit(*limit);
            let rows = if *descending { scan.descending() } else { scan }.rows()?;
            let factor = if kind == Kind::Keyless { 3 } else { 1 };
            let (low, high) = (*from as u64 * factor, *to as u64 * factor);
            let within = model.rows.range(low..high.max(low)).map(|(_, row)| row).collect();
            compare(rows, &ordered(within, *descending, *limit), &what);
        }
        Step::ScanGroup { group, descending, limit } => {
            let prefix = [Value::I32(*group)];
            let scan = tx.scan_index(ROWS, Index(0)).prefix(&prefix).limit(*limit);
            let rows = if *descending { scan.descending() } else { scan }.rows()?;
            let within = model.rows.values().filter(|(_, c)| c.group == *group).collect();
            compare(rows, &ordered(within, *descending, *limit), &what);
        }
        Step::ScanName(name) => {
            let text = format!("n{name}");
            let prefix = [Value::Text(&text)];
            let rows = tx.scan_index(ROWS, Index(1)).prefix(&prefix).rows()?;
            let within: Vec<_> =
                model.rows.values().filter(|(_, c)| c.name == Some(*name)).collect();
            compare(rows, &within, &what);
        }
        _ => unreachable!("it reads nothing"),
    }
    Ok(())
}

fn run(tx: &Transaction<'_>, kind: Kind, model: &mut Model, work: &Work) -> Result<(), Abort> {
    let mut savepoints = Vec::new();
    for step in &work.steps {
        match step {
            Step::Savepoint => savepoints.push((tx.savepoint(), model.clone())),
            Step::Rollback => {
                if let Some((savepoint, then)) = savepoints.pop() {
                    tx.rollback_to(savepoint)?;
                    *model = then;
                }
            }
            Step::Insert(..) | Step::Upsert(..) | Step::Update(..) | Step::Delete(..) => {
                // A caller that goes on after a failed statement must roll back to a savepoint
                // before the statement.
                let before = tx.savepoint();
                let untouched = model.clone();
                write(tx, kind, model, step)?;
                if model.rows.len() > 10 {
                    tx.rollback_to(before)?;
                    *model = untouched;
                }
            }
            _ => read(tx, kind, model, step)?,
        }
    }
    if work.abort { Err(Abort::User(1)) } else { Ok(()) }
}

fn agree(db: &Database, kind: Kind, model: &Model) {
    let everything: Vec<Step> = (0..12)
        .map(Step::Get)
        .chain((0..4).map(|group| Step::ScanGroup { group, descending: false, limit: 100 }))
        .chain((0..5).map(Step::ScanName))
        .collect();
    let result = db.try_transact(|tx| everything.iter().try_for_each(|s| read(tx, kind, model, s)));
    result.unwrap().unwrap();
    assert_eq!(db.rows(), model.rows.len() as u64);
}

fn history(kind: Kind, concurrency: Concurrency, works: &[Work]) {
    let dir = directory();
    let mut db = open(dir.path(), kind, concurrency);
    let mut model = Model::default();
    for (n, work) in works.iter().enumerate() {
        let result = db.try_transact(|tx| {
            // The body runs again after a conflict, which cannot occur with one thread.
            let mut next = model.clone();
            run(tx, kind, &mut next, work).map(|()| next)
        });
        match result.unwrap() {
            Ok(next) => model = next,
            Err(abort) => assert_eq!(abort, Abort::User(1)),
        }
        if n % 16 == 15 {
            agree(&db, kind, &model);
            let digest = db.digest();
            drop(db);
            db = open(dir.path(), kind, concurrency);
            assert_eq!(db.digest(), digest);
        }
    }
    agree(&db, kind, &model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_table_is_what_the_model_says(works in prop::collection::vec(work(), 1..40)) {
        for kind in [Kind::Hash, Kind::Ordered, Kind::Keyless] {
            for concurrency in all_controls() {
                history(kind, concurrency, &works);
            }
        }
    }
}
