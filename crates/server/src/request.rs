//! A parsed request, until it has run.

use crate::catalogue::{self, names};
use crate::config::RenamedCommands;
use crate::resp::request::Arguments;
use crate::script::only_reads;
use smallvec::SmallVec;

/// Where the arguments of a request are.
#[derive(Clone)]
enum Source {
    /// In the input of the conversation.
    Ranges(SmallVec<[(usize, usize); 4]>),
    /// By themselves.
    Owned(Vec<Vec<u8>>),
}

/// The memory of a request beside its arguments, in bytes.
const REQUEST_BYTES: usize = 128;

/// The memory of an argument beside its bytes.
const ARGUMENT_BYTES: usize = 32;

/// A request that waits to be run.
#[derive(Clone)]
pub struct Request {
    source: Source,
    /// The place of the command in the table.
    place: Option<usize>,
    /// The database of the request, if not the client's: the request follows SELECT in MULTI.
    database: Option<u32>,
    has_waited: bool,
    /// The reason not to run the request.
    refusal: Option<Box<str>>,
}

impl Request {
    /// A request that begins at `begin` in the input. The command is the command with the given
    /// name after renaming; everything else uses the command's own name.
    pub fn new(arguments: Arguments<'_>, begin: usize, renamed: &RenamedCommands) -> Request {
        let name = arguments.get(0);
        let given = renamed.find(name);
        let place = given.unwrap_or_else(|| catalogue::find(name));
        let source = match (arguments.ranges(), given.flatten()) {
            (_, Some(place)) => {
                let own = catalogue::all()[place].name.as_bytes();
                let rest = arguments.iter().skip(1);
                Source::Owned(std::iter::once(own).chain(rest).map(<[u8]>::to_vec).collect())
            }
            (Some(ranges), None) => {
                Source::Ranges(ranges.map(|(from, to)| (begin + from, begin + to)).collect())
            }
            (None, None) => Source::Owned(arguments.iter().map(<[u8]>::to_vec).collect()),
        };
        Request { source, place, database: None, has_waited: false, refusal: None }
    }

    /// A request that waits for an element, by its arguments.
    pub fn waiting(arguments: Vec<Vec<u8>>) -> Request {
        let place = arguments.first().and_then(|name| catalogue::find(name));
        Request {
            source: Source::Owned(arguments),
            place,
            database: None,
            has_waited: true,
            refusal: None,
        }
    }

    /// Makes EXEC reply this error instead of running the request.
    pub fn refuse(&mut self, text: String) {
        self.refusal = Some(text.into());
    }

    /// The error to reply instead of running the request.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Whether the request has waited for an element, and runs again.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// The place of the command in the table.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    fn has_flag(&self, flags: u32) -> bool {
        self.place.is_some_and(|at| catalogue::all()[at].flags & flags != 0)
    }

    /// Whether the command is a transaction by itself, outside of EXEC.
    pub fn is_alone(&self) -> bool {
        self.has_flag(catalogue::ALONE | catalogue::BLOCKS)
    }

    /// Whether the command, or its subcommand, may use more memory.
    #[inline]
    pub fn grows(&self, input: &[u8]) -> bool {
        let Some(command) = self.place.map(|at| &catalogue::all()[at]) else { return false };
        match command.is_container {
            true => names::grows(command, &self.arguments(input)),
            false => command.has(catalogue::DENY_OOM),
        }
    }

    /// Whether the request may change data, as its command says, or the first line of the script of
    /// EVAL.
    pub fn may_write(&self, input: &[u8]) -> bool {
        let Some(command) = self.place.map(|at| &catalogue::all()[at]) else { return false };
        let reads = || self.arguments(input).get(1).is_some_and(|body| only_reads(body));
        command.writes() && !(command.name == "eval" && reads())
    }

    /// Whether no other thread runs the request, however many conflicts occur.
    pub fn stays_on_loop(&self) -> bool {
        self.has_flag(catalogue::ALONE)
    }

    /// Number of arguments, with the name of the command.
    pub fn len(&self) -> usize {
        match &self.source {
            Source::Ranges(ranges) => ranges.len(),
            Source::Owned(owned) => owned.len(),
        }
    }

    /// Whether the command takes this number of arguments.
    pub fn has_arity(&self) -> bool {
        self.place.is_some_and(|at| catalogue::all()[at].takes(self.len()))
    }

    /// The arguments, the name of the command first.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> SmallVec<[&'a [u8]; 8]> {
        match &self.source {
            Source::Ranges(ranges) => ranges.iter().map(|(from, to)| &input[*from..*to]).collect(),
            Source::Owned(owned) => owned.iter().map(Vec::as_slice).collect(),
        }
    }

    /// Bytes of memory of the request by itself, about.
    pub fn memory(&self, input: &[u8]) -> usize {
        let argument = |argument: &&[u8]| argument.len() + ARGUMENT_BYTES;
        REQUEST_BYTES + self.arguments(input).iter().map(argument).sum::<usize>()
    }

    /// The same request, with its arguments moved to the end of `into`.
    pub fn moved_to(self, into: &mut Vec<u8>, input: &[u8]) -> Request {
        let mut append = |argument: &[u8]| {
            let from = into.len();
            into.extend_from_slice(argument);
            (from, into.len())
        };
        let arguments = self.arguments(input);
        let ranges = arguments.iter().map(|argument| append(argument)).collect();
        drop(arguments);
        Request { source: Source::Ranges(ranges), ..self }
    }

    /// The same request, for an input that stands this many bytes behind.
    pub fn moved_by(mut self, bytes: usize) -> Request {
        if let Source::Ranges(ranges) = &mut self.source {
            ranges.iter_mut().for_each(|(from, to)| (*from, *to) = (*from + bytes, *to + bytes));
        }
        self
    }

    /// The same without the input.
    pub fn into_owned(self, input: &[u8]) -> Request {
        // EXEC may have millions of arguments.
        if matches!(self.source, Source::Owned(_)) {
            return self;
        }
        let owned = self.arguments(input).iter().map(|arg| arg.to_vec()).collect();
        Request { source: Source::Owned(owned), ..self }
    }

    /// The database of the request, if not the client's.
    pub fn database(&self) -> Option<u32> {
        self.database
    }

    /// The same request in a database, whatever the client's database is then.
    pub fn in_database(self, database: Option<u32>) -> Request {
        Request { database, ..self }
    }
}
