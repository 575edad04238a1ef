//! `hyades-lab bench paper`: the papers' experiments, with each run of this program in a separate
//! process, and a page with the figures.

mod rounds;

use crate::bench::choices::Concurrency;
use crate::runner::Runner;
use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::machine;
use hyades_cli::progress::Bar;
use hyades_cli::units;
use hyades_report::data::{Data, Outcome};
use hyades_report::definition;
use hyades_report::docs;
use hyades_report::experiment::{Experiment, Run};
use hyades_report::page::{About, Page};
use hyades_report::scale::{Axes, Processors, Rates, Setup, Size};
use hyades_report::table;
use rounds::Running;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `hyades-lab bench paper`.
#[derive(Args, Clone, Debug)]
pub struct PaperOptions {
    /// Directory for report.html and report.json
    #[arg(long, value_name = "DIR", required_unless_present = "docs")]
    out: Option<PathBuf>,
    /// Short runs in few rounds: at most 15 minutes instead of three hours
    #[arg(long)]
    quick: bool,
    /// Run only this experiment, or with --from judge only this experiment; may be given several
    /// times. An unknown id lists all ids
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Directory for logs, on a device of its own; may be given several times. Real devices then
    /// replace the throttled ones, and curves over bandwidth have one point
    #[arg(long, value_name = "DIR")]
    log_dir: Vec<PathBuf>,
    /// Rows of YCSB [default: 200,000; 50,000 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..))]
    rows: Option<u64>,
    /// Warehouses of TPC-C [default: 2; 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=30_000))]
    warehouses: Option<u32>,
    /// Worker threads of every run [default: the number of cores, or what an experiment needs]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=255))]
    workers: Option<u64>,
    /// Concurrency control of every run [default: that of the paper's figure]
    #[arg(long)]
    concurrency: Option<Concurrency>,
    /// Most rounds: runs that are judged have five, those that are only shown three, and those of
    /// a paper's undecided claim go on until it is decided or their share of the time is over
    /// [default: 40; 15 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: Option<u64>,
    /// Time after which no run is repeated, divided by the experiments with undecided claims
    /// [default: 178m; 14m with --quick]
    #[arg(long, value_name = "TIME", value_parser = units::some_seconds)]
    budget: Option<f64>,
    /// Log service of runs with standbys, as nats://HOST:PORT,../NAME, in a build with --features
    /// nats [default: a service in the memory of each run]
    #[arg(long, value_name = "ADDRESS")]
    log_service: Option<String>,
    /// With --log-service: replicas of each lane: 1, 3 or 5 [default: 3]
    #[arg(long, value_name = "N", requires = "log_service",
        value_parser = clap::value_parser!(u32).range(1..=5))]
    lane_replicas: Option<u32>,
    /// Nominal clock of the processors in GHz, for the scale of devices [default: as the system
    /// says]
    #[arg(long, value_parser = units::positive)]
    ghz: Option<f64>,
    /// Commit that was built, for the page [default: that of the working directory]
    #[arg(long, value_name = "ID")]
    commit: Option<String>,
    /// Run nothing: judge the runs of this report.json again, for --docs, --out or both
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "quick", "log_dir", "rows", "warehouses", "workers", "concurrency", "rounds",
        "budget", "ghz", "commit", "log_service", "lane_replicas",
    ])]
    from: Option<PathBuf>,
    /// Write the results as tables into this page of Markdown, between its two marks; those of
    /// --only beside the page's others
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// Run nothing: in the page of --docs, put a note in place of the results of experiments whose
    /// definition has changed since
    #[arg(long, requires = "docs", conflicts_with_all = ["out", "only", "from"])]
    changed: bool,
    /// Runs so short that their figures mean nothing, to test this command
    #[arg(long, hide = true)]
    tiny: bool,
}

impl PaperOptions {
    fn size(&self) -> Size {
        let size = match (self.tiny, self.quick) {
            (true, _) => Size::TINY,
            (_, true) => Size::QUICK,
            _ => Size::FULL,
        };
        Size {
            rows: self.rows.unwrap_or(size.rows),
            warehouses: self.warehouses.unwrap_or(size.warehouses),
            rounds: self.rounds.map_or(size.rounds, |rounds| rounds as usize),
            budget: self.budget.unwrap_or(size.budget),
            ..size
        }
    }

