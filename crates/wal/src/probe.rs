//! How many streams a device serves best.

use crate::error::Error;
use crate::open::Recovering;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long each number of streams is tried.
const TIME: Duration = Duration::from_millis(200);
/// The sufficient share of the best rate: each stream costs a flusher.
const GOOD_ENOUGH: f64 = 0.8;
/// The number of syncs per second that is enough, whatever rate more streams would reach: no commit
/// waits long for a sync, and each sync takes tens of microseconds of processor time.
const ENOUGH: f64 = 4_000.0;
/// The blocks of a repeatedly written file.
const BLOCKS: u64 = 256;
/// The name of a probe's file, before a number. A probe's file belongs to no log.
pub(crate) const PROBE_PREFIX: &str = "probe-";

impl Recovering {
    /// Sets the number of streams of the next incarnation, from `least` to the options' number. An
    /// existing log keeps its number. For a new one files are written and synced concurrently for
    /// 0.2 s, `least` files, twice as many and so on; the chosen number is the lowest with 4,000
    /// syncs per second, or 80 % of the best rate. A stepped log has no concurrent flushers, and
    /// gets the options' number.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn fit_streams(&mut self, least: usize) -> Result<(), Error> {
        if let Some(newest) = self.manifest().newest() {
            self.options.streams = newest.dims.len();
        } else if !self.options.stepped {
            let mut rates = Vec::new();
            let mut streams = least.clamp(1, self.options.streams);
            while streams <= self.options.streams {
                let dir = &self.options.dirs[0];
                let rate = self.probe(streams).map_err(Error::io(dir, "probe"))?;
                rates.push((streams, rate));
                if rate >= ENOUGH {
                    break;
                }
                streams *= 2;
            }
            self.options.streams = fewest(&rates);
        }
        Ok(())
    }

    /// The blocks per second written and synced by `writers` concurrent writers.
    fn probe(&self, writers: usize) -> io::Result<f64> {
        let paths: Vec<PathBuf> = (0..writers)
            .map(|at| {
                let dir = &self.options.dirs[at % self.options.dirs.len()];
                dir.join(format!("{PROBE_PREFIX}{at}"))
            })
            .collect();
        let rates = std::thread::scope(|scope| {
            let spawned: Vec<_> =
                paths.iter().map(|path| scope.spawn(|| self.write_and_sync(path))).collect();
            let joined = spawned.into_iter().map(|thread| thread.join());
            joined
                .map(|rate| rate.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        for path in &paths {
            // A remaining file is removed at the start of the log.
            let _ = self.options.device.remove(path);
        }
        rates.into_iter().sum()
    }

    /// Writes and syncs single blocks in a file of zeros: how many per second.
    fn write_and_sync(&self, path: &Path) -> io::Result<f64> {
        let block = self.options.block_bytes;
        let file = self.options.device.create(path, BLOCKS * block as u64)?;
        file.sync_data()?;
        let bytes = vec![1; block];
        let started = Instant::now();
        let mut written = 0;
        while started.elapsed() < TIME {
            file.write_at(&[IoSlice::new(&bytes)], written % BLOCKS * block as u64)?;
            file.sync_data()?;
            written += 1;
        }
        Ok(written as f64 / started.elapsed().as_secs_f64())
    }
}

/// Returns the lowest number with a sufficient rate, of (number, rate) in the order of the numbers.
fn fewest(rates: &[(usize, f64)]) -> usize {
    let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let enough = (GOOD_ENOUGH * best).min(ENOUGH);
    let found = rates.iter().find(|(_, rate)| *rate >= enough);
    found.map_or(1, |(streams, _)| *streams)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogOptions, open};
    use hyades_platform::device::MemoryDevice;
    use std::sync::Arc;

    #[test]
    fn the_fewest_with_four_fifths_of_the_best_rate_are_chosen() {
        assert_eq!(fewest(&[(1, 80.0), (2, 90.0), (4, 100.0)]), 1);
        assert_eq!(fewest(&[(1, 79.9), (2, 90.0), (4, 100.0)]), 2);
        assert_eq!(fewest(&[(1, 10.0), (2, 20.0), (4, 40.0), (8, 41.0)]), 4);
        assert_eq!(fewest(&[(1, 0.0)]), 1);
        assert_eq!(fewest(&[(1, 3_999.0), (2, 8_000.0)]), 2);
        assert_eq!(fewest(&[(1, 4_000.0), (2, 8_000.0)]), 1);
    }

    #[test]
    fn a_probe_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LogOptions::new(vec![dir.path().to_path_buf()], 3);
        options.device = Arc::new(MemoryDevice);
        let mut recovering = open(options).unwrap();
        let before = std::fs::read_dir(dir.path()).unwrap().count();
        recovering.fit_streams(1).unwrap();
        assert!((1..=2).contains(&recovering.options.streams));
        recovering.options.streams = 3;
        recovering.fit_streams(7).unwrap();
        assert_eq!(recovering.options.streams, 3);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before);
    }
}
