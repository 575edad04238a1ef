//! Whole files of Redis, read once from front to end and cut into keys with values. Values are
//! found by their lengths and decoded elsewhere, by [`super::value`], on all available threads.

use super::crc64::crc64_from;
use super::kinds;
use super::read::decoded;
use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::ops::Range;

/// The latest readable version of the format, that of Redis 7.4.
const LATEST_VERSION: u32 = 12;

/// Bytes of the name and the version of the format.
const HEADER: usize = 9;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// An error in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct BadFile {
    /// The place in bytes.
    pub offset: u64,
    /// A description of the error, in words.
    pub text: String,
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.text)
    }
}

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum FilePart<'a> {
    /// A key with a value.
    Key {
        /// The number of the database.
        database: u32,
        /// The time of expiry of the key, in milliseconds since 1970.
        expires: Option<i64>,
        /// The key.
        key: Cow<'a, [u8]>,
        /// The type of the value, for [`super::value`].
        kind: u8,
        /// The value.
        value: &'a [u8],
    },
    /// The code of a library of functions.
    Library(Cow<'a, [u8]>),
    /// The name of data that only a module or a server of another kind reads.
    LeftOut(&'static str),
}

/// A part as ranges of the buffer.
enum FoundPart {
    Key { expires: Option<i64>, key: Range<usize>, kind: u8, value: Range<usize> },
    Library(Range<usize>),
    LeftOut(&'static str),
}

type FileResult<T> = Result<T, BadFile>;

/// Reads a file.
pub struct FileReader<R> {
    source: R,
    /// Bytes not read yet.
    left: u64,
    buffer: Vec<u8>,
    /// The place of the buffer in the file.
    buffer_at: u64,
    /// The begin of the current part, in the buffer.
    begin: usize,
    /// The next byte, in the buffer.
    at: usize,
    checksum: u64,
    version: u32,
    database: u32,
    stream_database: Option<u32>,
    is_over: bool,
}

impl<R: Read> FileReader<R> {
    /// Begins a file of `length` bytes; `u64::MAX` if the file is as long as its source.
    ///
    /// # Errors
    /// The file is not of Redis, or is of a later version.
    pub fn new(source: R, length: u64) -> FileResult<FileReader<R>> {
        let mut reader = FileReader {
            source,
            left: length,
            buffer: Vec::new(),
            buffer_at: 0,
            begin: 0,
            at: 0,
            checksum: 0,
            version: 0,
            database: 0,
            stream_database: None,
            is_over: false,
        };
        let header = reader.take(HEADER)?;
        let header = &reader.buffer[header];
        let version = std::str::from_utf8(&header[5..]).ok().and_then(|text| text.parse().ok());
        match version.filter(|_| header.starts_with(b"REDIS")) {
            Some(version @ 1..=LATEST_VERSION) => reader.version = version,
            Some(version) => {
                let text = format!(
                    "version {version} of the format, and this program reads 1 to {LATEST_VERSION}"
                );
                return Err(BadFile { offset: 5, text });
            }
            None => {
                let text = "REDIS and a version are expected: it is no RDB file".to_string();
                return Err(BadFile { offset: 0, text });
            }
        }
        reader.end_part();
        Ok(reader)
    }

    /// The number of bytes read.
    pub fn position(&self) -> u64 {
        self.buffer_at + self.at as u64
    }

    /// The rest of the source behind the end of the file: the bytes already read, and the source.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        (self.buffer[self.at..].to_vec(), self.source)
    }

    fn is_open_ended(&self) -> bool {
        self.left > u64::MAX / 2
    }

    fn fail<T>(&self, text: impl Into<String>) -> FileResult<T> {
        Err(BadFile { offset: self.position(), text: text.into() })
    }

    /// Takes bytes. Returns their range in the buffer.
    fn take(&mut self, length: usize) -> FileResult<Range<usize>> {
        let Some(end) = self.at.checked_add(length) else {
            return self.fail("a length that no value has");
        };
        let missing = end.saturating_sub(self.buffer.len());
        if missing > 0 {
            if missing as u64 > self.left {
                let text = format!("{length} bytes are expected, and the file has fewer");
                return self.fail(text);
            }
            let wanted = (missing.max(CHUNK) as u64).min(self.left);
            self.left -= wanted;
            let read = self.source.by_ref().take(wanted).read_to_end(&mut self.buffer);
            match read {
                Ok(bytes) if bytes as u64 == wanted => {}
                // The source has ended, and so has the file.
                Ok(bytes) if bytes >= missing && self.is_open_ended() => self.left = 0,
                Ok(_) => return self.fail("the file has become shorter"),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    return self.fail(format!("there is no memory for {length} bytes"));
                }
                Err(error) => return self.fail(format!("cannot be read: {error}")),
            }
        }
        let from = self.at;
        self.at = end;
        Ok(from..self.at)
    }

    fn byte(&mut self) -> FileResult<u8> {
        let at = self.take(1)?;
        Ok(self.buffer[at.start])
    }

    fn array<const N: usize>(&mut self) -> FileResult<[u8; N]> {
        let range = self.take(N)?;
        Ok(self.buffer[range].try_into().expect("as many were taken"))
    }

    /// A length, or the encoding of the string behind it.
    fn length_or_encoding(&mut self) -> FileResult<Result<usize, u8>> {
        let first = self.byte()?;
        let length = match first {
            0..=0x3f => u64::from(first),
            0x40..=0x7f => u64::from(first & 0x3f) << 8 | u64::from(self.byte()?),
            0x80 => u64::from(u32::from_be_bytes(self.array()?)),
            0x81 => u64::from_be_bytes(self.array()?),
            0xc0..=0xff => return Ok(Err(first & 0x3f)),
            _ => return self.fail(format!("a length is expected, and no {first:#x}")),
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Ok(length)),
            Err(_) => self.fail("a length that no value has"),
        }
    }

    fn length(&mut self) -> FileResult<usize> {
        match self.length_or_encoding()? {
            Ok(length) => Ok(length),
            Err(_) => self.fail("a length is expected, and no string"),
        }
    }

    fn lengths(&mut self, count: usize) -> FileResult<()> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    /// Skips a string. Returns its range in the buffer, including the length.
    fn string(&mut self) -> FileResult<Range<usize>> {
        let from = self.at;
        let bytes = match self.length_or_encoding()? {
            Ok(length) => length,
            Err(0) => 1,
            Err(1) => 2,
            Err(2) => 4,
            Err(3) => {
                let packed = self.length()?;
                self.length()?;
                packed
            }
            Err(other) => return self.fail(format!("a string of the unknown encoding {other}")),
        };
        self.take(bytes)?;
        Ok(from..self.at)
    }

    fn strings(&mut self, count: usize) -> FileResult<()> {
        (0..count).try_for_each(|_| self.string().map(drop))
    }

    /// Skips a value of a type.
    fn value(&mut self, kind: u8) -> FileResult<()> {
        match kind {
            kinds::LIST | kinds::SET | kinds::LIST_QUICKLIST => {
                let count = self.length()?;
                self.strings(count)
            }
            kinds::HASH => {
                let count = self.length()?;
                (0..count).try_for_each(|_| self.strings(2))
            }
            kinds::SORTED_SET | kinds::SORTED_SET_2 => self.sorted_set(kind),
            kinds::LIST_QUICKLIST_2 => {
                let count = self.length()?;
                (0..count).try_for_each(|_| {
                    self.length()?;
                    self.string().map(drop)
                })
            }
            kinds::HASH_TIMED | kinds::HASH_TIMED_OF_CANDIDATE => {
                if kind == kinds::HASH_TIMED {
                    self.take(8)?;
                }
                let count = self.length()?;
                (0..count).try_for_each(|_| {
                    self.length()?;
                    self.strings(2)
                })
            }
            kinds::HASH_TIMED_LISTPACK_OF_CANDIDATE => self.string().map(drop),
            kinds::HASH_TIMED_LISTPACK => {
                self.take(8)?;
                self.string().map(drop)
            }
            kinds::MODULE_2 => self.module(),
            kind if kinds::STREAMS.contains(&kind) => self.stream(kind),
            kind if kinds::ONE_STRING.contains(&kind) => self.string().map(drop),
            kinds::MODULE => self.fail("a value of a module of Redis 4.0 has no length"),
            kind => self.fail(format!("a value of the unknown type {kind}")),
        }
    }

    fn sorted_set(&mut self, kind: u8) -> FileResult<()> {
        let count = self.length()?;
        (0..count).try_for_each(|_| {
            self.string()?;
            let score = match kind {
                kinds::SORTED_SET_2 => 8,
                _ => match self.byte()? {
                    253..=255 => 0,
                    length => usize::from(length),
                },
            };
            self.take(score).map(drop)
        })
    }

    fn stream(&mut self, kind: u8) -> FileResult<()> {
        let [_, second, third] = kinds::STREAMS;
        let (is_second, is_third) = (kind >= second, kind >= third);
        let nodes = self.length()?;
        (0..nodes).try_for_each(|_| self.strings(2))?;
        // The length and the last id; the first id, the highest deleted id, and a count.
        self.lengths(if is_second { 8 } else { 3 })?;
        let groups = self.length()?;
        (0..groups).try_for_each(|_| {
            self.string()?;
            self.lengths(if is_second { 3 } else { 2 })?;
            let pending = self.length()?;
            (0..pending).try_for_each(|_| {
                // An id, the time, and the number of deliveries.
                self.take(24)?;
                self.length().map(drop)
            })?;
            let consumers = self.length()?;
            (0..consumers).try_for_each(|_| {
                self.string()?;
                self.take(if is_third { 16 } else { 8 })?;
                let own = self.length()?;
                (0..own).try_for_each(|_| self.take(16).map(drop))
            })
        })
    }

    /// Skips self-describing data of a module.
    fn module(&mut self) -> FileResult<()> {
        self.length()?;
        loop {
            match self.length()? {
                0 => return Ok(()),
                1 | 2 => self.length().map(drop)?,
                3 => self.take(4).map(drop)?,
                4 => self.take(8).map(drop)?,
                5 => self.string().map(drop)?,
                other => {
                    return self.fail(format!("a module has written the unknown mark {other}"));
                }
            }
        }
    }

    /// Adds the bytes read to the checksum, and cuts the buffer once many of its bytes were read.
    fn end_part(&mut self) {
        self.checksum = crc64_from(self.checksum, &self.buffer[self.begin..self.at]);
        if self.at >= CHUNK {
            self.buffer.drain(..self.at);
            self.buffer_at += self.at as u64;
            self.at = 0;
        }
        self.begin = self.at;
    }

    /// The next part; `None` at the end of the file, after a correct checksum.
    ///
    /// # Errors
    /// An error in the file.
    pub fn next(&mut self) -> FileResult<Option<FilePart<'_>>> {
        if self.is_over {
            return Ok(None);
        }
        self.end_part();
        let Some(found) = self.find()? else {
            self.is_over = true;
            return Ok(None);
        };
        let text = |range: Range<usize>| {
            let offset = self.buffer_at + range.start as u64;
            let text = "a string is expected".to_string();
            decoded(&self.buffer[range]).ok_or(BadFile { offset, text })
        };
        Ok(Some(match found {
            FoundPart::Key { expires, key, kind, value } => FilePart::Key {
                database: self.database,
                expires,
                key: text(key)?,
                kind,
                value: &self.buffer[value],
            },
            FoundPart::Library(code) => FilePart::Library(text(code)?),
            FoundPart::LeftOut(name) => FilePart::LeftOut(name),
        }))
    }

    /// Reads a name and a text. Stores the database in which a stream of commands behind the file
    /// begins.
    fn auxiliary(&mut self) -> FileResult<()> {
        let (name, text) = (self.string()?, self.string()?);
        if decoded(&self.buffer[name]).is_some_and(|name| &name[..] == b"repl-stream-db") {
            let text = decoded(&self.buffer[text]);
            let text = text.and_then(|text| String::from_utf8(text.to_vec()).ok());
            self.stream_database = text.and_then(|text| text.parse().ok());
        }
        Ok(())
    }

    /// The database in which a stream of commands behind the file begins, if the file tells: the
    /// file of a replica does, as a replica passes on the stream it gets.
    pub fn stream_database(&self) -> Option<u32> {
        self.stream_database
    }

    fn find(&mut self) -> FileResult<Option<FoundPart>> {
        let mut expires = None;
        loop {
            match self.byte()? {
                kinds::EXPIRES_MS => expires = Some(i64::from_le_bytes(self.array()?)),
                kinds::EXPIRES_SECONDS => {
                    expires = Some(i64::from(i32::from_le_bytes(self.array()?)) * 1_000);
                }
                kinds::IDLE => self.length().map(drop)?,
                kinds::FREQUENCY => self.byte().map(drop)?,
                kinds::DATABASE => {
                    let number = self.length()?;
                    match u32::try_from(number) {
                        Ok(number) => self.database = number,
                        Err(_) => return self.fail(format!("there is no database {number}")),
                    }
                }
                kinds::SIZES => self.lengths(2)?,
                kinds::SLOT => self.lengths(3)?,
                kinds::AUXILIARY => self.auxiliary()?,
                kinds::MODULE_AUXILIARY => {
                    self.module()?;
                    return Ok(Some(FoundPart::LeftOut("data of a module")));
                }
                kinds::LIBRARY_OF_CANDIDATE => {
                    return self.fail("a library of a release candidate of Redis 7.0");
                }
                kinds::LIBRARY => return self.string().map(|code| Some(FoundPart::Library(code))),
                kinds::END => {
                    self.check_end()?;
                    return Ok(None);
                }
                kind => {
                    let key = self.string()?;
                    let begin = self.at;
                    self.value(kind)?;
                    return Ok(Some(FoundPart::Key { expires, key, kind, value: begin..self.at }));
                }
            }
        }
    }

    fn check_end(&mut self) -> FileResult<()> {
        self.end_part();
        if self.version < 5 {
            return Ok(());
        }
        let computed = self.checksum;
        let stated = u64::from_le_bytes(self.array()?);
        // Without checksums the value is 0.
        if stated != 0 && stated != computed {
            let text =
                format!("the checksum is {stated:016x}, and that of the file {computed:016x}");
            return self.fail(text);
        }
        Ok(())
    }
}
