//! Declarations against a database with others: created, changed, refused.
#![allow(missing_docs)]

mod common;

use common::{PlainPlayer, Player, World};
use hyades::{Table, TableRow};
use hyades_deuteronomy::{Database, Session};
use hyades_tables::{Error, Tables, TypedTable};

fn refusal(tables: Result<Tables, Error>) -> (Error, String) {
    let error = tables.expect_err("it was opened");
    let text = error.to_string();
    (error, text)
}

#[test]
fn declarations_wrong_in_themselves_are_refused() {
    #[derive(Table)]
    struct Keyless {
        only: i64,
    }
    let world = World::new();
    let database = world.open();
    let _ = Keyless { only: 1 };
    let wrong = [
        (Tables::builder().keyspace("a").small_keyspace("a"), "\"a\" is declared twice"),
        (Tables::builder().table_of::<Player>().table_of::<PlainPlayer>(), "\"player\""),
        (Tables::builder().table_of::<Keyless>(), "\"keyless\" has no primary key"),
    ];
    for (builder, part) in wrong {
        let (error, text) = refusal(builder.open(&database));
        assert!(matches!(error, Error::Declaration(_)) && text.contains(part), "{text}");
    }
    let tables = Tables::builder().table_of::<Player>().open(&database).unwrap();
    assert!(matches!(tables.table_of::<PlainPlayer>(), Err(Error::Declaration(_))));
    assert!(matches!(tables.table_of::<Keyless>(), Err(Error::Declaration(_))));
}

