//! The keys and channels of a command: their places among the arguments, and the use of each.

use super::Command;
use crate::resp::number;
use smallvec::SmallVec;

/// The use of a key, as bits, in the order in which COMMAND shows the bits.
pub type KeyFlags = u16;

/// Nothing is done with a key.
pub const NO_KEY_FLAGS: KeyFlags = 0;
/// The value is read, if at all.
pub const RO: KeyFlags = 1;
/// The value is changed.
pub const RW: KeyFlags = 1 << 1;
/// The value is written, without regard to the old value.
pub const OW: KeyFlags = 1 << 2;
/// The key is removed unseen.
pub const RM: KeyFlags = 1 << 3;
/// The content is returned, copied, or decides the result.
pub const ACCESS: KeyFlags = 1 << 4;
/// The content is changed.
pub const UPDATE: KeyFlags = 1 << 5;
/// Content is added.
pub const INSERT: KeyFlags = 1 << 6;
/// Content is removed.
pub const DELETE: KeyFlags = 1 << 7;
/// The argument is no key, but chooses a server as a key does: a channel of a shard.
pub const NOT_KEY: KeyFlags = 1 << 8;
/// There may be keys beyond the specification.
pub const INCOMPLETE: KeyFlags = 1 << 9;
/// The use of the key depends on the request.
pub const VARIABLE: KeyFlags = 1 << 10;
/// The argument is a channel.
const CHANNEL: KeyFlags = 1 << 11;
/// The argument is a pattern of channels.
const PATTERN: KeyFlags = 1 << 12;

/// Names of the first flags.
const FLAG_NAMES: [&str; 11] = [
    "RO",
    "RW",
    "OW",
    "RM",
    "access",
    "update",
    "insert",
    "delete",
    "not_key",
    "incomplete",
    "variable_flags",
];

/// The names of flags, as COMMAND shows them.
pub fn flag_names(flags: KeyFlags) -> impl ExactSizeIterator<Item = &'static str> {
    let names = FLAG_NAMES.into_iter().enumerate();
    let names: Vec<&str> =
        names.filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, name)| name).collect();
    names.into_iter()
}

/// The rights that a request needs for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyAccess {
    /// Only the presence of the key is told: the right to read it or to write it is enough.
    Any = 0,
    /// The value is read.
    Read = 1,
    /// The value is written.
    Write = 2,
    /// Both.
    Both = 3,
}

const _: () = {
    assert!(KeyAccess::Both as u8 == KeyAccess::Read as u8 | KeyAccess::Write as u8);
};

impl KeyAccess {
    /// The rights that follow from the use of a key.
    pub fn of(flags: KeyFlags) -> KeyAccess {
        match (flags & ACCESS != 0, flags & (UPDATE | INSERT | DELETE) != 0) {
            (false, false) => KeyAccess::Any,
            (true, false) => KeyAccess::Read,
            (false, true) => KeyAccess::Write,
            (true, true) => KeyAccess::Both,
        }
    }

    /// Both of the rights.
    pub fn and(self, other: KeyAccess) -> KeyAccess {
        match self as u8 | other as u8 {
            0 => KeyAccess::Any,
            1 => KeyAccess::Read,
            2 => KeyAccess::Write,
            _ => KeyAccess::Both,
        }
    }

    /// Whether a permission for `self` includes `other`.
    pub fn covers(self, other: KeyAccess) -> bool {
        self as u8 & other as u8 == other as u8
    }

    /// The prefix of a rule with the permission.
    pub fn prefix(self) -> &'static [u8] {
        match self {
            KeyAccess::Read => b"%R~",
            KeyAccess::Write => b"%W~",
            KeyAccess::Any | KeyAccess::Both => b"~",
        }
    }
}

