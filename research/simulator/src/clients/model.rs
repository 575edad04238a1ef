//! The contents of the database of a history, with all versions since the opening.
//!
//! The data are *cells*: the generation of a database, changed by FLUSHDB; the head of a key, with
//! the type, the expiry, and the value of a string or a list; each member of a hash, set or sorted
//! set; and the parts of a stream. A cell has its versions in the order of execution. A transaction
//! has read some versions and written some. A crash ends each cell at one of its versions: `judge`
//! checks the promises of the server about the ends.

pub(crate) mod streams;

use super::reply::Answer;
use std::collections::{BTreeMap, HashMap};
use streams::{GroupPending, GroupPosition, RecoveredStream, StreamLog, StreamPart};

/// A type whose members are cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CollectionKind {
    Hash,
    Set,
    SortedSet,
}

impl CollectionKind {
    /// The reply of TYPE.
    pub fn name(self) -> &'static str {
        match self {
            CollectionKind::Hash => "hash",
            CollectionKind::Set => "set",
            CollectionKind::SortedSet => "zset",
        }
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    Text(String),
    List(Vec<String>),
    /// A collection, by its number: each collection ever created has its own.
    Collection(CollectionKind, usize),
    /// A stream, by its number.
    Stream(usize),
}

/// The content of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CellContent {
    Generation(u32),
    Absent,
    Value {
        body: Body,
        expires: Option<i64>,
    },
    /// The value of a field, the score of a member; empty for members of sets.
    Member(Option<String>),
    Log(StreamLog),
    Group(Option<GroupPosition>),
    Pending(GroupPending),
}

/// The name of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CellName {
    Database(u32),
    Head { database: u32, generation: u32, key: String },
    Member { collection: usize, member: String },
    Stream { stream: usize, part: StreamPart },
}

/// A cell, with its versions and their writers. The first version was recovered.
#[derive(Clone, Debug)]
pub(crate) struct VersionedCell {
    pub name: CellName,
    pub versions: Vec<(CellContent, Option<usize>)>,
}

/// An executed transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTransaction {
    pub client: usize,
    /// The number among the requests of the client.
    pub number: u64,
    pub text: String,
    /// Cells with the versions read, and cells with the versions written.
    pub reads: BTreeMap<usize, usize>,
    pub writes: BTreeMap<usize, usize>,
    /// A client was told of the transaction and may rely on the transaction.
    pub is_told: bool,
}

/// The recovered value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recovered {
    Text(String),
    List(Vec<String>),
    Collection(CollectionKind, BTreeMap<String, String>),
    Stream(RecoveredStream),
}

/// The whole recovered state: by database, the keys with their values and expiries.
pub(crate) type RecoveredState = Vec<BTreeMap<String, (Recovered, Option<i64>)>>;

/// The numbers of possible and of certain changes of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub perhaps: u64,
    pub surely: u64,
}

/// The model.
#[derive(Default)]
pub(crate) struct Model {
    pub cells: Vec<VersionedCell>,
    pub transactions: Vec<ClientTransaction>,
    names: HashMap<CellName, usize>,
    /// The members of each collection that ever had a cell.
    pub collections: Vec<BTreeMap<String, usize>>,
    generations: u32,
    /// Streams and groups ever created.
    streams: usize,
    groups: usize,
    /// For WATCH: by database and key.
    pub changes: HashMap<(u32, String), Changes>,
    /// The transaction in execution.
    now: ClientTransaction,
}

/// The error of a command for a value of another type.
pub(crate) struct WrongType;

impl Model {
    /// The model of a recovered state.
    pub fn new(state: &RecoveredState) -> Model {
        let mut model = Model::default();
        for (database, keys) in state.iter().enumerate() {
            let database = database as u32;
            let generation = model.generation(database);
            for (key, (value, expires)) in keys {
                let body = match value {
                    Recovered::Text(text) => Body::Text(text.clone()),
                    Recovered::List(list) => Body::List(list.clone()),
                    Recovered::Collection(kind, members) => {
                        let collection = model.new_collection();
                        for (member, value) in members {
                            let cell = model.member_cell(collection, member);
                            model.cells[cell].versions[0].0 =
                                CellContent::Member(Some(value.clone()));
                        }
                        Body::Collection(*kind, collection)
                    }
                    Recovered::Stream(stream) => Body::Stream(model.recovered_stream(stream)),
                };
                let cell = model.cell(CellName::Head { database, generation, key: key.clone() });
                model.cells[cell].versions[0].0 = CellContent::Value { body, expires: *expires };
            }
        }
        model.now = ClientTransaction::default();
        model
    }

