//! The words and pictures of LATENCY.

use crate::state::latency_events::{LatencySample, LatencySeries};
use std::fmt::Write;

/// Samples in a row of the picture.
const COLUMNS: usize = 80;

/// Rows of the picture.
const ROWS: u64 = 4;

/// Signs of the lower, the middle and the upper third of a row.
const THIRDS: [char; 3] = ['_', 'o', '#'];

/// How long ago, in a few characters.
fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A picture of the times of an event: a column for each second with an event, and below the
/// column, from top to bottom, the age of the event.
pub fn graph(event: &str, series: &LatencySeries, now_seconds: u64) -> String {
    let samples: Vec<LatencySample> = series.samples.iter().copied().collect();
    let times = || samples.iter().map(|sample| sample.ms);
    let (low, high) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let longest = series.longest_ms;
    let mut out = format!("{event} - high {high} ms, low {low} ms (all time high {longest} ms)\n");
    out.push_str(&"-".repeat(COLUMNS));
    out.push('\n');
    // From 0 for the shortest to the last third of the highest row.
    let most = u128::from(ROWS * THIRDS.len() as u64 - 1);
    let height = |ms: u64| {
        let share = u128::from(ms - low) * most / u128::from((high - low).max(1));
        share as u64
    };
    for samples in samples.chunks(COLUMNS) {
        for row in (0..ROWS).rev() {
            let column = |sample: &LatencySample| {
                let height = height(sample.ms);
                match (height / THIRDS.len() as u64).cmp(&row) {
                    std::cmp::Ordering::Less => ' ',
                    std::cmp::Ordering::Equal => THIRDS[height as usize % THIRDS.len()],
                    std::cmp::Ordering::Greater => '|',
                }
            };
            push_line(&mut out, samples.iter().map(column));
        }
        out.push('\n');
        let labels: Vec<Vec<char>> = samples
            .iter()
            .map(|sample| ago(now_seconds.saturating_sub(sample.at_seconds)).chars().collect())
            .collect();
        let lines = labels.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..lines {
            push_line(&mut out, labels.iter().map(|label| label.get(line).copied().unwrap_or(' ')));
        }
    }
    out
}

fn push_line(out: &mut String, line: impl Iterator<Item = char>) {
    out.push_str(line.collect::<String>().trim_end());
    out.push('\n');
}

/// Advice on the recorded events. `threshold_ms` is 0 if events are not recorded.
pub fn doctor(events: &[(&'static str, LatencySeries)], threshold_ms: u64) -> String {
    const OTHERWISE: &str = "LATENCY HISTOGRAM shows how long all commands ran, SLOWLOG GET the \
                             slow ones, INFO hyades conflicts and how far the log is behind; \
                             redis-cli --latency measures replies from outside.";
    if events.is_empty() {
        let what = match threshold_ms {
            0 => "No events of latency are recorded: CONFIG SET latency-monitor-threshold \
                  <milliseconds> has commands recorded that take as long."
                .to_string(),
            ms => format!("No command has taken {ms} ms since the events were reset."),
        };
        return format!("{what} {OTHERWISE}");
    }
    let mut out = String::from("Commands have taken long, without waiting for the disk:\n");
    for (event, series) in events {
        let count = series.samples.len() as u64;
        let times = || series.samples.iter().map(|sample| sample.ms);
        let sum = times().fold(0, u64::saturating_add);
        let average = sum / count.max(1);
        let distances = times().map(|ms| ms.abs_diff(average));
        let deviation = distances.fold(0, u64::saturating_add) / count.max(1);
        let first = series.samples.front().map_or(0, |sample| sample.at_seconds);
        let last = series.samples.back().map_or(0, |sample| sample.at_seconds);
        let period = last.saturating_sub(first) as f64 / count.max(1) as f64;
        let longest = series.longest_ms;
        let _ = writeln!(
            out,
            "{event}: {count} latency spikes (average {average} ms, mean deviation {deviation} \
             ms, period {period:.2} s). Worst of all time {longest} ms."
        );
    }
    out + OTHERWISE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(pairs: &[(u64, u64)]) -> LatencySeries {
        let samples = pairs.iter().map(|&(at_seconds, ms)| LatencySample { at_seconds, ms });
        LatencySeries { samples: samples.collect(), longest_ms: 500 }
    }

    #[test]
    fn a_picture_has_a_column_for_each_sample() {
        let text = graph("command", &series(&[(0, 10), (100, 20), (190, 120), (199, 60)]), 200);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "command - high 120 ms, low 10 ms (all time high 500 ms)");
        assert_eq!(lines[1], "-".repeat(80));
        assert_eq!(lines[2..6], ["  #", "  |", "  |#", "_o||"]);
        assert_eq!(lines[6..], ["", "3111", "mm0s", "  s"]);
        // A single sample, and times at the end of the range.
        let text = graph("command", &series(&[(7, u64::MAX)]), 7 + 86_400);
        assert!(text.ends_with("\n\n\n\n_\n\n1\nd\n"), "{text}");
        let text = graph("command", &series(&[(7, 0), (8, u64::MAX)]), 0);
        assert!(text.contains("\n_|\n\n00\nss\n"), "{text}");
    }

    #[test]
    fn a_row_is_no_longer_than_the_rule_above_it() {
        let samples: Vec<(u64, u64)> = (0..160).map(|at| (at, at % 7 + 1)).collect();
        let text = graph("command", &series(&samples), 160);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        assert_eq!(text.lines().filter(|line| line.contains('_')).count(), 6);
    }

    #[test]
    fn the_doctor_says_what_to_do() {
        assert!(doctor(&[], 0).contains("CONFIG SET latency-monitor-threshold"));
        assert!(doctor(&[], 5).contains("No command has taken 5 ms"));
        let text = doctor(&[("command", series(&[(10, 100), (14, 300)]))], 5);
        let line = "command: 2 latency spikes (average 200 ms, mean deviation 100 ms, period 2.00 \
                    s). Worst of all time 500 ms.\n";
        assert!(text.contains(line) && text.contains("SLOWLOG GET"), "{text}");
    }
}
