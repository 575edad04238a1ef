//! Runs the commands of append-only files, some hundred in a transaction. Commands between MULTI
//! and EXEC share a transaction.

use super::Import;
use super::groups::{PendingCommands, SourceCommand};
use super::position::commands_of;
use super::report::ImportReport;
use super::runner::{CommandSource, CommittedPart, Runner};
use crate::data::keyspace::Keyspace;
use crate::resp::request::{Parsed, Parser};
use hyades::{Abort, Ticket};
use std::io::Read;

/// The commands of a file.
pub struct FileCommands<R> {
    /// The number of the file.
    pub file: u32,
    /// Where the commands begin.
    pub begin: u64,
    /// Bytes of the commands, already read.
    pub read: Vec<u8>,
    /// The remaining bytes.
    pub rest: R,
}

/// Bytes read at once.
const CHUNK: u64 = 1 << 20;

/// A file with commands to run.
struct FileSource<'a> {
    import: &'a Import<'a>,
    file: u32,
    /// The number of groups done when all pending groups have run.
    done: u64,
    report: &'a mut ImportReport,
    last: Option<Ticket>,
}

impl CommandSource for FileSource<'_> {
    fn name(&self) -> String {
        self.import.name_of(self.file)
    }

    fn keep(&self, space: &Keyspace<'_>, behind: usize) -> Result<(), Abort> {
        let done = self.done - behind as u64;
        self.import.position(commands_of(self.file), done).keep(space, 0)
    }

    fn committed(&mut self, _: usize, part: CommittedPart) -> Result<(), String> {
        self.report.add(part.report);
        self.last = Some(part.ticket);
        Ok(())
    }

    fn leaves_out_too_much(&self) -> bool {
        false
    }
}

/// Runs the commands of a file. Returns the bytes of an incomplete command, or of an incomplete
/// MULTI, at the end.
///
/// # Errors
/// A description of the error, in a sentence.
pub fn run(
    import: &Import<'_>,
    commands: FileCommands<impl Read>,
    report: &mut ImportReport,
    mut tell: impl FnMut(u64),
) -> Result<u64, String> {
    let FileCommands { file, begin, read: mut input, rest: mut bytes } = commands;
    let (mut runner, mut pending) = (Runner::new(import.shared), PendingCommands::default());
    let mut source = FileSource { import, file, done: 0, report, last: None };
    let (mut parser, mut at) = (Parser::default(), 0);
    // The places in the file of the input, and of the end of the last whole command.
    let (mut input_at, mut whole) = (begin, begin);
    let failed =
        |offset: u64, text: String| format!("{} at byte {offset}: {text}", import.name_of(file));
    loop {
        let offset = input_at + at as u64;
        let parsed = match skip_note(&input[at..]) {
            Some(0) => Parsed::Incomplete,
            Some(length) => Parsed::Nothing(length),
            None => parser
                .next(&input[at..], &super::LIMITS)
                .map_err(|error| failed(offset, error.to_string()))?,
        };
        let is_over = match parsed {
            Parsed::Nothing(length) => {
                at += length;
                false
            }
            Parsed::Request(length) => {
                let ranges = parser.arguments(&input[at..]).ranges();
                let Some(ranges) = ranges else {
                    return Err(failed(offset, "an array of strings is expected".to_string()));
                };
                let arguments = ranges.map(|(from, to)| (at + from, at + to)).collect();
                let command = SourceCommand { offset, arguments };
                let databases = import.shared.settings.databases();
                let added = pending.add(command, offset + length as u64, &input, databases);
                added.map_err(|text| failed(offset, text))?;
                at += length;
                false
            }
            Parsed::Incomplete => {
                let read = bytes.by_ref().take(CHUNK).read_to_end(&mut input);
                read.map_err(|error| failed(offset, format!("cannot be read: {error}")))? == 0
            }
        };
        if !pending.is_open() && matches!(parsed, Parsed::Request(_)) {
            whole = input_at + at as u64;
        }
        let is_full = pending.groups.len() >= super::MOST_COMMANDS || at >= super::BATCH_BYTES;
        if is_over || is_full && !pending.is_open() {
            let groups = std::mem::take(&mut pending.groups);
            let (count, before) = (groups.len() as u64, source.done);
            let from = import.done(commands_of(file)).saturating_sub(before).min(count) as usize;
            source.done += count;
            if from < groups.len() {
                runner.run(import.shared, (&groups[from..], &input), &mut source)?;
            }
            input.drain(..at);
            input_at += at as u64;
            at = 0;
            tell(input_at);
        }
        if is_over {
            let last = source.last.map(Ticket::wait).transpose();
            last.map_err(|error| error.to_string())?;
            return Ok(input_at + input.len() as u64 - whole);
        }
    }
}

/// The length of a note for people at the beginning: a line with a leading `#`. 0 if the end of the
/// line is missing.
fn skip_note(input: &[u8]) -> Option<usize> {
    (input.first() == Some(&b'#')).then(|| memchr::memchr(b'\n', input).map_or(0, |end| end + 1))
}
