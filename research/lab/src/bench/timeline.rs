//! The timeline of a run: throughput, latency, whether a checkpoint was being written, and the size
//! of the log on disk, for each tick. It is written as a table (CSV) and a chart (SVG).

use hyades::Database;
use hyades_cli::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The length of a tick in nanoseconds.
pub const TICK_NS: u64 = 50_000_000;

/// Number of latency bins: eight for each power of two.
const BINS: usize = 42 * 8;

/// Histogram of the latencies in a tick.
#[derive(Clone)]
pub struct Tick {
    count: u64,
    bins: Box<[u32; BINS]>,
}

impl Default for Tick {
    fn default() -> Self {
        Tick { count: 0, bins: Box::new([0; BINS]) }
    }
}

fn bin(ns: u64) -> usize {
    let ns = ns.max(8);
    let log = 63 - ns.leading_zeros() as usize;
    let eighth = (ns >> (log - 3)) as usize & 7;
    ((log - 3) * 8 + eighth).min(BINS - 1)
}

/// The upper end of a bin, in microseconds.
fn bin_us(bin: usize) -> f64 {
    (8 + bin as u64 % 8 + 1) as f64 * (1u64 << (bin / 8)) as f64 / 1e3
}

impl Tick {
    fn add(&mut self, other: &Tick) {
        self.count += other.count;
        self.bins.iter_mut().zip(other.bins.iter()).for_each(|(to, from)| *to += from);
    }

    fn quantile_us(&self, share: f64) -> Option<f64> {
        let mut left = (self.count as f64 * share).ceil() as u64;
        let at = self.bins.iter().position(|&n| {
            let reached = left <= u64::from(n);
            left = left.saturating_sub(n.into());
            reached
        });
        at.filter(|_| self.count > 0).map(bin_us)
    }
}

/// The ticks that a worker counts.
#[derive(Clone, Default)]
pub struct Ticks(Vec<Tick>);

impl Ticks {
    /// Counts a transaction that took `ns` and was acknowledged `since_ns` after the interval
    /// began.
    #[inline]
    pub fn count(&mut self, since_ns: u64, ns: u64) {
        let at = (since_ns / TICK_NS) as usize;
        if at >= self.0.len() {
            self.0.resize_with(at + 1, Tick::default);
        }
        self.0[at].count += 1;
        self.0[at].bins[bin(ns)] += 1;
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Ticks) {
        if other.0.len() > self.0.len() {
            self.0.resize_with(other.0.len(), Tick::default);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(to, from)| to.add(from));
    }
}

/// A sample of the database at the end of a tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Whether a checkpoint was being written.
    checkpoint: bool,
    /// Size of the log's directories.
    disk_bytes: u64,
    /// Estimated replay time.
    replay_seconds: f64,
}

/// Samples the database.
pub fn look(database: &Database, dirs: &[PathBuf]) -> Look {
    let stats = database.checkpoints();
    let disk_bytes = dirs.iter().map(|dir| size(dir)).sum();
    Look { checkpoint: stats.under_way, disk_bytes, replay_seconds: stats.replay_seconds }
}

fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => size(&entry.path()),
            Ok(data) => data.len(),
            // The file has just been removed.
            Err(_) => 0,
        })
        .sum()
}

/// Throughput and latency while a checkpoint was being written, and while none was.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Contrast {
    /// Transactions acknowledged per second during checkpoints.
    pub during_per_s: Option<f64>,
    /// The same between checkpoints.
    pub between_per_s: Option<f64>,
    /// The 99th percentile of latency during checkpoints, in microseconds.
    pub during_p99_us: Option<f64>,
    /// The same between checkpoints.
    pub between_p99_us: Option<f64>,
    /// The largest size of the log's directories on disk, in bytes.
    pub most_disk_bytes: u64,
}

/// A run, tick by tick.
#[derive(Default)]
pub struct Timeline {
    ticks: Vec<(Tick, Look)>,
}

impl Timeline {
    /// Combines the counts of the workers with the samples.
    pub fn new(mut ticks: Ticks, looks: &[Look]) -> Timeline {
        // The workers have none for the time after the last acknowledgement.
        ticks.0.resize_with(looks.len(), Tick::default);
        Timeline { ticks: ticks.0.into_iter().zip(looks.iter().copied()).collect() }
    }

