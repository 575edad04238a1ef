//! Runs history after history, until the time is over or a history fails.

use crate::case::Outcome;
use crate::guard;
use crate::kept::SavedFailure;
use crate::plan::{Combination, Plan};
use crate::report::Report;
use hyades::Protocol;
use hyades_platform::resident::MemoryWatch;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The source of the order of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// Histories alternate between the two.
    #[default]
    Both,
    /// The operating system: sessions, flushers and recovery run on threads.
    Threads,
    /// The seed: one thread does everything, and the same seed gives the same bytes on disk.
    Stepped,
}

/// Long enough to reduce a failing history to the few transactions that matter.
pub const SHRINK_FOR: Duration = Duration::from_secs(20);

/// Options of a torture run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to run, in seconds. At least one history runs.
    pub seconds: f64,
    /// The seed of the first history.
    pub seed: u64,
    /// Whether fsync lies, to show that the checks find the lie.
    pub lying_sync: bool,
    /// The source of the order of events.
    pub scheduler: Scheduler,
    /// The only protocol for the first life of each history, if set.
    pub protocol: Option<Protocol>,
    /// Time after which a history counts as hung. [`HANGS_AFTER`](crate::HANGS_AFTER) is long
    /// enough.
    pub hangs_after: Duration,
    /// How long to search for a smaller history that fails as well. [`SHRINK_FOR`] is long enough.
    pub shrink_for: Duration,
    /// Directory where failing histories are kept.
    pub keep: PathBuf,
}

/// The result of a torture run.
#[derive(Debug)]
pub struct Torture {
    /// Sums over all histories.
    pub report: Report,
    /// Injected faults and exercised features, with their counts.
    pub faults: BTreeMap<String, u64>,
    /// The directory of the failing history, if a history failed.
    pub kept: Option<PathBuf>,
}

/// Runs histories until the time is over or a history fails. A failing history is reduced and kept.
/// `say` receives progress messages.
///
/// # Errors
/// A failing history could not be kept.
pub fn torture(options: &Options, say: impl FnMut(&str)) -> io::Result<Torture> {
    let wanted = |c: &&Combination| options.protocol.is_none_or(|only| only == c.protocol);
    let all: Vec<Combination> = Combination::with_calls().iter().filter(wanted).copied().collect();
    if all.is_empty() {
        return Err(io::Error::other("without a log there is nothing that could survive a crash"));
    }
    // Everything follows from the seed, so that a seed alone repeats a history.
    let plan = |n: u64| {
        let seed = options.seed.wrapping_add(n);
        let combination = all[(seed / 2 % all.len() as u64) as usize];
        let mut plan = Plan::random(seed, combination);
        plan.lying_sync = options.lying_sync;
        plan.isolation = seed % 8 == 6 && !combination.calls_only();
        plan.stepped = match options.scheduler {
            Scheduler::Both => seed % 2 == 1,
            Scheduler::Threads => false,
            Scheduler::Stepped => true,
        };
        plan
    };
    torture_plans(options, plan, say)
}

fn torture_plans(
    options: &Options,
    plan: impl Fn(u64) -> Plan,
    mut say: impl FnMut(&str),
) -> io::Result<Torture> {
    let began = Instant::now();
    let mut report = Report { seed: options.seed, ..Report::default() };
    let mut faults: BTreeMap<String, u64> = BTreeMap::new();
    let mut kept = None;
    let (mut said, mut memory) = (0, MemoryWatch::default());
    for n in 0.. {
        let seconds = began.elapsed().as_secs_f64();
        if seconds >= options.seconds && n > 0 {
            break;
        }
        if seconds as u64 / 5 > said {
            said = seconds as u64 / 5;
            say(&format!(
                "{seconds:.0} s: {} histories, {} crashes, {} acknowledged, nothing wrong",
                report.histories, report.crashes, report.acknowledged
            ));
        }
        let plan = plan(n);
        let mut outcome = guard::run(&plan, options.hangs_after);
        outcome.grown = memory.after_history();
        report.add(&outcome);
        for (fault, times) in &outcome.faults {
            *faults.entry((*fault).to_string()).or_default() += times;
        }
        let combination = plan.combination;
        let what = format!("histories: {:?}, {:?}", combination.protocol, combination.concurrency);
        *faults.entry(what).or_default() += 1;
        if outcome.is_sound() {
            continue;
        }
        say(&format!("seed {} fails: {}", plan.seed, outcome.sentences().join("; ")));
        let (plan, outcome) = shrink(plan, outcome, options, &mut say);
        let place = options.keep.join(format!("hyades-torture-{}", plan.seed));
        keep(&place, &plan, &outcome)?;
        say(&format!("the failing history is kept in {}", place.display()));
        kept = Some(place);
        break;
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(Torture { report, faults, kept })
}

/// Searches for a smaller plan that also fails. Plans with threads are tried a few times, since
/// threads are not deterministic.
fn shrink(
    mut plan: Plan,
    mut outcome: Outcome,
    options: &Options,
    say: &mut impl FnMut(&str),
) -> (Plan, Outcome) {
    let began = Instant::now();
    // A hung history is not reduced: each try would take as long as the bound and leak its threads.
    'smaller: while outcome.hung.is_none() && began.elapsed() < options.shrink_for {
        for smaller in plan.smaller() {
            let tries = if smaller.stepped { 1 } else { 4 };
            for _ in 0..tries {
                let again = guard::run(&smaller, options.hangs_after);
                if !again.is_sound() {
                    say(&format!(
                        "it fails with {} lives, {} sessions of {} transactions as well",
                        smaller.lives, smaller.sessions, smaller.transactions
                    ));
                    (plan, outcome) = (smaller, again);
                    continue 'smaller;
                }
            }
        }
        break;
    }
    (plan, outcome)
}

/// Writes a failing history to a directory: its plan, its violations, the life before, and the
/// disk.
fn keep(place: &Path, plan: &Plan, outcome: &Outcome) -> io::Result<()> {
    std::fs::create_dir_all(place)?;
    std::fs::write(place.join("plan.json"), serde_json::to_vec_pretty(plan)?)?;
    std::fs::write(place.join("wrong.txt"), outcome.sentences().join("\n"))?;
    std::fs::write(place.join("history.txt"), &outcome.story)?;
    if let Some(image) = &outcome.image {
        image.save(&place.join("disk"))?;
    }
    if let Some(kept) = &outcome.kept {
        kept.save(place)?;
    }
    Ok(())
}

/// Checks a kept disk against its history again. Without a violation, runs the kept plan again, up
/// to `times` times, until a failure. Returns the violations.
///
/// # Errors
/// The kept files cannot be read.
pub fn again(place: &Path, times: u32) -> io::Result<Option<Vec<String>>> {
    if place.join("history.bin").exists() {
        let (kept, disk) = SavedFailure::load(place)?;
        let wrong = kept.judge(&disk);
        if !wrong.is_empty() {
            return Ok(Some(wrong));
        }
    }
    let plan: Plan = serde_json::from_slice(&std::fs::read(place.join("plan.json"))?)?;
    let mut outcomes = (0..times).map(|_| guard::run(&plan, guard::HANGS_AFTER));
    Ok(outcomes.find(|outcome| !outcome.is_sound()).map(|outcome| outcome.sentences()))
}
