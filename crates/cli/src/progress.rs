//! Progress on standard error: bars on terminals, plain lines elsewhere.

use hyades::Progress;
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
        self.bar.set_length(progress.bytes_total.max(1));
        self.bar.set_position(progress.bytes_done.min(progress.bytes_total));
        let left = progress.estimate_seconds.unwrap_or(0.0);
        self.bar.set_message(format!(
            "{} transactions, {} streams, {} left",
            crate::units::count(progress.records_done as f64),
            progress.streams,
            crate::units::time(left),
        ));
    }
}
