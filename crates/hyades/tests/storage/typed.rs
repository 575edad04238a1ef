//! Typed tables: the result of `#[derive(Table)]` on a struct, and the operations on its rows.

use hyades::{Abort, Column, Database, Schema, Table, TableRow, Type, TypedIndex, TypedTable};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "people", key(country, id), index(by_name_and_born(name, born)))]
struct Person {
    id: u32,
    country: [u8; 2],
    name: String,
    #[unique]
    email: Option<String>,
    born: Option<i32>,
    photo: Vec<u8>,
    height: f64,
    active: bool,
    seen: i64,
    r#type: u64,
}

#[derive(Table, Debug, PartialEq)]
#[table(hash)]
struct Setting<'a> {
    #[key]
    name: &'a str,
    value: Option<&'a [u8]>,
}

/// Without a key.
#[derive(Table, Clone, Debug, PartialEq)]
struct LogLine {
    #[index]
    at: i64,
    text: String,
}

fn person(country: &[u8; 2], id: u32) -> Person {
    Person {
        id,
        country: *country,
        name: format!("name {}", id % 3),
        email: id.is_multiple_of(2).then(|| format!("{id}@{}", String::from_utf8_lossy(country))),
        born: (!id.is_multiple_of(5)).then_some(1990 + id as i32),
        photo: vec![7; id as usize],
        height: 1.5 + f64::from(id) / 100.0,
        active: id % 2 == 1,
        seen: -i64::from(id),
        r#type: u64::MAX - u64::from(id),
    }
}

#[test]
fn a_struct_describes_its_table() {
    let by_hand = Schema::new("people")
        .column("id", Type::U32)
        .column("country", Type::Fixed(2))
        .column("name", Type::Text)
        .nullable("email", Type::Text)
        .nullable("born", Type::I32)
        .column("photo", Type::Bytes)
        .column("height", Type::F64)
        .column("active", Type::Bool)
        .column("seen", Type::I64)
        .column("type", Type::U64)
        .primary_key(&["country", "id"])
        .unique("by_email", &["email"])
        .index("by_name_and_born", &["name", "born"]);
    assert_eq!(Person::schema(), by_hand);
    let by_hand = Schema::new("setting").column("name", Type::Text).nullable("value", Type::Bytes);
    assert_eq!(Setting::schema(), by_hand.primary_key(&["name"]).hash());
    let by_hand = Schema::new("log_line").column("at", Type::I64).column("text", Type::Text);
    assert_eq!(LogLine::schema(), by_hand.index("by_at", &["at"]));
    let _: Column<Option<i32>> = Person::BORN;
    let _: Column<str> = Person::NAME;
    let _: TypedIndex<Person, (String, Option<i32>)> = Person::BY_NAME_AND_BORN;
}

#[test]
fn rows_come_back_as_they_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for life in 0..2 {
        let mut builder = Database::builder();
        let people = builder.table_of::<Person>();
        let db = builder.open(dir.path()).unwrap();
        if life == 0 {
            for country in [b"de", b"fr"] {
                for id in 1..30 {
                    let row = person(country, id);
                    db.try_transact(|tx| people.insert(tx, &row)).unwrap().unwrap();
                    all.push(row);
                }
            }
        }
        let read = db.try_transact(|tx| {
            for row in &all {
                assert_eq!(&people.require(tx, (&row.country, row.id))?, row);
            }
            assert_eq!(people.get(tx, (b"xx", 1))?, None);
            assert_eq!(people.require(tx, (b"xx", 1)), Err(Abort::NotFound { table: 0 }));
            Ok::<_, Abort>(people.scan(tx).rows()?.collect::<Vec<_>>())
        });
        assert_eq!(read.unwrap().unwrap(), all);
        db.close().unwrap();
    }
}

#[test]
fn scans_take_keys_prefixes_and_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder();
    let people = builder.table_of::<Person>();
    let db = builder.open(dir.path()).unwrap();
    let ids = |rows: hyades::Rows<'_, Person>| rows.map(|row| row.id).collect::<Vec<_>>();
    db.try_transact(|tx| {
        for id in 1..10 {
            people.insert(tx, &person(b"de", id))?;
            people.insert(tx, &person(b"fr", id))?;
        }
        let scan = || people.scan(tx);
        assert_eq!(ids(scan().prefix((b"fr",)).rows()?), (1..10).collect::<Vec<_>>());
        assert_eq!(ids(scan().equal((b"fr", 3)).rows()?), [3]);
        assert_eq!(ids(scan().range((b"de", 8)..(b"fr", 2)).rows()?), [8, 9, 1]);
        assert_eq!(ids(scan().range((b"de", 8)..=(b"fr", 2)).rows()?), [8, 9, 1, 2]);
        assert_eq!(ids(scan().range(..(b"de", 3)).rows()?), [1, 2]);
        assert_eq!(ids(scan().range((b"fr", 8)..).descending().limit(1).rows()?), [9]);
        let backwards = scan().range((b"fr", 7)..).rows()?.rev().map(|row| row.id);
        assert_eq!(backwards.collect::<Vec<_>>(), [9, 8, 7]);
        let by_name = || people.index(tx, Person::BY_NAME_AND_BORN);
        assert_eq!(ids(by_name().prefix("name 2").rows()?), [5, 5, 2, 2, 8, 8]);
        assert_eq!(ids(by_name().equal(("name 2", Some(1992))).rows()?), [2, 2]);
        assert_eq!(ids(by_name().equal(("name 2", None)).rows()?), [5, 5]);
        let by_email = people.index(tx, Person::BY_EMAIL).equal(Some("4@fr")).rows()?;
        assert_eq!(by_email.len(), 1);
        Ok::<_, Abort>(())
    })
    .unwrap()
    .unwrap();
}