    /// The set-up of the experiments, with the rates of a typical machine.
    fn setup(&self) -> Result<Setup, Failure> {
        let dir = |dir: &PathBuf| match dir.to_str() {
            // Commands are split at blanks.
            Some(text) if !text.contains(char::is_whitespace) => Ok(text.to_string()),
            _ => Err(Failure::Usage(format!(
                "--log-dir {} must be UTF-8 without blanks",
                dir.display()
            ))),
        };
        let axes = Axes {
            log_dirs: self.log_dir.iter().map(dir).collect::<Result<_, _>>()?,
            workers: self.workers.map(|workers| workers as usize),
            concurrency: self.concurrency.map(|control| control.word().to_string()),
            log_service: self.log_service.clone(),
            lane_replicas: self.lane_replicas,
        };
        let (cores, clock) = machine::processors();
        let Some(ghz) = self.ghz.or(clock) else {
            return Err(Failure::Usage(
                "this system does not say the clock of its processors: give --ghz".to_string(),
            ));
        };
        let processors = Processors { cores, ghz };
        Ok(Setup { size: self.size(), rates: Rates::TYPICAL, processors, axes })
    }
}

/// Runs `hyades-lab bench paper`. True if no run failed, and all checks of the runs hold.
///
/// # Errors
/// Wrong usage; or the report cannot be written.
pub fn paper(options: &PaperOptions) -> Result<bool, Failure> {
    if let Some(from) = &options.from {
        judge_again(options, from)?;
        return Ok(true);
    }
    if let (true, Some(page)) = (options.changed, &options.docs) {
        mark_changed(page)?;
        return Ok(true);
    }
    let Some(out) = &options.out else {
        return Err(Failure::Usage("give --out for the report, or --from".to_string()));
    };
    let mut setup = options.setup()?;
    choose(table::all(&setup), &options.only)?;
    create(out)?;
    // The commit that was built, which may not be the commit at the end of the runs.
    let commit = options.commit.clone().or_else(commit);
    let began = Instant::now();
    let runner = Runner::new(Some(out.join("calibration.json")))?;
    let rates = rates(&runner, &setup);
    setup.rates = rates.unwrap_or(Rates::TYPICAL);
    let experiments = choose(table::all(&setup), &options.only)?;
    let calibration = calibrate(&runner, &setup.size, &experiments)?;
    let about = || about(&setup, rates, began, commit.clone(), calibration.clone());
    let keep =
        |data: &Data| write_report(out, &Page { about: about(), experiments: &experiments, data });
    let data = Running::new(&runner, &experiments, setup.size, began).run(&keep)?;
    publish(options, &Page { about: about(), experiments: &experiments, data: &data })?;
    Ok(!data.outcomes.values().flatten().any(is_wrong))
}

/// Whether a run failed, or a check of the run does not hold.
fn is_wrong(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(_) => outcome.value().is_none(),
        Outcome::Failed(_) => true,
        Outcome::Unavailable(_) | Outcome::Skipped => false,
    }
}

/// Judges the runs of a report by the rules and the experiments of this build.
fn judge_again(options: &PaperOptions, from: &Path) -> Result<(), Failure> {
    let cannot = format!("cannot read {}", from.display());
    let text = std::fs::read_to_string(from).map_err(Failure::doing(&cannot))?;
    let report = serde_json::from_str(&text).map_err(Failure::doing(&cannot))?;
    let about = About::of_report(&report).map_err(Failure::doing(&cannot))?;
    let experiments = choose(table::all(&about.setup()), &options.only)?;
    let data = Data::of_report(&report, &experiments, |run| about.command(run))
        .map_err(Failure::doing(&cannot))?;
    let runs = || experiments.iter().flat_map(|experiment| &experiment.runs);
    let missing = runs().filter(|run| data.of(&run.words).is_empty()).count();
    if missing > 0 {
        eprintln!("  {missing} of {} runs are not in that report", runs().count());
    }
    if let Some(out) = &options.out {
        create(out)?;
    }
    publish(options, &Page { about, experiments: &experiments, data: &data })
}

fn create(out: &Path) -> Result<(), Failure> {
    let cannot = format!("cannot write to {}", out.display());
    std::fs::create_dir_all(out).map_err(Failure::doing(&cannot))
}

/// Writes a report to the places in the options, and prints the verdicts.
fn publish(options: &PaperOptions, page: &Page<'_>) -> Result<(), Failure> {
    if let Some(out) = &options.out {
        write_report(out, page)?;
    }
    if let Some(docs) = &options.docs {
        write_docs(docs, &page.json(), !options.only.is_empty())?;
    }
    for (id, standing) in page.standings() {
        println!("  {id:<26}{standing}");
    }
    if let Some(out) = &options.out {
        println!("  {} and report.json beside it", out.join("report.html").display());
    }
    Ok(())
}

/// Writes report.html and report.json.
fn write_report(out: &Path, page: &Page<'_>) -> Result<(), Failure> {
    let json =
        serde_json::to_string_pretty(&page.json()).map_err(Failure::doing("cannot write JSON"))?;
    std::fs::write(out.join("report.html"), page.html())
        .and_then(|()| std::fs::write(out.join("report.json"), json))
        .map_err(Failure::doing(&format!("cannot write to {}", out.display())))
}

