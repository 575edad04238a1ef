//! `hyades-lab bench table`: measures each protocol under each workload, in rounds, each run in a
//! separate process, and writes Markdown tables.

mod markdown;
mod rows;
#[cfg(test)]
mod tests;

use crate::runner::Runner;
use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::progress::Bar;
use hyades_cli::{machine, units};
use hyades_report::data::{Data, Outcome};
use markdown::{Head, Page};
use rows::Row;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `hyades-lab bench table`.
#[derive(Args, Clone, Debug)]
pub struct TableOptions {
    /// Length of each measured interval, in seconds or with a unit
    #[arg(long, default_value = "2", value_parser = units::some_seconds)]
    seconds: f64,
    /// Rounds. A round runs every row of every table once; a figure is the median of its rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Write the tables to this file, after each round, and not to standard output. If it is a page
    /// with the two marks that enclose the tables, only what is between them is replaced
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only this table (ycsb, tpcc, bank, latency) or this protocol; may be given several times
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Directory for the logs; each run makes a directory there, and removes it [default: the
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Print one JSON object instead of Markdown
    #[arg(long, conflicts_with = "out")]
    json: bool,
    /// Runs so short that their figures mean nothing, to test this command
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Runs `hyades-lab bench table`. True if every run succeeded and all checks hold.
///
/// # Errors
/// Wrong usage; or the tables cannot be written.
pub fn table(options: &TableOptions) -> Result<bool, Failure> {
    let tables = rows::tables(options)?;
    let logs = options.log_dir.as_deref().map(rows::log_in);
    if let Some(log) = logs.as_ref().filter(|log| log.exists()) {
        return Err(Failure::Usage(format!(
            "{} exists: remove it, or give another --log-dir",
            log.display()
        )));
    }
    let began = Instant::now();
    let mut page = Page {
        head: Head {
            program: format!("hyades {}", env!("CARGO_PKG_VERSION")),
            machine: machine::describe(),
            log_device: machine::device_of(options.log_dir.as_deref()),
            date: machine::date(),
            command: command_of(options),
            seconds: options.seconds,
            rounds: 0,
            took: 0.0,
        },
        tables: &tables,
        data: Data::default(),
    };
    let runner = Runner::new(None)?;
    let rows: Vec<&Row> = tables.iter().flat_map(|table| &table.rows).collect();
    let bar = Bar::new("measuring", rows.len() as u64 * u64::from(options.rounds));
    let mut done = 0;
    for round in 1..=options.rounds {
        for at in 0..rows.len() {
            // Every second round goes backwards, so a changing machine favours no row.
            let row = rows[if round % 2 == 1 { at } else { rows.len() - 1 - at }];
            bar.say(format!("round {round} of {}, {}", options.rounds, row.command()));
            let outcome = runner.run(&row.words);
            if let Some(log) = &logs {
                let _ = std::fs::remove_dir_all(log);
            }
            if let Outcome::Failed(why) | Outcome::Unavailable(why) = &outcome {
                bar.note(&format!("failed: {}: {why}", row.command()));
            }
            page.data.add(&row.words, outcome);
            done += 1;
            bar.set(done);
        }
        (page.head.rounds, page.head.took) = (round, began.elapsed().as_secs_f64());
        bar.note(&format!(
            "round {round} of {}: done after {}",
            options.rounds,
            units::time(page.head.took)
        ));
        if let Some(file) = &options.out {
            write(file, &page.markdown())?;
        }
    }
    bar.finish(&format!("{done} runs in {}", units::time(page.head.took)));
    if options.json {
        println!("{}", page.json());
    } else if options.out.is_none() {
        print!("{}", page.markdown());
    }
    let good = |row: &&Row| page.data.of(&row.words).iter().all(|run| run.trouble().is_none());
    Ok(rows.iter().all(good))
}

/// The command as given, to be repeated.
fn command_of(options: &TableOptions) -> String {
    let mut command =
        format!("hyades-lab bench table --seconds {} --rounds {}", options.seconds, options.rounds);
    for word in &options.only {
        command += &format!(" --only {word}");
    }
    if let Some(dir) = &options.log_dir {
        command += &format!(" --log-dir {}", dir.display());
    }
    command
}

/// The marks around the tables on a page with further text.
const MARKS: [&str; 2] =
    ["<!-- hyades-lab bench table -->\n", "<!-- end of hyades-lab bench table -->\n"];

/// Writes the tables to a file: between the file's marks if there are any, else as the whole file.
fn write(file: &Path, tables: &str) -> Result<(), Failure> {
    let old = std::fs::read_to_string(file).unwrap_or_default();
    let new = between_marks(&old, tables).unwrap_or_else(|| tables.to_string());
    std::fs::write(file, new).map_err(Failure::doing(format!("cannot write to {}", file.display())))
}

/// The page with the tables between the marks; none if the page has no marks.
fn between_marks(page: &str, tables: &str) -> Option<String> {
    let (before, rest) = page.split_once(MARKS[0])?;
    let (_, after) = rest.split_once(MARKS[1])?;
    Some(format!("{before}{}\n{tables}\n{}{after}", MARKS[0], MARKS[1]))
}
