//! The layout of the data of Redis in the tables of the database.

pub mod blocks;
pub mod chunks;
pub mod collections;
pub mod counts;
pub mod databases;
pub mod expiries;
pub mod field_times;
pub mod head;
pub mod keyspace;
pub mod long_list;
pub mod member_hash;
pub mod member_run;
pub mod member_values;
pub mod packed;
pub mod primary;
#[cfg(test)]
mod run_tests;
pub mod scripts;
#[cfg(test)]
mod stored_tests;
pub mod stream_groups;
pub mod stream_head;
pub mod stream_node;
#[cfg(test)]
mod stream_tests;
pub mod values;
pub mod waiting;
#[cfg(test)]
mod walk_tests;

use hyades::{Builder, Schema, Table, Type};

/// The tables of a server.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The number of a database, and the generation of its keys.
    pub databases: Table,
    /// Generation and key; head and body of the value.
    pub keys: Table,
    /// A row for each collection in blocks, and each string in chunks: the row id is the number of
    /// the collection or the string.
    pub collections: Table,
    /// Number of a run and low key; number of elements and elements. See [`blocks`].
    pub blocks: Table,
    /// Number of a string and place; the bytes there. See [`chunks`].
    pub chunks: Table,
    /// Numbers of removed collections and strings, whose blocks and chunks are to be removed.
    pub garbage: Table,
    /// Scripts of SCRIPT LOAD, libraries of FUNCTION LOAD, and the position of an import. See
    /// [`scripts`].
    pub scripts: Table,
}

impl Tables {
    /// The tables of any database whose tables were declared by [`Tables::declare`].
    pub const BY_PLACE: Tables = Tables {
        databases: Table::nth(0),
        keys: Table::nth(1),
        collections: Table::nth(2),
        blocks: Table::nth(3),
        chunks: Table::nth(4),
        garbage: Table::nth(5),
        scripts: Table::nth(6),
    };

    /// Declares the tables, in the order of [`Tables::BY_PLACE`].
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
            .hash()
            .growing_rows()
            .key_once();
        // Without a primary key: the engine numbers the rows, and never uses a number again.
        let collections = Schema::new("collections").column("kind", Type::U32);
        let blocks = Schema::new("blocks")
            .column("run", Type::U64)
            .column("low", Type::Bytes)
            .column("count", Type::U32)
            .column("body", Type::Bytes)
            .primary_key(&["run", "low"])
            .sum("count", 1)
            .growing_rows()
            .key_once();
        // Ordered, so that all chunks of a string are found, whatever their places.
        let chunks = Schema::new("chunks")
            .column("string", Type::U64)
            .column("place", Type::U32)
            .column("body", Type::Bytes)
            .primary_key(&["string", "place"])
            .growing_rows()
            .key_once();
        let garbage =
            Schema::new("garbage").column("collection", Type::U64).primary_key(&["collection"]);
        let scripts = Schema::new("scripts")
            .column("name", Type::Bytes)
            .column("body", Type::Bytes)
            .primary_key(&["name"]);
        Tables {
            databases: builder.table(databases),
            keys: builder.table(keys),
            collections: builder.table(collections),
            blocks: builder.table(blocks),
            chunks: builder.table(chunks),
            garbage: builder.table(garbage),
            scripts: builder.table(scripts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades::Database;

    #[test]
    fn tables_have_the_places_of_their_declaration() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = Database::builder();
        let declared = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let by_place = Tables::BY_PLACE;
        database
            .transact(|tx| {
                let key = [1u64.into(), b"k"[..].into(), 0u64.into(), b"v"[..].into()];
                tx.insert(declared.databases, &[1u32.into(), 1u64.into()])?;
                tx.insert(declared.keys, &key)?;
                tx.insert(declared.collections, &[1u32.into()])?;
                let block = [1u64.into(), b"l"[..].into(), 1u32.into(), b"v"[..].into()];
                tx.insert(declared.blocks, &block)?;
                tx.insert(declared.chunks, &[1u64.into(), 1u32.into(), b"v"[..].into()])?;
                tx.insert(declared.garbage, &[1u64.into()])?;
                tx.insert(declared.scripts, &[b"n"[..].into(), b"v"[..].into()])?;
                assert!(tx.get(by_place.databases, 1u32)?.is_some());
                assert!(tx.get(by_place.keys, (1u64, &b"k"[..]))?.is_some());
                assert_eq!(tx.scan(by_place.collections).rows()?.len(), 1);
                assert!(tx.get(by_place.blocks, (1u64, &b"l"[..]))?.is_some());
                assert!(tx.get(by_place.chunks, (1u64, 1u32))?.is_some());
                assert!(tx.get(by_place.garbage, 1u64)?.is_some());
                assert!(tx.get(by_place.scripts, &b"n"[..])?.is_some());
                Ok(())
            })
            .unwrap();
    }
}
