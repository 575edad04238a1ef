//! The tables as Markdown and as JSON.

use super::rows::{Row, Table};
use hyades_cli::units;
use hyades_report::chart::Spread;
use hyades_report::data::Data;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;

/// The facts before the tables.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// The program and the version.
    pub program: String,
    /// Processors, memory, system.
    pub machine: String,
    /// File system and device of the logs.
    pub log_device: String,
    /// The date, as text.
    pub date: String,
    /// The command.
    pub command: String,
    /// The measured interval of a run in seconds.
    pub seconds: f64,
    /// Complete rounds.
    pub rounds: u32,
    /// The duration of the rounds in seconds.
    pub took: f64,
}

/// Tables and the results of the runs.
pub struct Page<'a> {
    /// The head before the tables.
    pub head: Head,
    /// The tables.
    pub tables: &'a [Table],
    /// The results.
    pub data: Data,
}

/// A column of figures.
struct Figure {
    title: &'static str,
    key: &'static str,
    pointer: &'static str,
    show: fn(f64) -> String,
}

const FIGURES: [Figure; 5] = [
    Figure {
        title: "acknowledged /s",
        key: "acknowledged_per_s",
        pointer: "/acknowledged_per_s",
        show: units::count,
    },
    Figure { title: "p50", key: "p50_us", pointer: "/latency_us/p50", show: microseconds },
    Figure { title: "p99", key: "p99_us", pointer: "/latency_us/p99", show: microseconds },
    Figure {
        title: "replayed /s",
        key: "replayed_per_s",
        pointer: "/recovery/records_per_s",
        show: units::count,
    },
    Figure {
        title: "log bytes",
        key: "log_bytes_per_transaction",
        pointer: "/log_bytes_per_transaction",
        show: whole,
    },
];

fn microseconds(us: f64) -> String {
    units::time(us * 1e-6)
}

fn whole(value: f64) -> String {
    units::exact(value.round() as u64)
}

/// `2.43 M (2.31 M to 2.50 M)`; the median alone if all three look the same.
fn text(spread: Spread, show: fn(f64) -> String) -> String {
    let [median, low, high] = [spread.median, spread.low, spread.high].map(show);
    if low == median && high == median {
        return median;
    }
    format!("{median} ({low} to {high})")
}

impl Page<'_> {
    /// The tables as Markdown.
    pub fn markdown(&self) -> String {
        let Head { program, machine, log_device, date, command, seconds, rounds, took } =
            &self.head;
        let mut out = format!(
            "{date}, {program}. {machine}. Logs on {log_device}. {rounds} {} of {}; each figure \
             is the median, with the lowest and the highest. All of it: `{command}`, {}.\n",
            if *rounds == 1 { "round" } else { "rounds in turn" },
            units::time(*seconds),
            units::time(*took)
        );
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            let _ = write!(out, "\n### {}\n\n{}\n\n", table.title, table.about);
            self.table(table, &mut out);
        }
        out
    }

    fn table(&self, table: &Table, out: &mut String) {
        // A figure missing in all rows is left out.
        let shown: Vec<&Figure> = FIGURES
            .iter()
            .filter(|figure| table.rows.iter().any(|row| self.spread(row, figure).is_some()))
            .collect();
        let titles: Vec<&str> = shown.iter().map(|figure| figure.title).collect();
        let _ = writeln!(out, "| protocol | {} | command |", titles.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(shown.len() + 2));
        for row in &table.rows {
            let _ = write!(out, "| {} |", name(row));
            for figure in &shown {
                let text = self.spread(row, figure).map(|spread| text(spread, figure.show));
                let _ = write!(out, " {} |", text.unwrap_or_default());
            }
            let trouble = self.trouble(row).map_or(String::new(), |why| format!(" **{why}**"));
            let _ = writeln!(out, " `{}`{trouble} |", row.command());
        }
    }

    /// The figure of all successful rounds.
    fn spread(&self, row: &Row, figure: &Figure) -> Option<Spread> {
        if row.record.is_empty() && figure.key == "log_bytes_per_transaction" {
            return None;
        }
        let good = self.data.of(&row.words).iter().filter_map(|outcome| outcome.value());
        Spread::range(good.filter_map(|value| value.pointer(figure.pointer)?.as_f64()).collect())
    }

    fn trouble(&self, row: &Row) -> Option<&str> {
        self.data.of(&row.words).iter().find_map(|outcome| outcome.trouble())
    }

    /// The same as a JSON object.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let figures = FIGURES.iter().map(|figure| {
                let values = self.spread(row, figure).map(|Spread { low, median, high, .. }| {
                    json!({ "median": median, "low": low, "high": high })
                });
                (figure.key.to_string(), json!(values))
            });
            json!({
                "protocol": row.protocol,
                "record": Some(row.record).filter(|record| !record.is_empty()),
                "figures": figures.collect::<serde_json::Map<_, _>>(),
                "trouble": self.trouble(row),
                "command": row.command(),
            })
        };
        let table = |table: &Table| {
            let rows: Vec<Value> = table.rows.iter().map(row).collect();
            json!({ "table": table.name, "rows": rows })
        };
        let tables: Vec<Value> = self.tables.iter().map(table).collect();
        json!({ "head": self.head, "tables": tables })
    }
}

/// The protocol, and the kind of record.
fn name(row: &Row) -> String {
    format!("{} {}", row.protocol, row.record).trim_end().to_string()
}