/// Where the search for keys begins.
#[derive(Clone, Copy)]
pub enum KeysBegin {
    /// At this place of the request.
    At(i32),
    /// Behind this word; the search for the word starts at a place, counted from the end if
    /// negative.
    Behind(&'static str, i32),
    /// The begin depends on the request.
    Unknown,
}

/// The keys from there on.
#[derive(Clone, Copy)]
pub enum KeysFound {
    /// Keys with this distance, up to a last key, counted from the first, or from the end if
    /// negative.
    Range { last: i32, step: i32 },
    /// The first half of the rest.
    Half,
    /// A number, and as many keys with this distance.
    Counted { step: i32 },
    /// The keys depend on the request.
    Unknown,
}

/// How a request is searched, where its specification does not say.
#[derive(Clone, Copy)]
enum Search {
    /// According to the specification.
    None,
    /// The use of the keys depends on the request.
    Flags(fn(&[&[u8]]) -> KeyFlags),
    /// The places of the keys depend on the request.
    Places(fn(&[&[u8]]) -> SmallVec<[usize; 4]>),
}

/// A specification of keys: their places and use.
#[derive(Clone, Copy)]
pub struct KeySpec {
    /// The use of the keys.
    pub flags: KeyFlags,
    /// Where the search begins.
    pub begin: KeysBegin,
    /// The keys from there on.
    pub found: KeysFound,
    /// A remark on what the specification leaves out.
    pub notes: Option<&'static str>,
    search: Search,
}

const fn spec(begin: KeysBegin, found: KeysFound, flags: KeyFlags) -> KeySpec {
    KeySpec { flags, begin, found, notes: None, search: Search::None }
}

/// The first argument.
pub const fn first(flags: KeyFlags) -> KeySpec {
    at(1, flags)
}

/// One argument.
pub const fn at(place: i32, flags: KeyFlags) -> KeySpec {
    range_of((place, 0, 1), flags)
}

/// Arguments from a first to a last, counted from the first, or from the end if negative, with a
/// distance.
pub const fn range_of((first, last, step): (i32, i32, i32), flags: KeyFlags) -> KeySpec {
    spec(KeysBegin::At(first), KeysFound::Range { last, step }, flags)
}

/// All arguments from a place on.
pub const fn all_from(place: i32, flags: KeyFlags) -> KeySpec {
    range_of((place, -1, 1), flags)
}

/// A number of keys at this place, and the keys behind it.
pub const fn counted(place: i32, flags: KeyFlags) -> KeySpec {
    counted_pairs(place, 1, flags)
}

/// The same, with this distance from key to key: a value may follow each.
pub const fn counted_pairs(place: i32, step: i32, flags: KeyFlags) -> KeySpec {
    spec(KeysBegin::At(place), KeysFound::Counted { step }, flags)
}

/// The arguments behind a word.
pub const fn behind(word: &'static str, from: i32, flags: KeyFlags) -> KeySpec {
    let all = KeysFound::Range { last: -1, step: 1 };
    spec(KeysBegin::Behind(word, from), all, flags)
}

/// The argument behind a word.
pub const fn one_behind(word: &'static str, from: i32, flags: KeyFlags) -> KeySpec {
    spec(KeysBegin::Behind(word, from), KeysFound::Range { last: 0, step: 1 }, flags)
}

/// The first half of the arguments behind a word.
pub const fn behind_half(word: &'static str, from: i32, flags: KeyFlags) -> KeySpec {
    spec(KeysBegin::Behind(word, from), KeysFound::Half, flags)
}

/// Keys that only the request tells.
pub const fn somewhere(flags: KeyFlags, notes: &'static str) -> KeySpec {
    let spec = spec(KeysBegin::Unknown, KeysFound::Unknown, flags);
    KeySpec { notes: Some(notes), ..spec }
}

/// Channels, from the first argument to this place. Channels of a shard are shown as keys.
pub const fn channels(last: i32, flags: KeyFlags) -> KeySpec {
    range_of((1, last, 1), flags | CHANNEL)
}

/// Patterns of channels.
pub const fn patterns() -> KeySpec {
    range_of((1, -1, 1), PATTERN)
}

impl KeySpec {
    /// The same specification, with flags that depend on the request.
    pub const fn with_flags(self, notes: &'static str, flags: fn(&[&[u8]]) -> KeyFlags) -> KeySpec {
        KeySpec { notes: Some(notes), search: Search::Flags(flags), ..self }
    }

    /// The same specification, with a remark.
    pub const fn noted(self, notes: &'static str) -> KeySpec {
        KeySpec { notes: Some(notes), ..self }
    }

    /// The same specification, with places that depend on the request.
    pub const fn found_by(self, places: fn(&[&[u8]]) -> SmallVec<[usize; 4]>) -> KeySpec {
        KeySpec { search: Search::Places(places), ..self }
    }