    fn cell(&mut self, name: CellName) -> usize {
        if let Some(cell) = self.names.get(&name) {
            return *cell;
        }
        let first = match &name {
            CellName::Database(_) => {
                self.generations += 1;
                CellContent::Generation(self.generations)
            }
            CellName::Head { .. } => CellContent::Absent,
            CellName::Member { .. } => CellContent::Member(None),
            CellName::Stream { part, .. } => part.first(),
        };
        let cell = self.cells.len();
        self.cells.push(VersionedCell { name: name.clone(), versions: vec![(first, None)] });
        self.names.insert(name, cell);
        cell
    }

    fn member_cell(&mut self, collection: usize, member: &str) -> usize {
        if let Some(cell) = self.collections[collection].get(member) {
            return *cell;
        }
        let cell = self.cell(CellName::Member { collection, member: member.to_string() });
        self.collections[collection].insert(member.to_string(), cell);
        cell
    }

    fn new_collection(&mut self) -> usize {
        self.collections.push(BTreeMap::new());
        self.collections.len() - 1
    }

    fn newest(&self, cell: usize) -> &CellContent {
        &self.cells[cell].versions.last().expect("a cell has a version").0
    }

    fn read(&mut self, cell: usize) {
        if !self.now.writes.contains_key(&cell) {
            let version = self.cells[cell].versions.len() - 1;
            self.now.reads.insert(cell, version);
        }
    }

    fn write(&mut self, cell: usize, content: CellContent) {
        let own = self.transactions.len();
        let versions = &mut self.cells[cell].versions;
        match self.now.writes.get(&cell) {
            Some(version) => versions[*version].0 = content,
            None => {
                versions.push((content, Some(own)));
                self.now.writes.insert(cell, versions.len() - 1);
            }
        }
    }

    /// Ends the transaction of the reads and writes since the last end. Returns the number of the
    /// transaction.
    pub fn end(&mut self, client: usize, number: u64, text: String) -> usize {
        let now = std::mem::take(&mut self.now);
        self.transactions.push(ClientTransaction { client, number, text, ..now });
        self.transactions.len() - 1
    }

    fn generation(&mut self, database: u32) -> u32 {
        let cell = self.cell(CellName::Database(database));
        self.read(cell);
        match self.newest(cell) {
            CellContent::Generation(generation) => *generation,
            _ => unreachable!("a database has a generation"),
        }
    }

    /// FLUSHDB.
    pub fn flush(&mut self, database: u32) {
        self.generation(database);
        let cell = self.cell(CellName::Database(database));
        self.generations += 1;
        self.write(cell, CellContent::Generation(self.generations));
        for ((changed_database, _), changes) in &mut self.changes {
            if *changed_database == database {
                changes.perhaps += 1;
            }
        }
    }

    fn head_cell(&mut self, database: u32, key: &str) -> usize {
        let generation = self.generation(database);
        self.cell(CellName::Head { database, generation, key: key.to_string() })
    }

    /// The value of a key and its expiry.
    pub fn head(&mut self, database: u32, key: &str, now_ms: i64) -> Option<(Body, Option<i64>)> {
        let cell = self.head_cell(database, key);
        self.read(cell);
        self.peek_head(database, key, now_ms)
    }

    /// Like `head`, but without a read of the key.
    pub fn peek_head(
        &mut self,
        database: u32,
        key: &str,
        now_ms: i64,
    ) -> Option<(Body, Option<i64>)> {
        let cell = self.head_cell(database, key);
        match self.newest(cell) {
            CellContent::Value { body, expires } if expires.is_none_or(|at| at > now_ms) => {
                Some((body.clone(), *expires))
            }
            _ => None,
        }
    }

    /// Whether a key has an expiry, past or not.
    pub fn expires(&mut self, database: u32, key: &str) -> bool {
        let cell = self.head_cell(database, key);
        matches!(self.newest(cell), CellContent::Value { expires: Some(_), .. })
    }

    /// Sets the value of a key, or removes it.
    pub fn set_head(&mut self, database: u32, key: &str, value: Option<(Body, Option<i64>)>) {
        let cell = self.head_cell(database, key);
        self.read(cell);
        let content = match value {
            Some((body, expires)) => CellContent::Value { body, expires },
            None => CellContent::Absent,
        };
        self.changed(database, key, true);
        self.write(cell, content);
    }

