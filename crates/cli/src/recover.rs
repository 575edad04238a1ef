//! `hyades recover`: recovers a database to a point in time, or salvages a damaged database.

use crate::existing;
use crate::failure::Failure;
use crate::progress::Bar;
use clap::Args;
use hyades::{Loss, Restore, RestoreReport, StreamRead, Until};
use std::path::PathBuf;
use std::sync::Arc;

/// Options of `hyades recover`.
#[derive(Args, Clone, Debug)]
pub struct RecoverOptions {
    /// All directories of the database, in any order, or of a backup
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The last point to recover: a time in UTC (2026-11-21T14:03:07.25Z), a transaction id
    /// (5213.3.1048576), or newest
    #[arg(long, value_name = "WHEN", default_value = "newest")]
    until: Until,
    /// Exclude the transaction that --until names, with all of its epoch
    #[arg(long)]
    before: bool,
    /// Directory for the recovered database; it must be empty or absent
    #[arg(long, value_name = "NEW")]
    out: PathBuf,
    /// If the log is damaged, recover what is provably intact, and report what is lost
    #[arg(long)]
    salvage: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `hyades recover`.
///
/// # Errors
/// There is no database, or the database is in use, or damaged without `--salvage`; the point in
/// time is before the start of the log; the log calls procedures unknown to this program; the new
/// directory cannot be written.
pub fn recover(options: &RecoverOptions) -> Result<bool, Failure> {
    let until = match (options.until, options.before) {
        (Until::Transaction(id), true) => Until::Before(id),
        (_, true) => {
            return Err(Failure::Usage(
                "--before excludes a transaction: name it, as in --until 5213.3.1048576"
                    .to_string(),
            ));
        }
        (until, false) => until,
    };
    let open = if options.salvage { hyades_wal::open_damaged } else { hyades_wal::open_read };
    let manifest = existing::find(&options.dirs, open)?.manifest().clone();
    let how =
        Restore::new(options.dirs.clone(), &options.out).until(until).salvage(options.salvage);
    let bar = Arc::new(Bar::new("recovering", 1));
    let report = existing::as_it_was(&manifest, |builder| {
        let shown = bar.clone();
        builder.on_progress(move |progress| shown.show(progress)).restore(&how)
    })?;
    if options.json {
        println!("{}", json(&report));
    } else {
        print!("{}: {report}", options.out.display());
    }
    Ok(true)
}

fn json(report: &RestoreReport) -> serde_json::Value {
    let loss = |loss: &Loss| match loss {
        Loss::Stream { incarnation, stream, valid_to, durable_to, message } => serde_json::json!({
            "incarnation": incarnation, "stream": stream, "valid_to": valid_to,
            "durable_to": durable_to, "message": message,
        }),
        Loss::Incarnation(number) => serde_json::json!({
            "incarnation": number, "stream": null, "valid_to": null, "durable_to": null,
            "message": "it depends on data lost in an earlier incarnation",
        }),
        Loss::File(message) => serde_json::json!({
            "incarnation": null, "stream": null, "valid_to": null, "durable_to": null,
            "message": message,
        }),
        other => serde_json::json!({
            "incarnation": null, "stream": null, "valid_to": null, "durable_to": null,
            "message": format!("{other:?}"),
        }),
    };
    let read = |read: &StreamRead| {
        serde_json::json!({
            "stream": read.stream, "bytes": read.bytes, "read_seconds": read.read_seconds,
            "wait_seconds": read.wait_seconds,
        })
    };
    serde_json::json!({
        "cut_epoch": report.cut_epoch,
        "last_epoch_us": report.last_epoch_us,
        "next_epoch_us": report.next_epoch_us,
        "rows": report.rows,
        "transactions": report.transactions,
        "replay_seconds": report.replay_seconds,
        "streams": report.reads.iter().map(read).collect::<Vec<_>>(),
        "dead": report.dead,
        "losses": report.losses.iter().map(loss).collect::<Vec<_>>(),
    })
}
