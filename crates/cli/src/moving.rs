//! `hyades import` and `hyades export`: from the files of Redis into a database, and back.

use clap::Args;
use hyades_cli::existing;
use hyades_cli::failure::Failure;
use hyades_cli::memory;
use hyades_cli::progress::Bar;
use hyades_cli::units;
use hyades_server::{ImportReport, Settings};
use std::path::PathBuf;

/// Options of `hyades import`.
#[derive(Args, Clone, Debug)]
pub struct ImportOptions {
    /// An RDB file, an append-only file, or the directory of append-only files (appendonlydir)
    #[arg(value_name = "FILE | DIR")]
    source: PathBuf,
    /// Settings of the server that will use the database: --dir DIR --databases 16 ..
    #[arg(value_name = "--NAME VALUE", trailing_var_arg = true, allow_hyphen_values = true)]
    settings: Vec<String>,
}

/// Options of `hyades export`.
#[derive(Args, Clone, Debug)]
pub struct ExportOptions {
    /// The RDB file to write; it must be absent
    #[arg(long, value_name = "FILE")]
    rdb: PathBuf,
    /// Settings of the server that uses the database: --dir DIR ..
    #[arg(value_name = "--NAME VALUE", trailing_var_arg = true, allow_hyphen_values = true)]
    settings: Vec<String>,
}

fn settings(arguments: &[String]) -> Result<Settings, Failure> {
    let settings = Settings::from_arguments(arguments);
    let settings = settings.map_err(|error| Failure::Usage(error.to_string()))?;
    settings.count_memory(memory::allocated);
    Ok(settings)
}

/// Runs `hyades import`. True if nothing was left out.
///
/// # Errors
/// The files are not Redis's, or are damaged; the database is not empty, or cannot be opened.
pub fn import(options: &ImportOptions) -> Result<bool, Failure> {
    let settings = settings(&options.settings)?;
    let dir = settings.dir();
    let bar = Bar::new("importing", 1);
    let report = hyades_server::import(&options.source, settings, &mut |done, total| {
        bar.show_bytes(done, total);
    });
    bar.clear();
    let report = report.map_err(Failure::Failed)?;
    print(&report);
    println!("next: hyades serve --dir {}", dir.display());
    Ok(report.is_whole())
}

fn print(report: &ImportReport) {
    let bytes = units::bytes(report.bytes as f64);
    let keys: u64 = report.keys.values().sum();
    let resumed = if report.was_resumed { ", going on where an import before was" } else { "" };
    let seconds = units::time(report.seconds);
    println!("{} keys from {bytes} in {seconds}{resumed}", units::exact(keys));
    for (kind, count) in &report.keys {
        println!("  {kind:<8} {}", units::exact(*count));
    }
    for (count, text) in [
        (report.libraries, "libraries of functions"),
        (report.commands, "commands of append-only files were run"),
        (report.expired, "keys had expired, and were left out"),
        (report.cut_bytes, "bytes of an unfinished command at the end were left out"),
        (report.left_out, "parts were left out:"),
    ] {
        if count > 0 {
            println!("{} {text}", units::exact(count));
        }
    }
    for sentence in &report.named {
        println!("  {sentence}");
    }
    if report.left_out > report.named.len() as u64 {
        println!("  and {} more", units::exact(report.left_out - report.named.len() as u64));
    }
}

/// Runs `hyades export`.
///
/// # Errors
/// There is no database, or another process has it open; the file is there, or cannot be written.
pub fn export(options: &ExportOptions) -> Result<bool, Failure> {
    let settings = settings(&options.settings)?;
    drop(existing::find(&[settings.dir()], hyades_wal::open_read)?);
    let bar = Bar::new("exporting", 1);
    let report = hyades_server::export(settings, &options.rdb, &mut |done, total| {
        bar.set_total(total.max(1));
        bar.set(done);
    });
    bar.clear();
    let report = report.map_err(Failure::Failed)?;
    println!(
        "{} keys and {} libraries of functions in {}, {}",
        units::exact(report.keys),
        units::exact(report.libraries),
        options.rdb.display(),
        units::bytes(report.bytes as f64)
    );
    Ok(true)
}