fn about(
    setup: &Setup,
    rates: Option<Rates>,
    began: Instant,
    commit: Option<String>,
    calibration: Option<Value>,
) -> About {
    About {
        program: format!("hyades {}", env!("CARGO_PKG_VERSION")),
        machine: machine::describe(),
        date: machine::date(),
        seconds: began.elapsed().as_secs_f64(),
        size: setup.size,
        rates,
        processors: setup.processors,
        axes: setup.axes.clone(),
        commit,
        placeholders: vec![
            (table::simulated::CALIBRATION.to_string(), "calibration.json".to_string()),
            ("--log-dir LOG".to_string(), "--log-dir log".to_string()),
        ],
        calibration,
    }
}

/// The commit of the working directory, marked if files differ; none outside of a repository.
fn commit() -> Option<String> {
    let words = ["describe", "--always", "--dirty", "--exclude", "*"];
    let output = std::process::Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Writes the results of a report into a page of the documentation, beside the page's others if
/// the report is of some experiments.
fn write_docs(page: &Path, report: &Value, only_some: bool) -> Result<(), Failure> {
    let cannot = format!("cannot write the results into {}", page.display());
    let old = std::fs::read_to_string(page).map_err(Failure::doing(&cannot))?;
    let all = table::all(&Setup::typical(Size::FULL));
    let ids: Vec<&str> = all.iter().map(|experiment| experiment.id).collect();
    let new = match only_some {
        true => docs::replace_some(&old, report, &ids),
        false => docs::replace(&old, report),
    };
    let marked = new.and_then(|new| docs::mark_changed(&new, &all, &definition::current()));
    let new = marked.map_err(Failure::doing(&cannot))?;
    std::fs::write(page, new).map_err(Failure::doing(&cannot))
}

/// Takes the results of changed experiments off a page of the documentation.
fn mark_changed(page: &Path) -> Result<(), Failure> {
    let cannot = format!("cannot mark changed experiments in {}", page.display());
    let old = std::fs::read_to_string(page).map_err(Failure::doing(&cannot))?;
    let all = table::all(&Setup::typical(Size::FULL));
    let new = docs::mark_changed(&old, &all, &definition::current());
    std::fs::write(page, new.map_err(Failure::doing(&cannot))?).map_err(Failure::doing(&cannot))
}

/// Selects the requested experiments.
fn choose(all: Vec<Experiment>, only: &[String]) -> Result<Vec<Experiment>, Failure> {
    let ids: Vec<&str> = all.iter().map(|experiment| experiment.id).collect();
    if let Some(unknown) = only.iter().find(|id| !ids.contains(&id.as_str())) {
        return Err(Failure::Usage(format!(
            "there is no experiment {unknown:?}: --only takes {}",
            ids.join(", ")
        )));
    }
    let wanted =
        |experiment: &Experiment| only.is_empty() || only.iter().any(|id| id == experiment.id);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Measures the rates for offered loads. The runs belong to no experiment.
fn rates(runner: &Runner, setup: &Setup) -> Option<Rates> {
    let bar = Bar::new("measuring this machine", table::CALIBRATIONS as u64);
    let mut done = 0;
    let mut measure = |run: &Run| {
        let outcome = runner.run(&run.words);
        done += 1;
        bar.set(done);
        outcome
    };
    let outcomes = table::calibration(setup).each_ref().map(&mut measure);
    let rates = table::rates(outcomes.each_ref().map(Outcome::value));
    let words = match rates {
        Some(rates) => format!("this machine: {} of YCSB", units::rate(rates.ycsb)),
        None => "this machine's rates could not be measured: loads are those of a typical one"
            .to_string(),
    };
    bar.finish(&words);
    rates
}

/// Calibrates the model, if an experiment needs the model.
fn calibrate(
    runner: &Runner,
    size: &Size,
    experiments: &[Experiment],
) -> Result<Option<serde_json::Value>, Failure> {
    if !experiments.iter().any(Experiment::is_simulated) {
        return Ok(None);
    }
    let seconds = size.seconds.min(1.0);
    let words = format!(
        "simulate --calibrate {} --seconds {seconds} --rows {}",
        table::simulated::CALIBRATION,
        size.rows.min(100_000)
    );
    let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
    match runner.run(&words) {
        Outcome::Done(value) => Ok(Some(value)),
        Outcome::Unavailable(why) | Outcome::Failed(why) => {
            eprintln!("  the model was not calibrated: {why}");
            Ok(None)
        }
        Outcome::Skipped => Ok(None),
    }
}

#[cfg(test)]
mod tests;
