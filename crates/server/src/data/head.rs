//! The head of a value: type, form and time of expiry in one word.

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes.
    String = 0,
    /// A list of strings.
    List = 1,
    /// A set of strings.
    Set = 2,
    /// Fields with values.
    Hash = 3,
    /// Members by score.
    SortedSet = 4,
    /// Entries by id, and groups of consumers.
    Stream = 5,
}

/// All types.
pub const KINDS: [Kind; 6] =
    [Kind::String, Kind::List, Kind::Set, Kind::Hash, Kind::SortedSet, Kind::Stream];

impl Kind {
    /// The reply of TYPE.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::Hash => "hash",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }

    /// Whether a value too large for the row of a key lies in chunks, not in blocks.
    pub fn is_in_chunks(self) -> bool {
        match self {
            Kind::String => true,
            Kind::List | Kind::Set | Kind::Hash | Kind::SortedSet | Kind::Stream => false,
        }
    }

    /// Whether each change of a value writes the row of the key, wherever the elements lie: the row
    /// of a list has the number of elements.
    pub fn writes_row(self) -> bool {
        match self {
            Kind::List => true,
            Kind::String | Kind::Set | Kind::Hash | Kind::SortedSet | Kind::Stream => false,
        }
    }

    /// Whether commands wait for elements.
    pub fn is_waited_for(self) -> bool {
        match self {
            Kind::List | Kind::SortedSet | Kind::Stream => true,
            Kind::String | Kind::Set | Kind::Hash => false,
        }
    }

    /// The type of a number in the table of collections.
    pub fn of_number(number: u32) -> Option<Kind> {
        KINDS.get(number as usize).copied()
    }
}

/// The representation of a value, as far as OBJECT ENCODING distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// As the content suggests.
    Plain = 0,
    /// A string changed in place.
    Raw = 1,
    /// A collection in blocks.
    Blocks = 2,
    /// A string in chunks.
    Chunks = 3,
    /// A packed hash with expiring fields.
    Timed = 4,
    /// A hash in blocks with fields that expire, or did.
    TimedBlocks = 5,
}

const FORMS: [Form; 6] =
    [Form::Plain, Form::Raw, Form::Blocks, Form::Chunks, Form::Timed, Form::TimedBlocks];

impl Form {
    /// Whether the value lies in rows of its own, named by a number in the row of the key.
    pub fn is_numbered(self) -> bool {
        matches!(self, Form::Blocks | Form::Chunks | Form::TimedBlocks)
    }

    /// Whether parts of the value may expire by themselves.
    pub fn is_timed(self) -> bool {
        matches!(self, Form::Timed | Form::TimedBlocks)
    }
}

/// Bits 0 to 3: kind; 4 to 7: form; 8: watched; 9 to 15: unused, 0; 16 to 63: the time of expiry in
/// milliseconds since 1970, 0 if never.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head(u64);

/// The latest time of expiry, in the year 10889. Later times are lowered to this value.
const LATEST: i64 = (1 << 48) - 1;

impl Head {
    /// The head of a value without an expiry.
    pub const fn new(kind: Kind, form: Form) -> Head {
        Head(kind as u64 | (form as u64) << 4)
    }

    /// Reads a head. `None` if the word is no head: of a torn view, or of a later version.
    pub fn from_word(word: u64) -> Option<Head> {
        let (kind, form) = (word & 0xf, word >> 4 & 0xf);
        let is_known = kind < KINDS.len() as u64 && form < FORMS.len() as u64;
        (is_known && word >> 9 & 0x7f == 0).then_some(Head(word))
    }

    /// The head as stored.
    pub fn word(self) -> u64 {
        self.0
    }

    /// The type.
    pub fn kind(self) -> Kind {
        KINDS[(self.0 & 0xf) as usize]
    }

    /// The form.
    pub fn form(self) -> Form {
        FORMS[(self.0 >> 4 & 0xf) as usize]
    }

    /// Whether a change of a block of the value writes the key's row as well, so that the change
    /// shows in the row's version.
    pub fn is_watched(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// The same head, watched.
    pub fn watched(self) -> Head {
        Head(self.0 | 1 << 8)
    }

    /// The same head, not watched.
    pub fn unwatched(self) -> Head {
        Head(self.0 & !(1 << 8))
    }

    /// The time of expiry, in milliseconds since 1970.
    pub fn expires(self) -> Option<i64> {
        Some((self.0 >> 16) as i64).filter(|at| *at > 0)
    }

    /// Whether the value has expired at `now_ms`.
    pub fn is_expired(self, now_ms: i64) -> bool {
        self.expires().is_some_and(|at| at <= now_ms)
    }

    /// The same head with another time of expiry.
    pub fn with_expiry(self, at_ms: Option<i64>) -> Head {
        let at = at_ms.map_or(0, |at| at.clamp(1, LATEST) as u64);
        Head(self.0 & 0xffff | at << 16)
    }

    /// The same head with another form.
    pub fn with_form(self, form: Form) -> Head {
        Head(self.0 & !0xf0 | (form as u64) << 4)
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.kind(), self.form(), self.expires())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_head_are_independent() {
        for kind in KINDS {
            for form in FORMS {
                for at in [None, Some(1), Some(1_700_000_000_000), Some(LATEST)] {
                    let other = Head::new(kind, Form::Plain).with_expiry(Some(77));
                    let head = other.with_form(form).with_expiry(at);
                    assert_eq!((head.kind(), head.form(), head.expires()), (kind, form, at));
                    assert_eq!(Head::from_word(head.word()), Some(head));
                    assert!(!head.is_watched() && head.watched().is_watched());
                    let watched = head.watched().with_expiry(None).with_form(Form::Raw);
                    assert!(watched.is_watched() && watched.kind() == kind);
                    assert_eq!(head.watched().unwatched(), head);
                    assert_eq!(Head::from_word(watched.word()), Some(watched));
                }
            }
        }
        let head = Head::new(Kind::String, Form::Plain);
        assert_eq!(head.with_expiry(Some(i64::MAX)).expires(), Some(LATEST));
        assert!(
            head.with_expiry(Some(5)).is_expired(5) && !head.with_expiry(Some(5)).is_expired(4)
        );
        assert!(!head.is_expired(i64::MAX));
        for unknown in [9, 6 << 4, 1 << 9, 1 << 15] {
            assert_eq!(Head::from_word(unknown), None);
        }
    }
}
