//! No concurrency control: for replay, where the order of the log keeps transactions apart.

use super::ConcurrencyControl;
use super::steps::{self, Appender};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::record::{Record, word};
use crate::transaction::state::State;
use std::sync::atomic::Ordering;

pub(crate) struct Replaying;

impl ConcurrencyControl for Replaying {
    const PLACED_WORD: u64 = word::ABSENT;
    const PLACED_LOCK: u32 = 0;

    #[inline]
    fn read<'s, P: LoggingProtocol, T>(
        _: &Engine<P>,
        _: &mut State<'s, P>,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<Option<T>, Abort> {
        let there = record.word.load(Ordering::Acquire) & word::ABSENT == 0;
        Ok(if there { Some(copy()) } else { None })
    }

    #[inline]
    fn intend<'s, P: LoggingProtocol>(
        _: &Engine<P>,
        _: &mut State<'s, P>,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        Ok(record.word.load(Ordering::Acquire) & word::ABSENT == 0)
    }

    fn placed<'s, P: LoggingProtocol>(_: &mut State<'s, P>, _: &'s Record<P::RowStamp>) {}

    fn commit<'s, P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut State<'s, P>,
        appender: &mut Appender<'_>,
    ) -> Result<Needs, Abort> {
        steps::install(engine, state, appender.replayed_tid, |record, version| {
            record.word.store(version, Ordering::Release)
        });
        Ok(Needs::new())
    }

    fn abandon<'s, P: LoggingProtocol>(
        _: &Engine<P>,
        _: &mut State<'s, P>,
    ) -> Result<Needs, Abort> {
        Ok(Needs::new())
    }

    fn abort<P: LoggingProtocol>(_: &mut State<'_, P>) {}

    /// Waits for another holder: locks are held shortly at replay, and none while taking another.
    /// `None` only if the record is dead.
    fn try_lock_alone<S>(record: &Record<S>) -> Option<u64> {
        let mut looks = 0u32;
        loop {
            let version = record.word.load(Ordering::Acquire);
            if version & word::DEAD != 0 {
                return None;
            }
            if version & word::LOCKED == 0 && record.try_lock(version) {
                return Some(version);
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                // The holder may have lost its processor.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn unlock_alone<S>(record: &Record<S>, version: u64, dead: bool) {
        let dead = if dead { word::DEAD } else { 0 };
        record.word.store(version | dead, Ordering::Release);
    }

    fn revive_alone<S>(record: &Record<S>, version: u64) {
        record.word.store(version, Ordering::Release);
    }
}
