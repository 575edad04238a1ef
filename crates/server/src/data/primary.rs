//! The row of a live import: which server is imported from, its primary, and how far. The
//! transactions that write what comes from there write the row as well, so after a crash the import
//! goes on where it was.

use super::Tables;
use super::databases;
use super::keyspace::{Context, Keyspace, Stop};
use crate::config::{MOST_DATABASES, PrimaryAddress};
use hyades::{Abort, Column, Transaction};

/// The key of the row.
const KEY: &[u8] = b"R";

const BODY: Column<[u8]> = Column::at(1);

/// How far a live import has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportStage {
    /// Values are being loaded: what is there is no whole.
    Loading,
    /// The database is what the primary had at an offset.
    Following,
    /// It was cut over: the row says only from where the database is.
    Over,
}

/// The row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryPosition {
    /// Where the primary is.
    pub address: PrimaryAddress,
    /// What is there of it.
    pub stage: ImportStage,
    /// The id of its history; empty if nothing was read.
    pub id: String,
    /// The offset in its stream of commands of what was run.
    pub offset: u64,
    /// The database that commands behind it run in.
    pub database: u32,
}

const STAGES: [(ImportStage, &str); 3] = [
    (ImportStage::Loading, "loading"),
    (ImportStage::Following, "following"),
    (ImportStage::Over, "over"),
];

impl PrimaryPosition {
    /// Of an import of which nothing is there.
    pub fn new(address: PrimaryAddress) -> PrimaryPosition {
        let stage = ImportStage::Loading;
        PrimaryPosition { address, stage, id: String::new(), offset: 0, database: 0 }
    }

    fn write(&self) -> Vec<u8> {
        let (_, stage) = STAGES.iter().find(|(stage, _)| *stage == self.stage).expect("all stand");
        let id = if self.id.is_empty() { "?" } else { &self.id };
        let PrimaryPosition { address, offset, database, .. } = self;
        format!("{stage} {id} {offset} {database} {}", address.setting()).into_bytes()
    }

    fn from_row(row: &[u8]) -> Option<PrimaryPosition> {
        let text = std::str::from_utf8(row).ok()?;
        let mut words = text.splitn(5, ' ');
        let mut next = || words.next();
        let (stage, id, offset, database) = (next()?, next()?, next()?, next()?);
        Some(PrimaryPosition {
            stage: STAGES.iter().find(|(_, name)| *name == stage)?.0,
            id: if id == "?" { String::new() } else { id.to_string() },
            offset: offset.parse().ok()?,
            database: database.parse().ok()?,
            address: PrimaryAddress::read(next()?)?,
        })
    }

    /// The row, if there is one.
    ///
    /// # Errors
    /// A conflict.
    pub fn stored(tx: &Transaction<'_>, tables: Tables) -> Result<Option<Self>, Abort> {
        let row = tx.get_columns(tables.scripts, KEY, BODY.only())?;
        // Written by this program: another text is a torn view, which is not validated.
        row.map(|row| PrimaryPosition::from_row(row.get(BODY)).ok_or(Abort::Conflict)).transpose()
    }

    /// The same, of a transaction of commands.
    ///
    /// # Errors
    /// A conflict.
    pub fn read(tx: &Transaction<'_>, context: Context<'_>) -> Result<Option<Self>, Stop> {
        Ok(PrimaryPosition::stored(tx, context.tables)?)
    }

    /// Writes the row.
    ///
    /// # Errors
    /// Those of a write.
    pub fn keep(&self, tx: &Transaction<'_>, tables: Tables) -> Result<(), Abort> {
        tx.upsert(tables.scripts, &[KEY.into(), self.write()[..].into()]).map(drop)
    }
}

/// Removes all keys and libraries, of databases as well that this server has no more.
///
/// # Errors
/// Those of a write.
pub fn clear(space: &Keyspace<'_>) -> Result<(), Abort> {
    space.flush(0..MOST_DATABASES)?;
    space.flush_libraries()
}

/// Writes the generations of databases as they are: a transaction that has read one, and has not
/// committed, runs again.
///
/// # Errors
/// A conflict.
pub fn fence(tx: &Transaction<'_>, tables: Tables, databases: u32) -> Result<(), Abort> {
    (0..databases).try_for_each(|database| databases::touch(tx, tables, database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back() {
        let address = PrimaryAddress { host: "::1".to_string(), port: 6379 };
        let mut position = PrimaryPosition::new(address);
        assert_eq!(PrimaryPosition::from_row(&position.write()), Some(position.clone()));
        for (stage, _) in STAGES {
            let id = "0123456789012345678901234567890123456789".to_string();
            position = PrimaryPosition { stage, id, offset: u64::MAX, database: 7, ..position };
            assert_eq!(PrimaryPosition::from_row(&position.write()), Some(position.clone()));
        }
        assert_eq!(PrimaryPosition::from_row(b"following a 1"), None);
    }
}
