//! Durable statements: the log's own records of the durable positions of streams.

use crate::Lsn;
use crate::frame::{self, Frame, FrameKind};
use std::path::PathBuf;

/// A durable statement that a stream was durable up to `lsn`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The stated position.
    pub lsn: Lsn,
    /// The file with the statement.
    pub path: PathBuf,
    /// The offset of the statement in the file.
    pub offset: u64,
}

impl Statement {
    /// Keeps a statement of durability up to `lsn`, if higher than the last statement.
    pub(crate) fn note(&mut self, lsn: Lsn, path: &PathBuf, offset: u64) {
        if lsn > self.lsn {
            self.lsn = lsn;
            self.offset = offset;
            self.path.clone_from(path);
        }
    }
}

/// Notes the statements of an anchor or a heartbeat, and updates the anchor in effect. Without
/// `statements` frames state nothing about the files.
pub(crate) fn take_statements(
    dimension: usize,
    frame: &Frame<'_>,
    (path, place): (&PathBuf, u64),
    anchor: &mut [Lsn],
    statements: &mut [Statement],
) {
    debug_assert!(
        statements.is_empty() || anchor.len() == statements.len(),
        "an anchor of another incarnation"
    );
    match frame.kind {
        FrameKind::Anchor => {
            if frame::read_anchor(frame.payload, anchor).is_some() {
                for (statement, &lsn) in statements.iter_mut().zip(anchor.iter()) {
                    statement.note(lsn, path, place);
                }
            }
        }
        FrameKind::Heartbeat => {
            if let Some((_, durable)) = frame::read_heartbeat(frame.payload)
                && let Some(own) = statements.get_mut(dimension)
            {
                own.note(durable, path, place);
            }
        }
        FrameKind::Record | FrameKind::Part | FrameKind::Void => {}
    }
}
