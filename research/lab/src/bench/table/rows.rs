//! The rows of the tables: a run of `hyades-lab bench` each.

use super::TableOptions;
use hyades_cli::failure::Failure;
use std::path::{Path, PathBuf};

/// A table: a workload under all protocols.
pub struct Table {
    /// The table's word for `--only`.
    pub name: &'static str,
    /// The heading.
    pub title: &'static str,
    /// A description of the workload.
    pub about: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row: a protocol and a kind of record.
pub struct Row {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The kind of record; empty without a log.
    pub record: &'static str,
    /// The words after `hyades-lab`.
    pub words: Vec<String>,
}

impl Row {
    /// The row's command, to be pasted.
    pub fn command(&self) -> String {
        format!("hyades-lab {}", self.words.join(" "))
    }
}

/// A table without the rows, and how the rows are run.
struct Section {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    words: &'static str,
    /// The same with next to no rows.
    tiny: &'static str,
    /// Whether a log is recovered. Without recovery, there is no row without a log either.
    recover: bool,
}

const SECTIONS: [Section; 4] = [
    Section {
        name: "ycsb",
        title: "YCSB",
        about: "1,048,576 rows of ten columns of 100 bytes. A transaction accesses two rows (Zipf \
                0.6); half of the accesses write one column.",
        words: "bench ycsb",
        tiny: "bench ycsb --rows 1000",
        recover: true,
    },
    Section {
        name: "tpcc",
        title: "TPC-C",
        about: "Two warehouses, all five transactions.",
        words: "bench tpcc --warehouses 2",
        tiny: "bench tpcc --warehouses 1",
        recover: true,
    },
    Section {
        name: "bank",
        title: "Bank",
        about: "100,000 accounts. A transaction updates two of them and inserts a row.",
        words: "bench bank",
        tiny: "bench bank --accounts 1000",
        recover: true,
    },
    Section {
        name: "latency",
        title: "Latency of one transaction at a time",
        about: "The bank with one worker, which waits for each acknowledgement.",
        words: "bench bank --workers 1 --in-flight 1",
        tiny: "bench bank --accounts 1000 --workers 1 --in-flight 1",
        recover: false,
    },
];

/// The requested tables.
///
/// # Errors
/// A word after `--only` that is neither a table nor a protocol.
pub fn tables(options: &TableOptions) -> Result<Vec<Table>, Failure> {
    let is_table = |word: &str| SECTIONS.iter().any(|section| section.name == word);
    let is_protocol =
        |word: &str| hyades_schemes::all_protocols().any(|protocol| protocol.name() == word);
    if let Some(word) = options.only.iter().find(|word| !is_table(word) && !is_protocol(word)) {
        let tables = SECTIONS.map(|section| section.name);
        let protocols: Vec<&str> =
            hyades_schemes::all_protocols().map(hyades::Protocol::name).collect();
        return Err(Failure::Usage(format!(
            "{word:?} is neither a table nor a protocol: --only takes {}, {}",
            tables.join(", "),
            protocols.join(", ")
        )));
    }
    // Tables restrict tables, and protocols restrict protocols.
    let asked = |name: &str, is_one: &dyn Fn(&str) -> bool| {
        let mut same = options.only.iter().filter(|word| is_one(word)).peekable();
        same.peek().is_none() || same.any(|word| word == name)
    };
    let wanted = SECTIONS.iter().filter(|section| asked(section.name, &is_table));
    let tables = wanted.map(|section| {
        let variants = variants().filter(|(protocol, _)| asked(protocol, &is_protocol));
        let variants = variants.filter(|(_, record)| section.recover || !record.is_empty());
        let row = |(protocol, record)| row(section, protocol, record, options);
        Table {
            name: section.name,
            title: section.title,
            about: section.about,
            rows: variants.map(row).collect(),
        }
    });
    Ok(tables.collect())
}

/// Every protocol with the protocol's kinds of records; adaptive under the default protocol only.
fn variants() -> impl Iterator<Item = (&'static str, &'static str)> {
    // Closures populate, and further concurrency controls are compared.
    let protocols = hyades_schemes::all_protocols().filter(|protocol| protocol.takes_data());
    protocols.flat_map(|protocol| {
        let records: &[&str] = match protocol {
            hyades::Protocol::None => &[""],
            hyades::Protocol::Taurus => &["data", "command", "adaptive"],
            _ if protocol.takes_commands() => &["data", "command"],
            _ => &["data"],
        };
        records.iter().map(move |record| (protocol.name(), *record))
    })
}

fn row(
    section: &Section,
    protocol: &'static str,
    record: &'static str,
    options: &TableOptions,
) -> Row {
    let mut line = if options.tiny {
        format!("{} --warmup 0.05 --reserve-memory 0", section.tiny)
    } else {
        section.words.to_string()
    };
    line += &format!(" --protocol {protocol}");
    if !record.is_empty() {
        line += &format!(" --record {record}");
        if section.recover {
            line += " --recover";
        }
    }
    line += &format!(" --seconds {}", options.seconds);
    let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    if let Some(dir) = options.log_dir.as_deref().filter(|_| !record.is_empty()) {
        words.extend(["--log-dir".to_string(), log_in(dir).display().to_string()]);
    }
    Row { protocol, record, words }
}

/// The directory of each run's log.
pub fn log_in(dir: &Path) -> PathBuf {
    dir.join("log")
}
