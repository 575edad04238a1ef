//! `hyades recover`: recovers a database to a point in time, or salvages a damaged database.

use crate::data_place::{self, DataPlace};
use crate::existing;
use crate::failure::Failure;
use crate::log::component::is_of_component;
use crate::progress::Bar;
use crate::units;
use clap::Args;
use hyades::{Loss, Restore, RestoreReport, StreamRead, Until};
use hyades_wal::Continuation;
use std::path::PathBuf;
use std::str::FromStr;
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
    until: Moment,
    /// The archive of the log, where DIR is a backup: recover points in time after the backup, too
    #[arg(long, value_name = "DIR", conflicts_with = "salvage")]
    archive: Option<PathBuf>,
    /// With --archive, a directory of the database itself, or of a later backup
    #[arg(long, value_name = "DIR", conflicts_with = "salvage")]
    log: Vec<PathBuf>,
    /// The data of a database of hyades-deuteronomy, as in redb:FILE; then WHEN is a time, a
    /// timestamp (1234), or newest
    #[arg(long, value_name = "KIND:PATH", requires = "data_out")]
    #[arg(conflicts_with_all = ["salvage", "before"])]
    data: Option<DataPlace>,
    /// With --data, the place for the recovered data, of the same or of another kind
    #[arg(long, value_name = "KIND:PATH", requires = "data")]
    data_out: Option<DataPlace>,
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

/// The value of `--until`.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// A moment of a database of the engine; times and `newest` are of both kinds.
    Engine(Until),
    /// A timestamp of a transaction component.
    Timestamp(u64),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Moment::Timestamp).or_else(|_| text.parse().map(Moment::Engine))
    }
}

impl Moment {
    fn of_engine(self) -> Result<Until, Failure> {
        match self {
            Moment::Engine(until) => Ok(until),
            Moment::Timestamp(ts) => Err(Failure::Usage(format!(
                "{ts} is a timestamp of hyades-deuteronomy: give a time, a transaction id, as in \
                 5213.3.1048576, or newest"
            ))),
        }
    }

    fn of_component(self) -> Result<hyades_deuteronomy::Until, Failure> {
        use hyades_deuteronomy::Until as Component;
        match self {
            Moment::Timestamp(ts) => Ok(Component::Timestamp(ts)),
            Moment::Engine(Until::Newest) => Ok(Component::Newest),
            Moment::Engine(Until::Time(us)) => Ok(Component::Time(us)),
            Moment::Engine(_) => Err(Failure::Usage(
                "a database of hyades-deuteronomy has no transaction ids: give a time, a \
                 timestamp, as in 1234, or newest"
                    .into(),
            )),
        }
    }
}

/// Runs `hyades recover`.
///
/// # Errors
/// There is no database, or the database is in use, or damaged without `--salvage`; the point in
/// time is before the start of the log; the log calls procedures unknown to this program; the new
/// directory cannot be written.
pub fn recover(options: &RecoverOptions) -> Result<bool, Failure> {
    let open = if options.salvage { hyades_wal::open_damaged } else { hyades_wal::open_read };
    let manifest = existing::find(&options.dirs, open)?.manifest().clone();
    if !options.salvage {
        data_place::check_needed(is_of_component(&manifest), options.data.as_ref())?;
    }
    let later = Continuation { archive: options.archive.clone(), log: options.log.clone() };
    if let (Some(data), Some(data_out)) = (&options.data, &options.data_out) {
        return recover_component(options, later, data, data_out);
    }
    let until = match (options.until.of_engine()?, options.before) {
        (Until::Transaction(id), true) => Until::Before(id),
        (_, true) => {
            return Err(Failure::Usage(
                "--before excludes a transaction: name it, as in --until 5213.3.1048576"
                    .to_string(),
            ));
        }
        (until, false) => until,
    };
    let how =
        Restore::new(options.dirs.clone(), &options.out).until(until).salvage(options.salvage);
    let how = how.continued(later);
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

/// Recovers a database of a transaction component.
fn recover_component(
    options: &RecoverOptions,
    later: Continuation,
    data: &DataPlace,
    data_out: &DataPlace,
) -> Result<bool, Failure> {
    let until = options.until.of_component()?;
    let (from, into) = (data.open()?, data_out.make()?);
    let restore = hyades_deuteronomy::Restore::new(options.dirs.clone(), &*from);
    let report = restore.continued(later).until(until).run(&options.out, &*into)?;
    if options.json {
        let report = serde_json::json!({
            "keys": report.keys,
            "transactions": report.transactions,
            "later": report.later,
            "timestamp": report.timestamp,
        });
        println!("{report}");
    } else {
        println!(
            "{} and {}: everything up to the timestamp {}, from {} keys of the data and {} \
             transactions of the log; {} later transactions are left out",
            options.out.display(),
            data_out.path().display(),
            report.timestamp,
            units::exact(report.keys),
            units::exact(report.transactions),
            units::exact(report.later)
        );
    }
    Ok(true)
}
