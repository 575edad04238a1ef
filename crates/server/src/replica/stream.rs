//! Follows the primary's stream of commands.
//!
//! Received commands are run as far as they are whole, many in a transaction, and the commands of a
//! transaction of the primary in one transaction. Transactions are in the order of the stream, and
//! each writes the offset up to which the stream was run: a crash leaves a prefix of the stream,
//! and the offset of the prefix. So nothing is lost or done twice, whatever ends in between.

use super::acknowledging::{Acknowledger, MOST_UNDER_WAY, ReadStep};
use super::link::Link;
use super::log;
use crate::data::keyspace::{Keyspace, MOST_COPIED};
use crate::data::primary::PrimaryPosition;
use crate::import::groups::{PendingCommands, SourceCommand};
use crate::import::runner::{CommandSource, CommittedPart, Runner};
use crate::import::{BATCH_BYTES, LIMITS, MOST_COMMANDS};
use crate::resp::is;
use crate::resp::request::{Parsed, Parser};
use crate::state::Shared;
use hyades::Abort;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};

/// After this many bytes without effect, such as PING, the offset is written all the same: a
/// restart should find the offset in the primary's backlog.
const MOST_UNWRITTEN: u64 = 4 << 10;

/// The longest awaited command, or MULTI: a transaction of this length copies too much.
const MOST_PENDING: usize = 2 * MOST_COPIED;

/// The stream, as the source of commands.
struct StreamSource<'a> {
    shared: &'a Shared,
    position: PrimaryPosition,
    /// The ends of the groups being run, with the databases behind them.
    ends: Vec<(u64, u32)>,
    /// The last written offset.
    written: u64,
    steps: SyncSender<ReadStep>,
}

impl StreamSource<'_> {
    fn send(&self, step: ReadStep) -> Result<(), String> {
        self.steps.send(step).map_err(|_| "the log or the connection has failed".to_string())
    }
}

impl CommandSource for StreamSource<'_> {
    fn name(&self) -> String {
        self.position.address.to_string()
    }

    fn keep(&self, space: &Keyspace<'_>, behind: usize) -> Result<(), Abort> {
        let (offset, database) = self.ends[self.ends.len() - 1 - behind];
        let position = PrimaryPosition { offset, database, ..self.position.clone() };
        position.keep(&space.transaction(), space.context().tables)
    }

    fn committed(&mut self, behind: usize, part: CommittedPart) -> Result<(), String> {
        let (end, _) = self.ends[self.ends.len() - 1 - behind];
        self.written = end;
        let import = &self.shared.live_import;
        import.numbers.commands.fetch_add(part.report.commands, Relaxed);
        if part.report.left_out > 0 {
            part.report.named.iter().for_each(|text| log(&format!("left out: {text}")));
            import.leave_out(part.report.left_out, part.report.named);
        }
        let CommittedPart { ticket, events, changed, .. } = part;
        self.send(ReadStep::Ran { ticket, end, events, changed })
    }

    fn leaves_out_too_much(&self) -> bool {
        true
    }
}

/// The reader of the stream.
struct StreamReader<'l, 'a> {
    shared: &'l Arc<Shared>,
    link: &'l mut Link<'a>,
    parser: Parser,
    pending: PendingCommands,
    /// The parsed bytes, of the bytes pending at the link.
    at: usize,
    /// The offset behind the parsed bytes.
    offset: u64,
    /// The offset told to the acknowledging thread.
    told: u64,
    runner: Runner,
    source: StreamSource<'l>,
}

impl StreamReader<'_, '_> {
    /// Runs the groups read so far, and takes their bytes.
    fn run_pending(&mut self) -> Result<(), String> {
        let groups = std::mem::take(&mut self.pending.groups);
        if !groups.is_empty() {
            self.source.ends = groups.iter().map(|g| (g.end, g.database_behind)).collect();
            let input = self.link.pending();
            self.runner.run(self.shared, (&groups, input), &mut self.source)?;
            self.told = self.source.written;
        }
        if !self.pending.is_open() {
            self.link.take(self.at);
            self.at = 0;
        }
        Ok(())
    }

    /// Writes the offset, without a command.
    fn write_offset(&mut self) -> Result<(), String> {
        self.source.ends = vec![(self.offset, self.pending.database)];
        self.runner.run(self.shared, (&[], &[]), &mut self.source)?;
        self.told = self.offset;
        Ok(())
    }

