//! Streams in the model. The cells of a stream are its entries, each of its groups by name, and the
//! pending entries of each group: a group with the name of a destroyed group is another group.

use super::{Body, CellContent, CellName, Model, WrongType};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The id of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub ms: u64,
    pub seq: u64,
}

impl EntryId {
    /// Reads `ms-seq`, or `ms` alone.
    pub fn parse(text: &str) -> EntryId {
        let (ms, seq) = text.split_once('-').unwrap_or((text, "0"));
        let number = |part: &str| part.parse().expect("it is a number");
        EntryId { ms: number(ms), seq: number(seq) }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The entries of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StreamLog {
    /// The newest id given out.
    pub last: EntryId,
    /// The number of entries ever added.
    pub added: u64,
    /// The highest id removed by XDEL.
    pub deleted: EntryId,
    /// The fields and values of each entry.
    pub entries: BTreeMap<EntryId, Vec<String>>,
}

/// A group, and the last delivered id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupPosition {
    /// The number of the group, unique to the group.
    pub number: usize,
    pub last: EntryId,
}

/// The pending entries of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct GroupPending {
    /// The consumer of each entry, and how often the entry was delivered.
    pub entries: BTreeMap<EntryId, (String, u64)>,
    pub consumers: BTreeSet<String>,
}

/// A part of a stream with a cell of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StreamPart {
    Log,
    Group(String),
    Pending(usize),
}

/// A recovered stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecoveredStream {
    pub log: StreamLog,
    /// The last id delivered to each group, and the pending entries of the group.
    pub groups: BTreeMap<String, (EntryId, GroupPending)>,
}

impl StreamPart {
    /// The content of a cell before the first write.
    pub fn first(&self) -> CellContent {
        match self {
            StreamPart::Log => CellContent::Log(StreamLog::default()),
            StreamPart::Group(_) => CellContent::Group(None),
            StreamPart::Pending(_) => CellContent::Pending(GroupPending::default()),
        }
    }
}

impl Model {
    /// The number of a recovered stream.
    pub(super) fn recovered_stream(&mut self, recovered: &RecoveredStream) -> usize {
        let stream = self.new_stream();
        let log = self.part(stream, StreamPart::Log);
        self.cells[log].versions[0].0 = CellContent::Log(recovered.log.clone());
        for (name, (last, pending)) in &recovered.groups {
            let position = self.new_group(*last);
            let group = self.part(stream, StreamPart::Group(name.clone()));
            self.cells[group].versions[0].0 = CellContent::Group(Some(position));
            let entries = self.part(stream, StreamPart::Pending(position.number));
            self.cells[entries].versions[0].0 = CellContent::Pending(pending.clone());
        }
        stream
    }

    fn new_stream(&mut self) -> usize {
        self.streams += 1;
        self.streams
    }

    /// A group with a number of its own.
    pub fn new_group(&mut self, last: EntryId) -> GroupPosition {
        self.groups += 1;
        GroupPosition { number: self.groups, last }
    }

    fn part(&mut self, stream: usize, part: StreamPart) -> usize {
        self.cell(CellName::Stream { stream, part })
    }

    /// The stream of a key, if there is one.
    pub fn stream(
        &mut self,
        database: u32,
        key: &str,
        now_ms: i64,
    ) -> Result<Option<usize>, WrongType> {
        match self.head(database, key, now_ms) {
            None => Ok(None),
            Some((Body::Stream(stream), _)) => Ok(Some(stream)),
            Some(_) => Err(WrongType),
        }
    }

    /// The stream of a key, created if there is none.
    pub fn open_stream(
        &mut self,
        database: u32,
        key: &str,
        now_ms: i64,
    ) -> Result<usize, WrongType> {
        if let Some(stream) = self.stream(database, key, now_ms)? {
            return Ok(stream);
        }
        let stream = self.new_stream();
        self.set_head(database, key, Some((Body::Stream(stream), None)));
        self.set_log(stream, StreamLog::default());
        Ok(stream)
    }

    /// The entries of a stream.
    pub fn log(&mut self, stream: usize) -> StreamLog {
        let cell = self.part(stream, StreamPart::Log);
        self.read(cell);
        match self.newest(cell) {
            CellContent::Log(log) => log.clone(),
            other => unreachable!("{other:?} is no log"),
        }
    }

    /// Writes the entries of a stream.
    pub fn set_log(&mut self, stream: usize, log: StreamLog) {
        let cell = self.part(stream, StreamPart::Log);
        self.write(cell, CellContent::Log(log));
    }

    /// A group of a stream, if there is a group of this name.
    pub fn group(&mut self, stream: usize, name: &str) -> Option<GroupPosition> {
        let cell = self.part(stream, StreamPart::Group(name.to_string()));
        self.read(cell);
        match self.newest(cell) {
            CellContent::Group(group) => *group,
            other => unreachable!("{other:?} is no group"),
        }
    }

    /// Writes a group of a stream, or removes the group.
    pub fn set_group(&mut self, stream: usize, name: &str, group: Option<GroupPosition>) {
        if let Some(GroupPosition { number, .. }) = group {
            self.part(stream, StreamPart::Pending(number));
        }
        let cell = self.part(stream, StreamPart::Group(name.to_string()));
        self.write(cell, CellContent::Group(group));
    }

    /// The pending entries of a group, without a read.
    pub fn peek_pending(&mut self, stream: usize, group: usize) -> GroupPending {
        let cell = self.part(stream, StreamPart::Pending(group));
        match self.newest(cell) {
            CellContent::Pending(pending) => pending.clone(),
            other => unreachable!("{other:?} is not pending"),
        }
    }

    /// Writes the pending entries of a group, unless unchanged.
    pub fn set_pending(&mut self, stream: usize, group: usize, pending: GroupPending) {
        let cell = self.part(stream, StreamPart::Pending(group));
        if self.peek_pending(stream, group) != pending {
            self.read(cell);
            self.write(cell, CellContent::Pending(pending));
        }
    }
}
