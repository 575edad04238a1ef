//! Frames of a mirror read back: the last ones from memory, earlier ones from the files.

use super::Mirror;
use crate::Lsn;
use crate::chunk::Chunk;
use crate::error::Error;
use crate::reader::StreamReader;
use std::collections::VecDeque;

/// Reads the frames of a stream between two positions, which the mirror had when the reader was
/// made. Independent of the mirror, except that the files must stay: no truncation meanwhile above
/// the reader's start.
#[derive(Debug)]
pub struct MirrorReader {
    /// What is not in memory, up to `files_to`.
    files: Option<StreamReader>,
    files_to: Lsn,
    recent: VecDeque<Chunk>,
    position: Lsn,
}

impl MirrorReader {
    /// The next frames, whole and validated; `None` at the end.
    ///
    /// # Errors
    /// A file could not be read, or is damaged.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        let next = match &mut self.files {
            Some(reader) if self.position < self.files_to => {
                let chunk = reader.next_chunk()?.filter(|chunk| chunk.start() == self.position);
                Some(chunk.ok_or_else(|| damaged(reader, self.files_to))?)
            }
            _ => self.recent.pop_front(),
        };
        if let Some(chunk) = &next {
            debug_assert_eq!(chunk.start(), self.position, "frames were left out");
            self.position = chunk.end();
        }
        Ok(next)
    }
}

fn damaged(reader: &StreamReader, to: Lsn) -> Error {
    let end = reader.end();
    let (path, offset, why) = &end.stopped_at;
    let (stream, valid_to) = (end.stream, end.valid_to);
    let what = format!(
        "log stream {stream} was written up to Lsn {to}, and is valid up to Lsn {valid_to} only \
         ({why}): remove the directories, and begin with a copy of another member"
    );
    Error::corrupt(path, *offset, what)
}

impl Mirror {
    /// A reader of the frames from `from` to `to` of a stream of the newest incarnation. Both are
    /// ends of frames, or the incarnation's start.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the mirror does not have all of the frames, or a frame lies
    /// across `from` or `to`.
    pub fn reader(&self, lane: usize, from: Lsn, to: Lsn) -> Result<MirrorReader, Error> {
        let wrong = |what: String| Err(Error::Invalid(what));
        let Some(source) = self.lanes.get(lane) else {
            return wrong(format!(
                "the incarnation has {} streams: none is {lane}",
                self.lanes.len()
            ));
        };
        let (stream, received) = (source.stream, source.received);
        if from > to || to > received {
            return wrong(format!(
                "frames of stream {stream} from Lsn {from} to {to} are wanted, and the mirror has \
                 them up to Lsn {received}"
            ));
        }
        let memory = source.recent.start().unwrap_or(received);
        let (files_to, recent_from) = (to.min(memory), from.max(memory));
        let files = (from < files_to).then(|| self.log.tail_reader(lane, from, files_to));
        if let Some(first) = files.as_ref().map(StreamReader::start).filter(|first| *first != from)
        {
            return wrong(format!(
                "frames of stream {stream} from Lsn {from} on are wanted, and the log was \
                 truncated up to Lsn {first}"
            ));
        }
        let recent = match recent_from < to {
            true => source.recent.parts(recent_from, to),
            false => Some(VecDeque::new()),
        };
        let Some(recent) = recent else {
            return wrong(format!(
                "no frame of stream {stream} ends at Lsn {from}, or at Lsn {to}"
            ));
        };
        Ok(MirrorReader { files, files_to, recent, position: from })
    }

    /// The frames from `from` to `to` of a stream of the newest incarnation, see
    /// [`reader`](Self::reader).
    ///
    /// # Errors
    /// As [`reader`](Self::reader), or a file could not be read.
    pub fn chunks(&self, lane: usize, from: Lsn, to: Lsn) -> Result<Vec<Chunk>, Error> {
        let mut reader = self.reader(lane, from, to)?;
        let mut chunks = Vec::new();
        while let Some(chunk) = reader.next_chunk()? {
            chunks.push(chunk);
        }
        Ok(chunks)
    }
}
