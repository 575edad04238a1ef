//! Checkpoints of a standby: images of the served state, at which a restart of the standby begins,
//! and up to which its files are truncated.
//!
//! An image is begun between two rounds, by the rule of a primary's checkpoints, and written by a
//! thread of its own while rounds go on. The manifest names the image once the files are synced up
//! to the end of the image's mark. So each crash leaves either the checkpoint before, with its log,
//! or the image, with the log behind: until the manifest is replaced nothing of the old is gone.

use hyades::{
    CheckpointReport, CheckpointSettings, CheckpointStats, CutMark, Follower, FollowerImage,
    ImagePlace, ImageSchedule,
};
use hyades_platform::clock;
use hyades_wal::{Checkpoint, Error, Lsn, Mirror};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

type Written = Result<(Checkpoint, CheckpointReport), hyades::Error>;

/// An image being written.
struct ImageWriter {
    thread: Option<JoinHandle<Written>>,
    /// Ends the writing.
    stop: Arc<AtomicBool>,
    /// The end of the image's mark, by stream.
    to: Vec<Lsn>,
}

impl ImageWriter {
    fn begin(
        image: FollowerImage,
        place: ImagePlace,
        settings: CheckpointSettings,
        to: Vec<Lsn>,
    ) -> std::io::Result<ImageWriter> {
        let stop = Arc::<AtomicBool>::default();
        let until = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("standby-checkpoint".into());
        let thread = Some(thread.spawn(move || image.write(&place, &settings, &until))?);
        Ok(ImageWriter { thread, stop, to })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread.
    fn end(mut self) -> Result<(Checkpoint, CheckpointReport), String> {
        let Some(thread) = self.thread.take() else { return Err("there is no thread".into()) };
        match thread.join() {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err("its thread has panicked".into()),
        }
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panicked thread has ended, too.
            let _ = thread.join();
        }
    }
}

/// How far the newest image is.
enum ImageProgress {
    None,
    Writing(ImageWriter),
    /// Waits for the sync of the files up to these positions.
    Written(Box<(Checkpoint, CheckpointReport)>, Vec<Lsn>),
}

/// The checkpoints of a standby. The drop abandons an image that the manifest does not name.
pub(crate) struct StandbyCheckpoints {
    schedule: ImageSchedule,
    progress: ImageProgress,
}

impl fmt::Debug for StandbyCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandbyCheckpoints").field("schedule", &self.schedule).finish()
    }
}

impl StandbyCheckpoints {
    pub(crate) fn new(follower: &Follower) -> StandbyCheckpoints {
        StandbyCheckpoints { schedule: follower.image_schedule(), progress: ImageProgress::None }
    }

    pub(crate) fn stats(&self) -> CheckpointStats {
        self.schedule.stats()
    }

    /// Abandons the image that is being written, and waits for its end: the follower may be
    /// promoted afterwards. An image that waits for the files is abandoned, too.
    pub(crate) fn abandon(&mut self) {
        self.progress = ImageProgress::None;
    }

    /// Goes on with checkpoints, between two rounds. `served`: the mark of the last round.
    ///
    /// # Errors
    /// The manifest could not be written: the mirror has stopped. An image that could not be
    /// written is no error: the next one is written later.
    pub(crate) fn step(
        &mut self,
        follower: &Follower,
        mirror: &mut Mirror,
        served: Option<&CutMark>,
    ) -> Result<(), Error> {
        self.progress = match std::mem::replace(&mut self.progress, ImageProgress::None) {
            ImageProgress::None => self.begin_if_due(follower, mirror, served),
            ImageProgress::Writing(writer) if writer.has_ended() => self.end_writing(writer),
            progress => progress,
        };
        let is_synced = match &self.progress {
            ImageProgress::Written(_, to) => {
                to.iter().zip(mirror.synced()).all(|(to, synced)| *to <= synced)
            }
            _ => false,
        };
        if is_synced
            && let ImageProgress::Written(written, _) =
                std::mem::replace(&mut self.progress, ImageProgress::None)
        {
            let (checkpoint, mut report) = *written;
            report.truncated_bytes = mirror.adopt(checkpoint, None)?;
            self.schedule.taken(report);
        }
        Ok(())
    }

    fn begin_if_due(
        &mut self,
        follower: &Follower,
        mirror: &Mirror,
        served: Option<&CutMark>,
    ) -> ImageProgress {
        let manifest = mirror.manifest();
        let before = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.cut);
        // Without a later mark the image would be the last one again.
        let Some(mark) = served.filter(|mark| mark.epoch > before) else {
            return ImageProgress::None;
        };
        if !self.schedule.is_due(manifest, &mirror.received(), follower.replay_speed()) {
            return ImageProgress::None;
        }
        let settings = self.schedule.settings().clone();
        let (number, parts) = mirror.next_checkpoint(settings.files_per_dir);
        let (device, uuid) = (Arc::clone(mirror.device()), manifest.uuid());
        let place = ImagePlace { device, uuid, number, parts, before };
        let begun = follower.begin_image(settings.buffer_bytes).map_err(|error| error.to_string());
        if clock::is_simulated() {
            return self.write_in_place(begun, &place, &settings, mark.to.clone());
        }
        let writer = begun.and_then(|image| {
            ImageWriter::begin(image, place, settings, mark.to.clone())
                .map_err(|error| format!("its thread cannot start ({error})"))
        });
        match writer {
            Ok(writer) => {
                self.schedule.begun();
                ImageProgress::Writing(writer)
            }
            Err(why) => {
                self.schedule.failed(&why);
                ImageProgress::None
            }
        }
    }

    /// Writes the image at once: a simulation has one thread.
    fn write_in_place(
        &mut self,
        begun: Result<FollowerImage, String>,
        place: &ImagePlace,
        settings: &CheckpointSettings,
        to: Vec<Lsn>,
    ) -> ImageProgress {
        self.schedule.begun();
        let stop = AtomicBool::new(false);
        let write = |image: FollowerImage| {
            image.write(place, settings, &stop).map_err(|error| error.to_string())
        };
        match begun.and_then(write) {
            Ok(written) => ImageProgress::Written(Box::new(written), to),
            Err(why) => {
                self.schedule.failed(&why);
                ImageProgress::None
            }
        }
    }

    fn end_writing(&mut self, mut writer: ImageWriter) -> ImageProgress {
        let to = std::mem::take(&mut writer.to);
        match writer.end() {
            Ok(written) => ImageProgress::Written(Box::new(written), to),
            Err(why) => {
                self.schedule.failed(&why);
                ImageProgress::None
            }
        }
    }
}
