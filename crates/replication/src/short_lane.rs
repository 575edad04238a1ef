//! Notices a lane that has lost messages which were read, or were known to be stored.

use crate::service::Place;
use hyades_platform::clock;
use hyades_wal::RemoteEnded;

/// A lane that is short for as long has lost messages. A leader of the lane that was replaced, and
/// does not know so, steps down earlier.
const LOST_AFTER_NS: u64 = 30_000_000_000;

/// Since when a lane is known to end before a place that the lane had.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShortLane {
    since_ns: Option<u64>,
}

impl ShortLane {
    /// The lane has been seen to reach as far as is known.
    pub fn clear(&mut self) {
        self.since_ns = None;
    }

    /// The lane was seen to end at `end`, before the place `known`.
    ///
    /// # Errors
    /// The lane was short in all answers for so long that the messages are lost.
    pub fn note_end(
        &mut self,
        (lane, end): (usize, Place),
        known: Place,
    ) -> Result<(), RemoteEnded> {
        let now = clock::monotonic_ns();
        let since = *self.since_ns.get_or_insert(now);
        if now - since < LOST_AFTER_NS {
            return Ok(());
        }
        Err(RemoteEnded::Different(format!(
            "lane {lane} has lost messages: it ends at place {}, and had place {}",
            end.0, known.0
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lost_when_no_answer_shows_them_for_long() {
        let at = |seconds: u64| clock::simulate(Some(seconds * 1_000_000_000));
        let mut short = ShortLane::default();
        let look = |short: &mut ShortLane| short.note_end((2, Place(7)), Place(9));
        for second in 1..31 {
            at(second);
            look(&mut short).unwrap();
        }
        // A later leader shows all.
        short.clear();
        for second in 31..61 {
            at(second);
            look(&mut short).unwrap();
        }
        at(61);
        let lost = look(&mut short).unwrap_err().to_string();
        assert!(lost.contains("lane 2 has lost messages"), "{lost}");
        clock::simulate(None);
    }
}
