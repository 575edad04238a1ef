//! Which stream a session logs to.

use super::EngineSession;
use crate::concurrency::Commits;
use crate::logging::LoggingProtocol;
use hyades_platform::broken;
use hyades_platform::phase::{self, Phase};
use hyades_wal::Choice;

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Chooses the stream for what comes next: another one if the session has been at its own for
    /// long enough, if that has no room, or if its device is slow.
    #[cold]
    pub(super) fn look_for_stream(&mut self, backlog: u64) {
        let _measured = phase::enter(Phase::Wait);
        let Some(writer) = &mut self.writer else { return };
        if self.shared.keeps_streams {
            writer.wait_for_room(self.stream);
            return;
        }
        let is_full = backlog >= writer.room();
        if is_full && broken!(WaitInFullStream) {
            writer.wait_for_room(self.stream);
        }
        let leaves = is_full || self.streak_bytes >= self.longest_streak;
        if !leaves && !writer.may_be_slow(self.stream) {
            return;
        }
        let Choice { stream, is_slow } = writer.choose_stream(self.stream, !leaves);
        if leaves || stream != self.stream {
            // A slow stream gets one record: after that another one may have room.
            self.streak_bytes = if is_slow { self.longest_streak.saturating_sub(1) } else { 0 };
            self.stream = stream;
            self.stream_was_idle = writer.backlog(stream) == 0;
        }
    }

    /// Goes on to the stream that is free first: a record appended to one that is being synced is
    /// durable only after that sync and one more.
    pub(super) fn choose_first_free_stream(&mut self) {
        let Some(writer) = &self.writer else { return };
        if P::PARTITIONED || self.shared.keeps_streams {
            return;
        }
        let first = writer.first_free_stream(self.stream);
        if first != self.stream {
            self.stream = first;
            self.streak_bytes = 0;
        }
    }
}