    /// Whether the specification finds keys, not channels.
    pub fn finds_keys(&self) -> bool {
        self.flags & (CHANNEL | PATTERN | NOT_KEY) == 0
    }

    /// Whether COMMAND shows the specification.
    pub fn is_shown(&self) -> bool {
        self.finds_keys() || self.flags & NOT_KEY != 0
    }

    /// Whether the specification finds arguments by their places alone.
    pub fn is_range(&self) -> bool {
        matches!((self.begin, self.found), (KeysBegin::At(_), KeysFound::Range { .. }))
    }

    /// Adds the keys of a request, which has the number of arguments that its command takes.
    fn add_keys(&self, args: &[&[u8]], keys: &mut SmallVec<[(usize, KeyFlags); 4]>) {
        let flags = match self.search {
            Search::Places(places) => {
                keys.extend(places(args).into_iter().map(|at| (at, self.flags)));
                return;
            }
            Search::Flags(flags) => flags(args),
            Search::None => self.flags,
        };
        let KeysBegin::At(first) = self.begin else { return };
        let first = first as usize;
        let end = args.len() as i32 - 1;
        match self.found {
            KeysFound::Range { last, step } => {
                let last = if last < 0 { args.len() as i32 + last } else { first as i32 + last };
                let places = first as i32..=last.min(end);
                keys.extend(places.step_by(step as usize).map(|at| (at as usize, flags)));
            }
            KeysFound::Counted { step } => {
                let count = args.get(first).and_then(|count| number::integer(count));
                let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                let places = (first + 1..args.len()).step_by(step as usize);
                // With fewer arguments the request is wrong, and has no keys.
                if count <= places.len() {
                    keys.extend(places.take(count).map(|at| (at, flags)));
                }
            }
            KeysFound::Half | KeysFound::Unknown => {}
        }
    }

    /// The specification of a subcommand, for a request that begins with these words.
    pub fn of_subcommand(&self, words: &[&[u8]]) -> KeySpec {
        match self.search {
            Search::Flags(flags) => KeySpec { flags: flags(words), notes: None, ..*self },
            _ => *self,
        }
    }
}

/// First key, last key and step of a command with these specifications: of the adjoining ranges at
/// the beginning.
pub fn range<'s>(specs: impl Iterator<Item = &'s KeySpec>) -> (i32, i32, i32) {
    let mut all: Option<(i32, i32, i32)> = None;
    for spec in specs {
        let (KeysBegin::At(begin), KeysFound::Range { last, step }) = (spec.begin, spec.found)
        else {
            continue;
        };
        let end = if last < 0 { last } else { begin + last };
        all = match all {
            None => Some((begin, end, step)),
            Some((first, before, distance)) if before + 1 == begin && distance == step => {
                Some((first, end, step))
            }
            joined => joined,
        };
    }
    all.unwrap_or((0, 0, 0))
}

/// The channels that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedChannels {
    /// None.
    None,
    /// Names of channels.
    Names,
    /// Patterns.
    Patterns,
}

/// The keys and the channels of a request.
#[derive(Default)]
pub struct RequestKeys {
    /// Places of the keys among the arguments, and what is done with each.
    pub keys: SmallVec<[(usize, KeyFlags); 4]>,
    channels: Option<&'static KeySpec>,
}

impl RequestKeys {
    /// The keys and channels in the arguments of a command, which takes their number.
    pub fn of(command: &Command, args: &[&[u8]]) -> RequestKeys {
        let mut all = RequestKeys::default();
        for spec in command.keys {
            if spec.finds_keys() {
                spec.add_keys(args, &mut all.keys);
            } else if spec.flags & (CHANNEL | PATTERN) != 0 {
                all.channels = Some(spec);
            }
        }
        all
    }

    /// The kind of the channels.
    pub fn channels(&self) -> NamedChannels {
        match self.channels {
            None => NamedChannels::None,
            Some(spec) if spec.flags & PATTERN != 0 => NamedChannels::Patterns,
            Some(_) => NamedChannels::Names,
        }
    }

    /// Places of the channels among the arguments.
    pub fn channel_places(&self, arguments: usize) -> std::ops::Range<usize> {
        match self.channels.map(|spec| spec.found) {
            Some(KeysFound::Range { last: 0, .. }) => 1..arguments.min(2),
            Some(_) => 1..arguments,
            None => 0..0,
        }
    }
}

#[cfg(test)]
mod tests;