    /// Compares the ticks during all of which a checkpoint was being written with those without
    /// one.
    pub fn contrast(&self) -> Contrast {
        let (mut during, mut between) = ((Tick::default(), 0u64), (Tick::default(), 0u64));
        for pair in self.ticks.windows(2) {
            // A tick in which a checkpoint began or ended is neither.
            let phase = match (pair[0].1.checkpoint, pair[1].1.checkpoint) {
                (true, true) => &mut during,
                (false, false) => &mut between,
                _ => continue,
            };
            phase.0.add(&pair[1].0);
            phase.1 += 1;
        }
        let rate = |(tick, n): &(Tick, u64)| {
            (*n > 0).then(|| tick.count as f64 / (*n as f64 * TICK_NS as f64 / 1e9))
        };
        Contrast {
            during_per_s: rate(&during),
            between_per_s: rate(&between),
            during_p99_us: during.0.quantile_us(0.99),
            between_p99_us: between.0.quantile_us(0.99),
            most_disk_bytes: self.ticks.iter().map(|(_, l)| l.disk_bytes).max().unwrap_or(0),
        }
    }

    /// Writes the table to `path`, and the chart beside it, with the extension `svg`.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn write(&self, path: &Path, title: &str) -> Result<(), Failure> {
        let fault = |path: &Path| Failure::doing(format!("cannot write {}", path.display()));
        std::fs::write(path, self.csv()).map_err(fault(path))?;
        let drawing = path.with_extension("svg");
        std::fs::write(&drawing, self.svg(title)).map_err(fault(&drawing))
    }

    fn csv(&self) -> String {
        let mut out = String::from(
            "seconds,acknowledged_per_s,p50_us,p99_us,checkpoint,disk_bytes,replay_seconds\n",
        );
        for (at, (tick, look)) in self.ticks.iter().enumerate() {
            let us =
                |share: f64| tick.quantile_us(share).map_or(String::new(), |us| format!("{us:.1}"));
            let _ = writeln!(
                out,
                "{:.2},{:.0},{},{},{},{},{:.4}",
                (at + 1) as f64 * TICK_NS as f64 / 1e9,
                tick.count as f64 * 1e9 / TICK_NS as f64,
                us(0.5),
                us(0.99),
                u8::from(look.checkpoint),
                look.disk_bytes,
                look.replay_seconds
            );
        }
        out
    }

    fn svg(&self, title: &str) -> String {
        // A point is ten ticks, half a second.
        let points: Vec<(Tick, Look)> = self
            .ticks
            .chunks(10)
            .map(|chunk| {
                let mut all = Tick::default();
                chunk.iter().for_each(|(tick, _)| all.add(tick));
                let scale = 10.0 / chunk.len() as f64;
                all.count = (all.count as f64 * scale) as u64;
                (all, chunk.last().map_or(Look::default(), |(_, look)| *look))
            })
            .collect();
        let rate = |(tick, _): &(Tick, Look)| tick.count as f64 * 1e9 / (10 * TICK_NS) as f64 / 1e3;
        let late = |(tick, _): &(Tick, Look)| tick.quantile_us(0.99).unwrap_or(0.0) / 1e3;
        let disk = |(_, look): &(Tick, Look)| look.disk_bytes as f64 / 1e6;
        let rows: [(&str, Vec<f64>); 3] = [
            ("acknowledged transactions per second, thousands", points.iter().map(rate).collect()),
            ("99th percentile latency, ms", points.iter().map(late).collect()),
            ("log on disk, MB", points.iter().map(disk).collect()),
        ];
        let seconds = self.ticks.len() as f64 * TICK_NS as f64 / 1e9;
        let mut out = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 820 560\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"820\" height=\"560\" \
             fill=\"white\"/>\n",
        );
        let _ = writeln!(out, "<text x=\"60\" y=\"20\" font-size=\"14\">{title}</text>");
        for (row, (label, values)) in rows.iter().enumerate() {
            self.row(&mut out, 40.0 + row as f64 * 165.0, label, values);
        }
        let _ = writeln!(
            out,
            "<text x=\"60\" y=\"548\">0 s</text><text x=\"780\" y=\"548\" \
             text-anchor=\"end\">{seconds:.0} s; shaded: a checkpoint is being written</text>\n\
             </svg>"
        );
        out
    }

    /// Draws one curve over the run, with the checkpoints shaded.
    fn row(&self, out: &mut String, top: f64, label: &str, values: &[f64]) {
        let (left, width, height) = (60.0, 720.0, 125.0);
        let n = self.ticks.len().max(1) as f64;
        let mut at = 0;
        for run in self.ticks.chunk_by(|a, b| a.1.checkpoint == b.1.checkpoint) {
            if run[0].1.checkpoint {
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\" \
                     fill=\"#dfe8f5\"/>",
                    left + width * at as f64 / n,
                    width * run.len() as f64 / n,
                );
            }
            at += run.len();
        }
        let most = values.iter().copied().fold(0.0, f64::max).max(1e-9);
        let steps = values.len().max(2) as f64 - 1.0;
        let line: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let (x, y) =
                    (left + width * at as f64 / steps, top + height * (1.0 - value / most));
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let bottom = top + height;
        let _ = writeln!(
            out,
            "<path d=\"M{left} {top}V{bottom}H{}\" fill=\"none\" stroke=\"#888\"/>\n\
             <polyline points=\"{}\" fill=\"none\" stroke=\"#1f4e9c\" stroke-width=\"1.3\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most:.0}</text><text x=\"{}\" \
             y=\"{bottom}\" text-anchor=\"end\">0</text><text x=\"{}\" y=\"{}\">{label}</text>",
            left + width,
            line.join(" "),
            left - 5.0,
            top + 10.0,
            left - 5.0,
            left,
            top - 6.0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_come_back_within_an_eighth() {
        for ns in [8u64, 9, 100, 1_000, 123_456, 7_000_000_000] {
            let mut ticks = Ticks::default();
            ticks.count(0, ns);
            let us = ticks.0[0].quantile_us(0.99).unwrap();
            let exact = ns as f64 / 1e3;
            assert!(us >= exact && us <= exact * 1.26, "{ns}: {us}");
        }
    }

    #[test]
    fn checkpoints_are_told_from_the_rest() {
        let mut ticks = Ticks::default();
        let mut looks = Vec::new();
        for at in 0..40u64 {
            let checkpoint = (10..20).contains(&at);
            let (n, ns) = if checkpoint { (50, 2_000_000) } else { (100, 1_000_000) };
            (0..n).for_each(|_| ticks.count(at * TICK_NS, ns));
            looks.push(Look { checkpoint, disk_bytes: at, replay_seconds: 0.0 });
        }
        let line = Timeline::new(ticks, &looks);
        let contrast = line.contrast();
        assert_eq!(contrast.during_per_s.map(f64::round), Some(1000.0));
        assert_eq!(contrast.between_per_s.map(f64::round), Some(2000.0));
        assert!(contrast.during_p99_us.unwrap() > 1.5 * contrast.between_p99_us.unwrap());
        assert_eq!(contrast.most_disk_bytes, 39);
        assert_eq!(line.csv().lines().count(), 41);
        assert!(line.svg("t").ends_with("</svg>\n"));
    }

    #[test]
    fn a_stall_up_to_the_end_counts() {
        let mut ticks = Ticks::default();
        (0..10).for_each(|at| ticks.count(at * TICK_NS, 1_000));
        let look = |at: u64| Look { checkpoint: at >= 20, disk_bytes: at, replay_seconds: 0.0 };
        let looks: Vec<Look> = (0..40).map(look).collect();
        let line = Timeline::new(ticks, &looks);
        let contrast = line.contrast();
        assert_eq!(contrast.during_per_s, Some(0.0));
        assert_eq!(contrast.during_p99_us, None);
        // Of the ticks without a checkpoint the first has none before it.
        let between = contrast.between_per_s.unwrap();
        assert!((between - 9.0 / 19.0 * 20.0).abs() < 1e-9, "{between}");
        assert_eq!(contrast.most_disk_bytes, 39);
        assert_eq!(line.csv().lines().count(), 41);
    }
}