    /// A command has changed a key, or may have.
    pub fn changed(&mut self, database: u32, key: &str, surely: bool) {
        let changes = self.changes.entry((database, key.to_string())).or_default();
        changes.perhaps += 1;
        changes.surely += u64::from(surely);
    }

    /// The collection of a key, if there is one.
    pub fn collection(
        &mut self,
        database: u32,
        key: &str,
        kind: CollectionKind,
        now_ms: i64,
    ) -> Result<Option<usize>, WrongType> {
        match self.head(database, key, now_ms) {
            None => Ok(None),
            Some((Body::Collection(stored_kind, collection), _)) if stored_kind == kind => {
                Ok(Some(collection))
            }
            Some(_) => Err(WrongType),
        }
    }

    /// The collection of a key, created if there is none.
    pub fn open_collection(
        &mut self,
        database: u32,
        key: &str,
        kind: CollectionKind,
        now_ms: i64,
    ) -> Result<usize, WrongType> {
        if let Some(collection) = self.collection(database, key, kind, now_ms)? {
            return Ok(collection);
        }
        let collection = self.new_collection();
        self.set_head(database, key, Some((Body::Collection(kind, collection), None)));
        Ok(collection)
    }

    /// The value of a member in a collection.
    pub fn member(&mut self, collection: usize, member: &str) -> Option<String> {
        let cell = self.member_cell(collection, member);
        self.read(cell);
        match self.newest(cell) {
            CellContent::Member(value) => value.clone(),
            _ => unreachable!("it is a member"),
        }
    }

    /// Writes a member of the collection of a key; if none is left, the key goes.
    pub fn set_member(
        &mut self,
        (database, key): (u32, &str),
        collection: usize,
        member: &str,
        value: Option<String>,
    ) {
        let cell = self.member_cell(collection, member);
        self.read(cell);
        let is_removed = value.is_none();
        self.changed(database, key, true);
        self.write(cell, CellContent::Member(value));
        if is_removed && self.peek(collection).is_empty() {
            self.members(collection);
            self.set_head(database, key, None);
        }
    }

    /// The members of a collection, without a read.
    pub fn peek(&self, collection: usize) -> BTreeMap<String, String> {
        let members = self.collections[collection].iter();
        members
            .filter_map(|(member, cell)| match self.newest(*cell) {
                CellContent::Member(Some(value)) => Some((member.clone(), value.clone())),
                _ => None,
            })
            .collect()
    }

    /// The members of a collection.
    pub fn members(&mut self, collection: usize) -> BTreeMap<String, String> {
        let cells: Vec<usize> = self.collections[collection].values().copied().collect();
        cells.into_iter().for_each(|cell| self.read(cell));
        self.peek(collection)
    }

    /// The first member of a sorted set, with reads of all members that were once lower and are not
    /// now.
    pub fn lowest(&mut self, collection: usize) -> Option<(String, i64)> {
        let rank = |member: &str, score: &str| (score_of(score), member.to_string());
        let members = self.peek(collection);
        let (score, member) = members.iter().map(|(m, score)| rank(m, score)).min()?;
        let bound = (score, member.clone());
        for (other, cell) in self.collections[collection].clone() {
            let was_lower = |content: &CellContent| match content {
                CellContent::Member(Some(score)) => rank(&other, score) < bound,
                _ => false,
            };
            let versions = &self.cells[cell].versions;
            let Some(last) = versions.iter().rposition(|(content, _)| was_lower(content)) else {
                continue;
            };
            if !self.now.writes.contains_key(&cell) {
                let before = self.now.reads.get(&cell).copied().unwrap_or(0);
                self.now.reads.insert(cell, before.max(last + 1));
            }
        }
        let cell = self.member_cell(collection, &member);
        self.read(cell);
        Some((member, score))
    }

    /// A client was told of a transaction.
    pub fn tell(&mut self, transaction: usize) {
        self.transactions[transaction].is_told = true;
    }
}

/// Scores are whole numbers here.
pub(crate) fn score_of(text: &str) -> i64 {
    text.parse().expect("scores are whole numbers")
}

/// An array of texts.
pub(crate) fn texts(all: impl IntoIterator<Item = String>) -> Answer {
    Answer::Array(Some(all.into_iter().map(Answer::text).collect()))
}