    /// Ends a turn: no further data was received.
    fn end_turn(&mut self) -> Result<(), String> {
        self.run_pending()?;
        if self.pending.is_open() || self.told == self.offset {
            return Ok(());
        }
        if self.offset - self.source.written > MOST_UNWRITTEN {
            return self.write_offset();
        }
        self.told = self.offset;
        self.source.send(ReadStep::Passed(self.offset))
    }

    /// Takes a parsed command of this length.
    fn take_command(&mut self, length: usize) -> Result<(), String> {
        let place = |offset| format!("the stream at byte {offset}");
        let arguments = self.parser.arguments(&self.link.pending()[self.at..]);
        let Some(ranges) = arguments.ranges() else {
            let place = place(self.offset);
            return Err(format!("{place}: an array of strings is expected"));
        };
        let arguments = ranges.map(|(from, to)| (self.at + from, self.at + to)).collect();
        let command = SourceCommand { offset: self.offset, arguments };
        let begin = self.offset;
        self.at += length;
        self.offset += length as u64;
        self.shared.live_import.numbers.read.store(self.offset, Relaxed);
        let input = self.link.pending();
        let name = command.argument(0, input);
        if is(name, "REPLCONF") {
            if is(command.argument(1, input), "GETACK") {
                self.end_turn()?;
                // Commands behind an open MULTI have not run.
                let passed = if self.pending.is_open() { self.told } else { self.offset };
                self.source.send(ReadStep::Asked(passed))?;
            }
            return Ok(());
        }
        // PING only keeps the connection alive.
        if is(name, "PING") && !self.pending.is_open() {
            return Ok(());
        }
        let databases = self.shared.settings.databases();
        let added = self.pending.add(command, self.offset, input, databases);
        added.map_err(|text| format!("{}: {text}", place(begin)))
    }

    /// Reads until the connection ends.
    fn read(&mut self) -> Result<(), String> {
        loop {
            let parsed = self.parser.next(&self.link.pending()[self.at..], &LIMITS);
            let offset = self.offset;
            let parsed = parsed.map_err(|error| format!("the stream at byte {offset}: {error}"))?;
            match parsed {
                Parsed::Nothing(length) => {
                    self.at += length;
                    self.offset += length as u64;
                }
                Parsed::Request(length) => self.take_command(length)?,
                Parsed::Incomplete => {
                    if !self.pending.is_open() {
                        self.end_turn()?;
                    }
                    // A longer command or MULTI could not run as one transaction.
                    if self.link.pending().len() > MOST_PENDING {
                        return Err(format!(
                            "the stream at byte {offset}: a command or MULTI of more than \
                             {MOST_PENDING} bytes"
                        ));
                    }
                    self.link.receive()?;
                }
            }
            let is_full = self.pending.groups.len() >= MOST_COMMANDS || self.at >= BATCH_BYTES;
            if is_full && !self.pending.is_open() {
                self.run_pending()?;
            }
        }
    }
}

/// Follows the stream behind a position until the connection ends. All committed transactions are
/// on disk then. `is_new`: the row has another id than this position.
///
/// # Errors
/// The cause of the end, in a sentence.
pub fn follow(
    shared: &Arc<Shared>,
    link: &mut Link<'_>,
    position: PrimaryPosition,
    is_new: bool,
) -> Result<(), String> {
    let numbers = &shared.live_import.numbers;
    numbers.read.store(position.offset, Relaxed);
    numbers.durable.store(position.offset, Relaxed);
    let acknowledger = Acknowledger { shared, stream: link.writer()? };
    let (sender, steps) = sync_channel(MOST_UNDER_WAY);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("acknowledger".into());
        let thread = thread.spawn_scoped(scope, move || acknowledger.run(&steps));
        thread.map_err(|error| format!("a thread cannot be created: {error}"))?;
        let pending = PendingCommands::in_database(position.database);
        let (offset, ends) = (position.offset, Vec::new());
        let source = StreamSource { shared, position, ends, written: offset, steps: sender };
        let mut reader = StreamReader {
            shared,
            link,
            parser: Parser::default(),
            pending,
            at: 0,
            offset,
            told: offset,
            runner: Runner::new(shared),
            source,
        };
        if is_new {
            reader.write_offset()?;
        }
        reader.read()
    })
}
