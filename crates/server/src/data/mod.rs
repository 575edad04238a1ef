//! How the data of Redis lies in the tables of the database.

pub mod counts;
pub mod databases;
pub mod head;
pub mod keyspace;
pub mod packed;

use hyades::{Builder, Schema, Table, Type};

/// The tables of a server.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The number of a database, and the generation of its keys.
    pub databases: Table,
    /// Generation and key; the head and the body of its value.
    pub keys: Table,
}

impl Tables {
    /// Declares the tables.
    pub fn declare(builder: &mut Builder) -> Tables {
        let databases = Schema::new("dbs")
            .column("number", Type::U32)
            .column("generation", Type::U64)
            .primary_key(&["number"])
            .hash();
        let keys = Schema::new("keys")
            .column("generation", Type::U64)
            .column("key", Type::Bytes)
            .column("head", Type::U64)
            .column("body", Type::Bytes)
            .primary_key(&["generation", "key"])
            .hash();
        Tables { databases: builder.table(databases), keys: builder.table(keys) }
    }
}