#[test]
fn an_opening_says_what_it_created_and_leaves_the_rest_alone() {
    let mut world = World::new();
    let database = world.open();
    let tables = Tables::builder().keyspace("k").table_of::<Player>().open(&database).unwrap();
    assert_eq!(tables.changes(), ["created keyspace \"k\"", "created table \"player\""]);
    let mut session = database.session().unwrap();
    let keyspace = tables.keyspace("k").unwrap();
    session.execute(|tx| keyspace.put(tx, b"a", b"1")).unwrap();
    drop((session, tables));
    world.crash(database, &mut fastrand::Rng::with_seed(1));
    let database = world.open();
    let other = Tables::builder().keyspace("other").open(&database).unwrap();
    assert_eq!(other.changes(), ["created keyspace \"other\""]);
    let tables = Tables::builder().keyspace("k").table_of::<Player>().open(&database).unwrap();
    assert!(tables.changes().is_empty());
    let mut snapshot = database.long_snapshot().unwrap();
    let keyspace = tables.keyspace("k").unwrap();
    assert_eq!(keyspace.get(&mut snapshot, b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_keyspace_keeps_its_kind() {
    let world = World::new();
    let database = world.open();
    Tables::builder().keyspace("any").small_keyspace("small").open(&database).unwrap();
    for builder in [Tables::builder().small_keyspace("any"), Tables::builder().keyspace("small")] {
        let (error, text) = refusal(builder.open(&database));
        assert!(matches!(error, Error::Mismatch(_)) && text.contains("any size"), "{text}");
    }
}

#[test]
fn a_database_of_other_keys_or_of_another_format_is_refused() {
    let world = World::new();
    let database = world.open();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"plain", b"key")).unwrap();
    let (error, text) = refusal(Tables::builder().keyspace("k").open(&database));
    assert!(matches!(error, Error::Mismatch(_)) && text.contains("of their own"), "{text}");

    let world = World::new();
    let database = world.open();
    Tables::builder().keyspace("k").open(&database).unwrap();
    let mut session = database.session().unwrap();
    for (catalogue, part) in [(&b"{\"format\":2}"[..], "format 2"), (b"noise", "cannot be read")] {
        session.execute(|tx| tx.put(b"\0c", catalogue)).unwrap();
        let (error, text) = refusal(Tables::builder().keyspace("k").open(&database));
        assert!(matches!(error, Error::Format(..) | Error::Corrupt(_)), "{text}");
        assert!(text.contains(part), "{text}");
    }
}

/// Openings on several threads create the same declarations once.
#[test]
fn openings_at_the_same_time_agree() {
    let world = World::new();
    let database = world.open();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let open = |thread: usize| {
            let own = format!("own {thread}");
            let builder = Tables::builder().keyspace("shared").keyspace(&own);
            let tables = builder.table_of::<Player>().open(&database).unwrap();
            let mut session = database.session().unwrap();
            let (shared, players) =
                (tables.keyspace("shared").unwrap(), tables.table_of().unwrap());
            let mut rng = fastrand::Rng::with_seed(thread as u64);
            let mut row = Player::random(thread as u32, &mut rng);
            row.mail = None;
            let written = session.execute(|tx| {
                shared.put(tx, own.as_bytes(), b"")?;
                players.insert(tx, &row)
            });
            written.unwrap();
            tables.changes().len()
        };
        let threads: Vec<_> = (0..6).map(|thread| scope.spawn(move || open(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // Each thread created a keyspace, and a single thread created the shared keyspace and table.
    assert_eq!(opened.iter().sum::<usize>(), 6 + 2);
    let tables = Tables::builder().keyspace("shared").table_of::<Player>().open(&database).unwrap();
    let mut snapshot = database.long_snapshot().unwrap();
    assert_eq!(tables.keyspace("shared").unwrap().scan(&mut snapshot).rows().count(), 6);
    assert_eq!(tables.check(&mut snapshot).unwrap().rows, 6);
}

/// A table over its versions. Each struct describes the same table.
#[derive(Table)]
#[table(name = "item")]
struct First {
    #[key]
    id: u32,
    name: String,
}

#[derive(Table)]
#[table(name = "item")]
struct Second {
    #[default_value("EUR")]
    currency: String,
    #[key]
    id: u32,
    name: String,
    note: Option<String>,
}

/// Other defaults than before have no effect on rows of the first version.
#[derive(Table, Debug, PartialEq)]
#[table(name = "item")]
struct Third {
    #[key]
    id: u32,
    name: String,
    #[default_value(7)]
    price: i64,
    #[default_value("USD")]
    #[index]
    currency: String,
    note: Option<String>,
}

fn table<R: TableRow>(database: &Database) -> (Tables, TypedTable<R>) {
    let tables = Tables::builder().table_of::<R>().open(database).unwrap();
    let table = tables.table_of().unwrap();
    (tables, table)
}

fn third(id: u32, price: i64, currency: &str, note: Option<&str>) -> Third {
    let (currency, note) = (currency.to_owned(), note.map(str::to_owned));
    Third { id, name: "n".into(), price, currency, note }
}

#[test]
fn rows_of_earlier_schemas_get_new_columns_when_they_are_read() {
    let mut world = World::new();
    let mut rng = fastrand::Rng::with_seed(5);
    let database = world.open();
    let (_, items) = table::<First>(&database);
    let write = |session: &mut Session, id: u32| {
        session.execute(|tx| items.insert(tx, &First { id, name: "n".into() }))
    };
    let mut session = database.session().unwrap();
    (1..5).for_each(|id| write(&mut session, id).unwrap());
    drop(session);
    world.crash(database, &mut rng);

    let database = world.open();
    let (tables, items) = table::<Second>(&database);
    assert_eq!(tables.changes().len(), 2, "{:?}", tables.changes());
    let mut session = database.session().unwrap();
    session
        .execute(|tx| {
            let name = || "n".to_owned();
            items
                .insert(tx, &Second { id: 5, name: name(), currency: "CHF".into(), note: None })?;
            items.modify(tx, 2, |item| item.note = Some("changed".into()))
        })
        .unwrap();
    drop(session);
    world.crash(database, &mut rng);

    let database = world.open();
    let (tables, items) = table::<Third>(&database);
    let mut session = database.session().unwrap();
    let rows = session.execute(|tx| items.scan(tx).rows()?.collect::<Result<Vec<_>, _>>());
    let wanted = [
        third(1, 7, "EUR", None),
        third(2, 7, "EUR", Some("changed")),
        third(3, 7, "EUR", None),
        third(4, 7, "EUR", None),
        third(5, 7, "CHF", None),
    ];
    assert_eq!(rows.unwrap(), wanted);
    // The new index has the rows of each version.
    session
        .execute(|tx| {
            let of_euro = items.index(tx, Third::BY_CURRENCY).equal("EUR").rows()?;
            assert_eq!(of_euro.map(|row| row.unwrap().id).collect::<Vec<_>>(), [1, 2, 3, 4]);
            items.update(tx, 1, &[Third::CURRENCY.set("USD")])?;
            items.delete(tx, 3)?;
            tables.check(tx)
        })
        .unwrap();
}

#[test]
fn a_change_that_is_not_accepted_names_the_column_and_changes_nothing() {
    #[derive(Table)]
    #[table(name = "item")]
    struct WithoutDefault {
        #[key]
        id: u32,
        name: String,
        price: i64,
    }
    #[derive(Table)]
    #[table(name = "item")]
    struct Dropped {
        #[key]
        id: u32,
    }
    #[derive(Table)]
    #[table(name = "item")]
    struct OtherType {
        #[key]
        id: u32,
        name: Option<String>,
    }
    let world = World::new();
    let database = world.open();
    table::<First>(&database);
    let unused = (WithoutDefault { id: 1, name: String::new(), price: 1 }, Dropped { id: 1 });
    let _ = (unused.0.price, unused.0.name, unused.1.id, OtherType { id: 1, name: None }.name);
    let openings = [
        (Tables::builder().table_of::<WithoutDefault>(), "\"price\""),
        (Tables::builder().table_of::<Dropped>(), "\"name\""),
        (Tables::builder().table_of::<OtherType>(), "\"name\""),
    ];
    for (builder, column) in openings {
        let (error, text) = refusal(builder.open(&database));
        assert!(matches!(error, Error::Schema(_)), "{text}");
        assert!(text.contains(column) && text.contains("\"item\""), "{text}");
    }
    assert!(table::<First>(&database).0.changes().is_empty());
}

/// A handle of before a change does not write past it, nor read an index that is gone.
#[test]
fn handles_of_an_earlier_declaration_notice_the_change() {
    let world = World::new();
    let database = world.open();
    let (_, players) = table::<Player>(&database);
    let mut session = database.session().unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let row = Player { mail: None, ..Player::random(1, &mut rng) };
    session.execute(|tx| players.insert(tx, &row)).unwrap();
    let mut old = database.session().unwrap();
    let mut old = old.snapshot().unwrap();
    let (_, plain) = table::<PlainPlayer>(&database);
    let write = session.execute(|tx| players.upsert(tx, &row)).unwrap_err();
    let delete = session.execute(|tx| players.delete(tx, 1)).unwrap_err();
    let read = session
        .execute(|tx| players.index(tx, Player::BY_MAIL).equal(None).rows().map(drop))
        .unwrap_err();
    for error in [write, delete, read] {
        assert!(matches!(&error, Error::Changed(table) if table == "player"), "{error}");
    }
    // Rows by their key, of the same columns, are still read; and so is the index as of before.
    assert_eq!(session.execute(|tx| players.get(tx, 1)).unwrap(), Some(row.clone()));
    assert_eq!(players.index(&mut old, Player::BY_MAIL).rows().unwrap().count(), 1);
    assert_eq!(session.execute(|tx| plain.get(tx, 1)).unwrap(), Some(row.plain()));
}
