//! The values sent by a primary: an RDB file, either with the length in front, or with an end mark
//! announced in front.

use super::link::Link;
use std::io::{Error, Read, Result as IoResult};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a mark.
const MARK_BYTES: usize = 40;

/// The end of the file.
enum PayloadEnd {
    /// After this many bytes.
    After(u64),
    /// At this mark: the mark follows the file, and nothing more follows before an acknowledgement.
    Mark(Vec<u8>),
}

/// Reads the file.
pub struct Payload<'l, 'a> {
    link: &'l mut Link<'a>,
    end: PayloadEnd,
    is_over: bool,
    /// Counts the bytes.
    read: &'l AtomicU64,
}

impl<'l, 'a> Payload<'l, 'a> {
    /// Waits for the begin of the file.
    ///
    /// # Errors
    /// No file begins, in a sentence.
    pub fn begin(link: &'l mut Link<'a>, read: &'l AtomicU64) -> Result<Payload<'l, 'a>, String> {
        let line = link.line()?;
        let end = match line.strip_prefix('$') {
            Some(text) => match text.strip_prefix("EOF:") {
                Some(mark) if mark.len() == MARK_BYTES => {
                    Some(PayloadEnd::Mark(mark.as_bytes().to_vec()))
                }
                Some(_) => None,
                None => text.parse().ok().map(PayloadEnd::After),
            },
            None => None,
        };
        let end = end.ok_or_else(|| format!("the primary has sent {line:?} in place of values"))?;
        Ok(Payload { link, end, is_over: false, read })
    }

    /// The length in bytes, if told by the primary.
    pub fn length(&self) -> Option<u64> {
        match self.end {
            PayloadEnd::After(left) => Some(left),
            PayloadEnd::Mark(_) => None,
        }
    }

    /// The number of received bytes of the file.
    fn ready(&mut self) -> usize {
        let pending = self.link.pending();
        match &self.end {
            PayloadEnd::After(left) => {
                self.is_over = *left == 0;
                pending.len().min(usize::try_from(*left).unwrap_or(usize::MAX))
            }
            PayloadEnd::Mark(mark) if pending == mark => {
                self.link.take(MARK_BYTES);
                self.is_over = true;
                0
            }
            // The last bytes may belong to the mark.
            PayloadEnd::Mark(_) => pending.len().saturating_sub(MARK_BYTES),
        }
    }
}

impl Read for Payload<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> IoResult<usize> {
        let ready = loop {
            if self.is_over || out.is_empty() {
                return Ok(0);
            }
            match self.ready() {
                0 if self.is_over => return Ok(0),
                0 => self.link.receive().map_err(Error::other)?,
                ready => break ready,
            }
        };
        let bytes = ready.min(out.len());
        out[..bytes].copy_from_slice(&self.link.pending()[..bytes]);
        self.link.take(bytes);
        self.read.fetch_add(bytes as u64, Relaxed);
        if let PayloadEnd::After(left) = &mut self.end {
            *left -= bytes as u64;
        }
        Ok(bytes)
    }
}
