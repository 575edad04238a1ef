//! Secondary indexes: several rows per key, unique keys, scans by prefix, and savepoints.
//!
//! `cargo run -p hyades --example secondary_index`

use hyades::{Abort, Database, Table};

#[derive(Table)]
#[table(index(by_city(city, name)))]
struct Person {
    #[key]
    id: i64,
    #[unique]
    name: String,
    city: Option<String>,
}

fn person(id: i64, name: &str, city: Option<&str>) -> Person {
    Person { id, name: name.to_string(), city: city.map(str::to_string) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let mut builder = Database::builder();
    let people = builder.table_of::<Person>();
    let db = builder.open(temporary.path())?;

    db.transact(|tx| {
        people.insert(tx, &person(1, "Ada", Some("London")))?;
        people.insert(tx, &person(2, "Blaise", Some("Paris")))?;
        people.insert(tx, &person(3, "Charles", Some("London")))?;
        people.insert(tx, &person(4, "Diophantus", None))?;
        Ok(())
    })?;

    db.transact(|tx| {
        // A prefix of the index's fields. Rows are returned in index order.
        let londoners = people.index(tx, Person::BY_CITY).prefix("London").rows()?;
        let names: Vec<String> = londoners.map(|person| person.name).collect();
        assert_eq!(names, ["Ada", "Charles"]);

        // A duplicate name does not abort the transaction. It can go on, here from a savepoint.
        let savepoint = tx.savepoint();
        people.update(tx, 4, &[Person::CITY.set(Some("Alexandria"))])?;
        let taken = people.insert(tx, &person(5, "Ada", Some("Paris")));
        assert!(matches!(taken, Err(Abort::DuplicateKey { .. })));
        tx.rollback_to(savepoint)?;
        assert_eq!(people.require(tx, 4)?.city, None);

        // An update of the row also updates the index.
        people.modify(tx, 1, |ada| ada.city = Some("Paris".to_string()))?;
        assert_eq!(people.index(tx, Person::BY_CITY).prefix("Paris").rows()?.len(), 2);

        // The last row by name, without a read of other rows.
        let mut last = people.index(tx, Person::BY_NAME).descending().limit(1).rows()?;
        assert_eq!(last.next().expect("there are four").name, "Diophantus");
        Ok(())
    })?;
    println!("{} people, two of them in Paris", db.rows());
    Ok(())
}
