//! Runs a workload on a primary with standbys, and compares their states at the end.

use super::following::{Followed, StandbyWatch, follow};
use super::lanes::RunLanes;
use super::{Replicated, StandbyFigures};
use crate::bench::measured::Measured;
use crate::bench::outcome::{Ran, report_of};
use crate::bench::report::Load;
use crate::bench::settings::Settings;
use crate::bench::{check, driver, load};
use hyades::Database;
use hyades_cli::failure::Failure;
use hyades_platform::clock::{monotonic_ns, process_cpu_ns};
use hyades_replication::{
    FirstAppender, LogService, MarkSender, Standby, StandbyError, StandbySettings,
};
use hyades_workloads::Workload;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The time between two marks: as a member's.
const MARKS: Duration = Duration::from_millis(20);
/// How long a standby waits for the primary, and is waited for after the load.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a standby that is waited for is looked at.
const LOOK: Duration = Duration::from_micros(500);

/// A standby that follows.
struct Follows<'scope> {
    watch: Arc<StandbyWatch>,
    thread: ScopedJoinHandle<'scope, Result<Followed, StandbyError>>,
}

/// The primary, and what follows it.
struct Copies<'s> {
    primary: Database,
    service: Arc<dyn LogService>,
    standbys: Vec<Follows<'s>>,
    /// Ends with the value.
    marks: Option<MarkSender>,
}

/// A run and its times, by the monotonic clock.
struct RunTimes {
    began_ns: u64,
    /// Processor time of the process until the standbys show all transactions.
    processor_ns: u64,
    /// The last acknowledgement.
    ended_ns: u64,
    /// No transaction is of a later epoch.
    epoch: u64,
}

/// Loads and runs the workload. The standbys join before the load, and replay it.
///
/// # Errors
/// Those of the database, of a standby, or of the log service.
pub fn run<W: Workload>(settings: &Settings, make: impl Fn() -> W) -> Result<Ran, Failure> {
    let lanes = RunLanes::create(&settings.replicating, settings.streams)?;
    let mut workload = make();
    let remote = Arc::new(FirstAppender::new(lanes.service(), "primary"));
    let mut builder = settings.builder(settings.record.record()).remote(remote);
    workload.declare(&mut builder);
    let primary = builder.open(&settings.dirs[0])?;
    std::thread::scope(|scope| {
        let (service, standbys) = (lanes.service(), Vec::new());
        let mut copies = Copies { primary, service, standbys, marks: None };
        let ran = copies.join(scope, settings, &make).and_then(|()| {
            let load = copies.load(settings, &workload)?;
            let (measured, times) = copies.drive(settings, &workload)?;
            Ok((load, measured, times))
        });
        // Also after a failure: the scope waits for the threads.
        copies.standbys.iter().for_each(|standby| standby.watch.stop());
        let followed = copies.end()?;
        let (load, measured, times) = ran?;
        let mut report = report_of(settings, &measured, load);
        let figures = figures(copies.primary.digest(), &measured, &times, &followed)?;
        report.replicated = Some(Replicated { log_service: lanes.name.to_string(), ..figures });
        report.consistent = check(&workload, &copies.primary)?;
        copies.primary.close()?;
        Ok(Ran { report, digest: 0 })
    })
}

/// The directories of a standby, beside the primary's.
fn beside(dirs: &[PathBuf], number: usize) -> Vec<PathBuf> {
    let name = |dir: &Path| dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let own = |dir: &PathBuf| {
        let name = name(dir).unwrap_or_default();
        dir.with_file_name(format!("{name}-standby{number}"))
    };
    dirs.iter().map(own).collect()
}

