//! The options of a builder's log, and of a copy of the log.

use crate::config::Builder;
use hyades_platform::device::FileDevice;
use hyades_wal::LogOptions;
#[cfg(feature = "replication")]
use std::path::PathBuf;

#[cfg(feature = "replication")]
impl Builder {
    /// The options of a copy of the log of another process, in these directories, with the
    /// builder's device and sizes: for `hyades-replication`.
    #[doc(hidden)]
    pub fn mirror_options(&self, dirs: Vec<PathBuf>, streams: usize) -> LogOptions {
        let mut options = log_options(self);
        // The builder's own directories come after those given, as at an opening.
        let own =
            options.dirs.iter().filter(|own| !dirs.contains(own)).cloned().collect::<Vec<_>>();
        options.dirs = [dirs, own].concat();
        (options.streams, options.remote, options.archive) = (streams, None, None);
        options
    }
}

/// The options of the log of a builder.
pub(super) fn log_options(builder: &Builder) -> LogOptions {
    let settings = &builder.log;
    let mut options = LogOptions::new(settings.dirs.clone(), settings.streams);
    options.buffer_bytes = settings.buffer_bytes;
    options.segment_bytes = settings.segment_bytes;
    options.stepped = settings.research.stepped;
    options.flush_interval = settings.flush_interval;
    if let Some(fill) = settings.research.flush_fill_bytes {
        options.flush_fill_bytes = fill;
    }
    options.flush_fill_frames = settings.research.flush_fill_count;
    options.flushed_by_writers = settings.research.flushed_by_sessions;
    options.block_bytes = settings.research.block_bytes;
    options.device = settings.device.clone().unwrap_or_else(FileDevice::shared);
    options.archive.clone_from(&settings.archive);
    #[cfg(feature = "replication")]
    {
        options.remote.clone_from(&settings.remote);
    }
    // The protocol itself anchors streams; the flusher's anchors are a fallback.
    options.anchor_interval_bytes = settings.research.anchor_interval_bytes * 4;
    options
}