#[test]
fn updates_name_fields_and_modify_writes_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder();
    let people = builder.table_of::<Person>();
    let settings = builder.table_of::<Setting<'_>>();
    let lines = builder.table_of::<LogLine>();
    let db = builder.open(dir.path()).unwrap();
    db.try_transact(|tx| {
        let mut row = person(b"de", 1);
        people.insert(tx, &row)?;
        let sets = [Person::BORN.set(None), Person::NAME.set("Ada"), Person::SEEN.set(5)];
        assert!(people.update(tx, (b"de", 1), &sets)?);
        (row.born, row.name, row.seen) = (None, "Ada".to_string(), 5);
        assert_eq!(people.require(tx, (b"de", 1))?, row);
        assert!(people.modify(tx, (b"de", 1), |row| {
            row.email = Some("ada@de".to_string());
            row.photo.clear();
        })?);
        (row.email, row.photo) = (Some("ada@de".to_string()), Vec::new());
        assert_eq!(people.require(tx, (b"de", 1))?, row);
        assert!(people.modify(tx, (b"de", 1), |_| ())?, "nothing changed, and the row is there");
        assert!(!people.modify(tx, (b"de", 2), |_| unreachable!())?);
        let other_key = people.modify(tx, (b"de", 1), |row| row.id = 7);
        assert_eq!(other_key, Err(Abort::KeyColumnChanged { table: 0, column: 0 }));
        assert!(people.upsert(tx, &row)?);
        people.overwrite(tx, &person(b"fr", 1))?;
        assert!(people.delete(tx, (b"fr", 1))?);
        assert!(!people.delete(tx, (b"fr", 1))?);

        settings.insert(tx, &Setting { name: "colour", value: Some(b"red") })?;
        settings.insert(tx, &Setting { name: "size", value: None })?;
        let red: Setting<'_> = settings.require(tx, "colour")?;
        assert_eq!(red, Setting { name: "colour", value: Some(b"red") });
        assert_eq!(settings.require(tx, "size")?.value, None);

        let line = LogLine { at: 3, text: "started".to_string() };
        let id = lines.insert(tx, &line)?;
        assert_eq!(lines.require(tx, id)?, line);
        assert_eq!(lines.index(tx, LogLine::BY_AT).range(2..4).rows()?.next(), Some(line));
        Ok::<_, Abort>(())
    })
    .unwrap()
    .unwrap();
}

/// A key of three fields, texts of fixed width that are borrowed, two named indexes.
#[derive(Table, Clone, Copy, Debug, PartialEq)]
#[table(
    name = "order_lines",
    key(shop, number, line),
    index(lines_by_item(item, shop)),
    unique(by_label(label))
)]
struct OrderLine<'a> {
    line: i32,
    number: i32,
    shop: i32,
    item: i64,
    label: &'a [u8; 4],
    stamp: Option<&'a [u8; 2]>,
    text: &'a str,
}

/// The same rows in a hash table.
#[derive(Table)]
#[table(hash, key(shop, number), index(by_item(item, shop)))]
struct Stock {
    shop: i32,
    number: i32,
    item: i64,
}

const LABELS: [[u8; 4]; 10] = [
    *b"ab00", *b"ab01", *b"ab02", *b"ab03", *b"ab04", *b"ab05", *b"ab06", *b"ab07", *b"ab08",
    [0; 4],
];

fn order_lines(
    tx: &hyades::Transaction<'_>,
    table: TypedTable<OrderLine<'_>>,
) -> Result<(), Abort> {
    for (at, label) in (0..).zip(&LABELS[..9]) {
        let (number, line) = (at / 3 + 1, at % 3 + 1);
        let (item, stamp) = (i64::from(10 - at), (line == 2).then_some(b"st"));
        let text = format!("text {at}");
        let row = OrderLine { line, number, shop: 7, item, label, stamp, text: &text };
        table.insert(tx, &row)?;
    }
    Ok(())
}

