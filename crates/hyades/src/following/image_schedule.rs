//! Decides when a follower writes an image, by the rule of a primary's checkpoints: at an interval,
//! or often enough to bound replay time ([`crate::checkpoint::keeper`]).

use crate::checkpoint::keeper::{self, AFTER_FAILURE, CheckpointStats, KeeperRound};
use crate::checkpoint::{CheckpointReport, CheckpointSettings};
use hyades_platform::clock;
use hyades_wal::{Lsn, Manifest};

/// When a follower's images are due, see
/// [`Follower::image_schedule`](crate::Follower::image_schedule).
#[derive(Debug)]
pub struct ImageSchedule {
    settings: CheckpointSettings,
    stats: CheckpointStats,
    /// The first look at the log has begun it.
    round: Option<KeeperRound>,
    /// No image is due before this time: the last one has failed.
    rests_until_ns: u64,
}

impl ImageSchedule {
    pub(super) fn new(settings: CheckpointSettings) -> ImageSchedule {
        let stats = CheckpointStats {
            replay_bytes_per_s: keeper::UNMEASURED_BYTES_PER_S,
            ..CheckpointStats::default()
        };
        ImageSchedule { settings, stats, round: None, rests_until_ns: 0 }
    }

    /// The settings of checkpoints.
    pub fn settings(&self) -> &CheckpointSettings {
        &self.settings
    }

    /// Whether an image is due. `manifest`: of the follower's copy of the log, which has the
    /// streams of the newest incarnation up to `received`. `speed`: measured, in bytes of log per
    /// second, if known. To be asked a few times a second.
    pub fn is_due(&mut self, manifest: &Manifest, received: &[Lsn], speed: Option<u64>) -> bool {
        let bytes = keeper::uncovered(manifest, |lane| received.get(lane).copied().unwrap_or(0));
        let now = clock::monotonic_ns();
        let round = self.round.get_or_insert_with(|| KeeperRound::new(bytes, now));
        round.observe(bytes, now);
        let stats = &mut self.stats;
        if let Some(speed) = speed.or(manifest.replay_bytes_per_s) {
            stats.replay_bytes_per_s = speed.max(1);
        }
        stats.replay_bytes = bytes;
        stats.replay_seconds = bytes as f64 / stats.replay_bytes_per_s as f64;
        stats.longest_replay_seconds = stats.longest_replay_seconds.max(stats.replay_seconds);
        let takes = stats.last.as_ref().map_or(0.0, |last| last.seconds);
        let speed = stats.replay_bytes_per_s as f64;
        let is_due = round.is_due(&self.settings, |bound, growth| {
            keeper::must_begin(bound, (bytes, growth), takes, speed)
        });
        is_due && bytes > 0 && now >= self.rests_until_ns
    }

    /// Notes that an image has begun.
    pub fn begun(&mut self) {
        self.stats.under_way = true;
        if let Some(round) = &mut self.round {
            round.begin(clock::monotonic_ns());
        }
    }

    /// Notes that the manifest names the image.
    pub fn taken(&mut self, report: CheckpointReport) {
        self.stats.under_way = false;
        self.stats.taken += 1;
        self.stats.last = Some(report);
    }

    /// Notes that an image was not written, or is of no use.
    pub fn failed(&mut self, why: &str) {
        self.stats.under_way = false;
        self.stats.failed += 1;
        self.stats.last_failure = Some(why.to_string());
        self.rests_until_ns = clock::monotonic_ns() + AFTER_FAILURE.as_nanos() as u64;
    }

    /// The images so far, and how long a replay would take now.
    pub fn stats(&self) -> CheckpointStats {
        self.stats.clone()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hyades_wal::{IncarnationSettings, LogOptions, open};
    use std::time::Duration;

    #[test]
    fn an_image_is_due_by_the_bytes_since_the_last_one_and_rests_after_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let recovering = open(LogOptions::new(vec![dir.path().into()], 1)).unwrap();
        let verdict = recovering.verdict(&[]).unwrap();
        let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
        let manifest = &log.manifest();
        let mut settings = CheckpointSettings::default();
        let mut never = ImageSchedule::new(settings.clone());
        assert!(!never.is_due(manifest, &[1 << 40], Some(1)));
        settings.max_recovery = Some(Duration::from_secs(10));
        let mut schedule = ImageSchedule::new(settings);
        let second = 1_000_000;
        assert!(!schedule.is_due(manifest, &[0], Some(second)));
        assert!(!schedule.is_due(manifest, &[7 * second], Some(second)));
        assert!(schedule.is_due(manifest, &[9 * second], Some(second)));
        assert!(!schedule.is_due(manifest, &[9 * second], Some(2 * second)), "replay is faster");
        schedule.begun();
        schedule.failed("of a test");
        assert!(!schedule.is_due(manifest, &[9 * second], Some(second)), "after a failure");
        let stats = schedule.stats();
        assert_eq!((stats.taken, stats.failed, stats.replay_bytes), (0, 1, 9 * second));
        assert_eq!(stats.replay_seconds, 9.0);
    }
}