impl<'s> Copies<'s> {
    /// Starts the standbys of the options.
    fn join<W: Workload>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        settings: &Settings,
        make: impl Fn() -> W,
    ) -> Result<(), Failure> {
        for number in 1..=settings.replicating.standbys.unwrap_or(0) {
            let dirs = beside(&settings.dirs, number);
            let own = Settings { dirs: dirs.clone(), ..settings.clone() };
            let mut builder = own.builder(settings.record.record());
            make().declare(&mut builder);
            let at = StandbySettings { node: format!("standby{number}"), dirs, patience: PATIENCE };
            let standby = Standby::join(self.service.clone(), &at, builder)
                .map_err(Failure::doing("a standby cannot join"))?;
            let watch = Arc::new(StandbyWatch::default());
            let shared = watch.clone();
            let thread = std::thread::Builder::new()
                .name(format!("standby-{number}"))
                .spawn_scoped(scope, move || follow(standby, &shared))
                .map_err(Failure::doing("a thread cannot be started"))?;
            self.standbys.push(Follows { watch, thread });
        }
        Ok(())
    }

    fn load<W: Workload>(&mut self, settings: &Settings, workload: &W) -> Result<Load, Failure> {
        self.mark_anew()?;
        let load = load(settings, workload, &self.primary)?;
        self.wait_for(self.primary.epoch())?;
        Ok(load)
    }

    /// Runs the workload, and waits until all standbys show all of it.
    fn drive<W: Workload>(
        &mut self,
        settings: &Settings,
        workload: &W,
    ) -> Result<(Measured, RunTimes), Failure> {
        let (began_ns, used_ns) = (monotonic_ns(), process_cpu_ns());
        let measured = driver::drive(workload, &self.primary, &settings.drive(false))?;
        let ended_ns = monotonic_ns();
        let epoch = self.primary.epoch();
        self.wait_for(epoch)?;
        let processor_ns = process_cpu_ns() - used_ns;
        Ok((measured, RunTimes { began_ns, processor_ns, ended_ns, epoch }))
    }

    /// Makes marks by a new maker, whose first mark is at once.
    fn mark_anew(&mut self) -> Result<(), Failure> {
        self.marks = None;
        self.marks = Some(MarkSender::start(&self.primary, self.service.clone(), MARKS)?);
        Ok(())
    }

    /// Waits until all standbys show the epochs up to this one.
    fn wait_for(&mut self, epoch: u64) -> Result<(), Failure> {
        self.mark_anew()?;
        let until = Instant::now() + PATIENCE;
        while !self.standbys.iter().all(|standby| standby.watch.shows(epoch)) {
            if self.standbys.iter().any(|standby| standby.thread.is_finished()) {
                // The end of the threads tells why.
                return Err(Failure::Failed("a standby has stopped".to_string()));
            }
            if Instant::now() >= until {
                let seconds = PATIENCE.as_secs();
                return Err(Failure::Failed(format!(
                    "a standby does not show all transactions {seconds} s after the last one"
                )));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Ends the standbys and the marks.
    fn end(&mut self) -> Result<Vec<Followed>, Failure> {
        self.marks = None;
        let ended = self.standbys.drain(..).map(|standby| {
            let ended = standby.thread.join();
            let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map_err(Failure::doing("a standby cannot follow"))
        });
        ended.collect()
    }
}

fn highest(figures: impl Iterator<Item = f64>) -> Option<f64> {
    figures.reduce(f64::max)
}

/// The figures of a run whose primary has this digest. The name of the log service is left open.
fn figures(
    digest: u64,
    measured: &Measured,
    times: &RunTimes,
    followed: &[Followed],
) -> Result<Replicated, Failure> {
    let RunTimes { began_ns, processor_ns, ended_ns, epoch } = *times;
    let mut each = Vec::new();
    for standby in followed {
        let showed_ns = standby.showed_at(epoch).ok_or_else(|| {
            Failure::Failed("a standby was waited for and shows too little".to_string())
        })?;
        let ages = standby.ages((began_ns, ended_ns));
        each.push(StandbyFigures {
            states: ages.states,
            age_ms: ages.mean_ns / 1e6,
            longest_age_ms: ages.longest_ns as f64 / 1e6,
            catch_up_ms: showed_ns.saturating_sub(ended_ns) as f64 / 1e6,
            rows: standby.rows,
            state_matches: standby.digest == digest,
        });
    }
    let of_each = |figure: fn(&StandbyFigures) -> f64| highest(each.iter().map(figure));
    let catch_up_ms = of_each(|standby| standby.catch_up_ms);
    let seconds = (ended_ns - began_ns) as f64 / 1e9 + catch_up_ms.unwrap_or(0.0) / 1e3;
    Ok(Replicated {
        log_service: String::new(),
        standbys: each.len(),
        transactions: measured.transactions,
        copied_per_s: measured.transactions as f64 / seconds,
        processor_seconds: processor_ns as f64 / 1e9,
        age_ms: of_each(|standby| standby.age_ms),
        longest_age_ms: of_each(|standby| standby.longest_age_ms),
        catch_up_ms,
        state_matches: (!each.is_empty()).then(|| each.iter().all(|one| one.state_matches)),
        each,
    })
}

#[cfg(test)]
mod tests;
