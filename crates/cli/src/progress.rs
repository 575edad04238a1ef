//! Progress on standard error: bars on terminals, plain lines elsewhere.

use crate::units;
use hyades::{Progress, StreamProgress};
use indicatif::{ProgressBar, ProgressStyle};

/// One task's progress. Bars are drawn on terminals only; the closing line is always printed.
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// Begins a task of `total` steps.
    pub fn new(what: &'static str, total: u64) -> Bar {
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("  {prefix:<24} [{bar:30}] {percent:>3} %  {msg}")
            .map(|style| style.progress_chars("=> "))
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_prefix(what);
        Bar { bar }
    }

    /// Sets the number of steps done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Sets the number of all steps.
    pub fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Shows how many bytes were read, of all.
    pub fn show_bytes(&self, done: u64, total: u64) {
        self.set_total(total.max(1));
        self.set(done);
        let (done, total) = (units::bytes(done as f64), units::bytes(total as f64));
        self.say(format!("{done} of {total}"));
    }

    /// Sets the text beside the bar.
    pub fn say(&self, text: String) {
        self.bar.set_message(text);
    }

    /// Prints a permanent line above the bar.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| eprintln!("  {line}"));
    }

    /// Removes the bar and prints a permanent line.
    pub fn finish(&self, line: &str) {
        self.bar.finish_and_clear();
        eprintln!("  {line}");
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Shows the progress of a recovery.
    pub fn show(&self, progress: &Progress) {
        let all = progress.image_bytes_total + progress.bytes_total;
        self.bar.set_length(all.max(1));
        self.bar.set_position((progress.image_bytes_done + progress.bytes_done).min(all));
        self.bar.set_message(in_words(progress));
    }
}

/// How far a recovery is, beside its share.
pub fn in_words(progress: &Progress) -> String {
    let percent = |stream: &StreamProgress| 100 * stream.bytes_read / stream.bytes_total.max(1);
    // A stream without bytes to read has nothing to show.
    let streams = progress.by_stream.iter().filter(|stream| stream.bytes_total > 0);
    let left = match progress.estimate_seconds {
        Some(left) => format!(", {} left", units::time(left)),
        None => String::new(),
    };
    format!(
        "{}: {} transactions, {}{left}",
        progress.phase,
        units::count(progress.records_done as f64),
        streams_read(&streams.map(percent).collect::<Vec<_>>()),
    )
}

/// The most streams to be named individually.
const MOST_NAMED: usize = 4;

/// How much of each stream was read, in percent.
fn streams_read(percents: &[u64]) -> String {
    let (least, most) = (percents.iter().min(), percents.iter().max());
    let (Some(least), Some(most)) = (least, most) else { return "no streams".to_string() };
    let named: Vec<String> = percents.iter().map(u64::to_string).collect();
    match percents.len() {
        1 => format!("1 stream at {least} %"),
        count if count <= MOST_NAMED => format!("{count} streams at {} %", named.join(", ")),
        count => format!("{count} streams at {least} to {most} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::streams_read;

    #[test]
    fn few_streams_are_named_and_of_many_the_ends() {
        assert_eq!(streams_read(&[]), "no streams");
        assert_eq!(streams_read(&[7]), "1 stream at 7 %");
        assert_eq!(streams_read(&[43, 0, 100, 51]), "4 streams at 43, 0, 100, 51 %");
        assert_eq!(streams_read(&[43, 3, 99, 51, 60]), "5 streams at 3 to 99 %");
    }
}
