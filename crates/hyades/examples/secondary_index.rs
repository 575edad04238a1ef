//! Secondary indexes: several rows per key, unique keys, scans by prefix, and savepoints.
//!
//! `cargo run -p hyades --example secondary_index`

use hyades::{Abort, Column, Columns, Database, Index, Schema, Type};
use std::error::Error;

const NAME: Column<str> = Column::at(1);
const CITY: Column<Option<&str>> = Column::at(2);
const BY_CITY: Index = Index(0);
const BY_NAME: Index = Index(1);

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let mut builder = Database::builder();
    let people = builder.table(
        Schema::new("people")
            .column("id", Type::I64)
            .column("name", Type::Text)
            .nullable("city", Type::Text)
            .primary_key(&["id"])
            .index("by_city", &["city", "name"])
            .unique("by_name", &["name"]),
    );
    let db = builder.open(temporary.path())?;

    db.transact(|tx| {
        for (id, name, city) in [
            (1i64, "Ada", Some("London")),
            (2, "Blaise", Some("Paris")),
            (3, "Charles", Some("London")),
            (4, "Diophantus", None),
        ] {
            tx.insert(people, &[id.into(), name.into(), city.into()])?;
        }
        Ok::<_, Abort>(())
    })??;

    db.transact(|tx| {
        // A prefix of the index's columns. Rows are returned in index order.
        let prefix = ["London".into()];
        let rows = tx.scan_index(people, BY_CITY).prefix(&prefix).rows()?;
        let names: Vec<&str> = rows.iter().map(|row| row.get(NAME)).collect();
        assert_eq!(names, ["Ada", "Charles"]);

        // A duplicate name does not abort the transaction. It can go on, here from a savepoint.
        let savepoint = tx.savepoint();
        tx.update(people, 4i64, &[CITY.set(Some("Alexandria"))])?;
        let taken = tx.insert(people, &[5i64.into(), "Ada".into(), Some("Paris").into()]);
        assert_eq!(taken, Err(Abort::DuplicateKey { table: 0, index: Some(1) }));
        tx.rollback_to(savepoint)?;
        assert_eq!(tx.get(people, 4i64)?.expect("it is there").get(CITY), None);

        // An update of the row also updates the index.
        tx.update(people, 1i64, &[CITY.set(Some("Paris"))])?;
        let prefix = ["Paris".into()];
        let in_paris = tx.scan_index(people, BY_CITY).prefix(&prefix).rows()?;
        assert_eq!(in_paris.len(), 2);

        // The last row by name, without reading the others.
        let last = tx.scan_index(people, BY_NAME).descending().limit(1).columns(Columns::ALL);
        assert_eq!(last.rows()?[0].get(NAME), "Diophantus");
        Ok::<_, Abort>(())
    })??;
    println!("{} people, two of them in Paris", db.rows());
    Ok(())
}