#[test]
fn fixed_widths_are_borrowed_and_keys_and_indexes_have_several_fields() {
    let by_hand = Schema::new("order_lines")
        .column("line", Type::I32)
        .column("number", Type::I32)
        .column("shop", Type::I32)
        .column("item", Type::I64)
        .column("label", Type::Fixed(4))
        .nullable("stamp", Type::Fixed(2))
        .column("text", Type::Text)
        .primary_key(&["shop", "number", "line"])
        .index("lines_by_item", &["item", "shop"])
        .unique("by_label", &["label"]);
    assert_eq!(OrderLine::schema(), by_hand);
    let by_hand = Schema::new("stock").column("shop", Type::I32).column("number", Type::I32);
    let by_hand = by_hand.column("item", Type::I64).primary_key(&["shop", "number"]).hash();
    assert_eq!(Stock::schema(), by_hand.index("by_item", &["item", "shop"]));

    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder();
    let lines = builder.table_of::<OrderLine<'_>>();
    let stock = builder.table_of::<Stock>();
    let db = builder.open(dir.path()).unwrap();
    db.try_transact(|tx| {
        order_lines(tx, lines)?;
        let row = lines.require(tx, (7, 2, 2))?;
        assert_eq!((row.label, row.stamp, row.text), (b"ab04", Some(b"st"), "text 4"));
        let labelled = lines.index(tx, OrderLine::BY_LABEL).equal(b"ab04").rows()?;
        assert_eq!(labelled.collect::<Vec<_>>(), [row]);
        let doubled = lines.insert(tx, &OrderLine { line: 9, ..row });
        assert!(matches!(doubled, Err(Abort::DuplicateKey { .. })));
        let by_item = lines.index(tx, OrderLine::LINES_BY_ITEM).range((4, 0)..(6, 0)).rows()?;
        assert_eq!(by_item.map(|row| row.item).collect::<Vec<_>>(), [4, 5]);
        assert!(lines.update(tx, (7, 2, 2), &[OrderLine::STAMP.set(b"xy")])?);
        assert_eq!(lines.require(tx, (7, 2, 2))?.stamp, Some(b"xy"));

        stock.insert(tx, &Stock { shop: 1, number: 2, item: 3 })?;
        let found = stock.index(tx, Stock::BY_ITEM).prefix((3i64,)).rows()?;
        assert_eq!(found.map(|row| row.number).collect::<Vec<_>>(), [2]);
        Ok::<_, Abort>(())
    })
    .unwrap()
    .unwrap();
}

#[test]
fn some_columns_are_read_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder();
    let lines: TypedTable<OrderLine<'_>> = TypedTable::of(builder.table(OrderLine::schema()));
    let db = builder.open(dir.path()).unwrap();
    db.try_transact(|tx| {
        order_lines(tx, lines)?;
        let columns = OrderLine::ITEM.only().and(OrderLine::TEXT.only());
        lines.prefetch(tx, (7, 1, 1), columns);
        let row = lines.require_columns(tx, (7, 1, 1), columns)?;
        assert_eq!((row.get(OrderLine::ITEM), row.get(OrderLine::TEXT)), (10, "text 0"));
        assert_eq!(row.get(OrderLine::TEXT.as_bytes()), b"text 0");
        assert!(lines.get_columns(tx, (7, 1, 4), columns)?.is_none());
        let absent = lines.require_columns(tx, (7, 1, 4), columns).err();
        assert_eq!(absent, Some(Abort::NotFound { table: 0 }));

        let items = |scan: hyades::TypedScan<'_, '_, OrderLine<'_>, (i32, i32, i32)>| {
            let rows = scan.get_columns(OrderLine::ITEM.only())?;
            Ok::<_, Abort>(rows.iter().map(|row| row.get(OrderLine::ITEM)).collect::<Vec<_>>())
        };
        let scan = || lines.scan(tx);
        scan().prefix((7, 3)).descending().prefetch();
        assert_eq!(items(scan().prefix((7, 3)))?, [4, 3, 2]);
        assert_eq!(items(scan().prefix_range((7, 1)..(7, 3)))?, [10, 9, 8, 7, 6, 5]);
        assert_eq!(items(scan().prefix_range((7, 2)..=(7, 2)))?, [7, 6, 5]);
        let above = (std::ops::Bound::Excluded((7, 2)), std::ops::Bound::Unbounded);
        assert_eq!(items(scan().prefix_range(above).limit(2))?, [4, 3]);
        Ok::<_, Abort>(())
    })
    .unwrap()
    .unwrap();
}

#[test]
fn rows_without_a_key_are_scanned_by_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder();
    let lines = builder.table_of::<LogLine>();
    let db = builder.open(dir.path()).unwrap();
    db.try_transact(|tx| {
        let mut ids = Vec::new();
        for at in 0..5 {
            ids.push(lines.insert(tx, &LogLine { at, text: at.to_string() })?);
        }
        let after = (std::ops::Bound::Excluded(ids[2]), std::ops::Bound::Unbounded);
        let rows = lines.scan(tx).range(after).get_columns(LogLine::AT.only())?;
        let found: Vec<_> = rows.iter().map(|row| (row.row_id(), row.get(LogLine::AT))).collect();
        assert_eq!(found, [(ids[3], 3), (ids[4], 4)]);
        Ok::<_, Abort>(())
    })
    .unwrap()
    .unwrap();
}
