//! `hyades bench paper`: the papers' experiments, each a run of this program in a process of its
//! own, and one page with the figures.

use crate::failure::Failure;
use crate::machine;
use crate::progress::Bar;
use crate::runner::Runner;
use crate::units;
use clap::Args;
use hyades_report::data::{Data, Outcome};
use hyades_report::experiment::{Experiment, Run};
use hyades_report::page::{About, Page};
use hyades_report::plan::{self, Step};
use hyades_report::scale::{Rates, Size};
use hyades_report::table;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of `hyades bench paper`.
#[derive(Args, Clone, Debug)]
pub struct PaperOptions {
    /// Directory for report.html and report.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Short runs without repetitions: ten minutes instead of an hour
    #[arg(long)]
    quick: bool,
    /// Run only this experiment; may be given several times. An unknown id lists all ids
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Runs so short that their figures mean nothing, to test this command
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Repetitions are skipped unless they end within this time.
const BUDGET: [(Size, Duration); 2] =
    [(Size::FULL, Duration::from_secs(55 * 60)), (Size::QUICK, Duration::from_secs(10 * 60))];

/// Runs `hyades bench paper`. True if no run failed.
///
/// # Errors
/// Wrong usage; or the report cannot be written.
pub fn paper(options: &PaperOptions) -> Result<bool, Failure> {
    let size = match (options.tiny, options.quick) {
        (true, _) => Size::TINY,
        (_, true) => Size::QUICK,
        _ => Size::FULL,
    };
    choose(table::all(&size, &Rates::TYPICAL), &options.only)?;
    let cannot = format!("cannot write to {}", options.out.display());
    std::fs::create_dir_all(&options.out).map_err(Failure::doing(&cannot))?;
    let began = Instant::now();
    let runner = Runner::new(Some(options.out.join("calibration.json")))?;
    let mut data = Data::default();
    let rates = rates(&runner, &size, &mut data);
    let experiments = choose(table::all(&size, &rates.unwrap_or(Rates::TYPICAL)), &options.only)?;
    let calibration = calibrate(&runner, &size, &experiments)?;
    run_all(&runner, &plan::plan(&experiments, size.repeats), size, began, &mut data);
    let page = Page {
        about: About {
            program: format!("hyades {}", env!("CARGO_PKG_VERSION")),
            machine: machine::describe(),
            date: machine::date(),
            seconds: began.elapsed().as_secs_f64(),
            size,
            rates,
            placeholders: vec![
                (table::simulated::CALIBRATION.to_string(), "calibration.json".to_string()),
                ("--log-dir LOG".to_string(), "--log-dir log".to_string()),
            ],
            calibration,
        },
        experiments: &experiments,
        data: &data,
    };
    let json =
        serde_json::to_string_pretty(&page.json()).map_err(Failure::doing("cannot write JSON"))?;
    let html = options.out.join("report.html");
    std::fs::write(&html, page.html())
        .and_then(|()| std::fs::write(options.out.join("report.json"), json))
        .map_err(Failure::doing(&cannot))?;
    for (id, verdict) in page.verdicts() {
        println!("  {id:<22}{}", verdict.words());
    }
    println!("  {} and report.json beside it", html.display());
    let failed = data.outcomes.values().flatten().any(|o| matches!(o, Outcome::Failed(_)));
    Ok(!failed)
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

/// Measures the rates that the scaling of devices depends on.
fn rates(runner: &Runner, size: &Size, data: &mut Data) -> Option<Rates> {
    let bar = Bar::new("measuring this machine", 3);
    let mut done = 0;
    let mut measure = |run: &Run| {
        let outcome = runner.run(&run.words);
        data.add(&run.words, outcome.clone());
        done += 1;
        bar.set(done);
        outcome
    };
    let outcomes = table::calibration(size).each_ref().map(&mut measure);
    let rates = table::rates(outcomes.each_ref().map(Outcome::value));
    let words = match rates {
        Some(rates) => format!("this machine: {} of YCSB", units::rate(rates.ycsb)),
        None => "this machine's rate could not be measured: devices are scaled for a typical one"
            .to_string(),
    };
    bar.finish(&words);
    rates
}

/// Calibrates the model, if an experiment needs it.
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
    }
}

/// Runs the plan. Repetitions are skipped when time runs out.
fn run_all(runner: &Runner, steps: &[Step], size: Size, began: Instant, data: &mut Data) {
    let bar = Bar::new("experiments", steps.len() as u64);
    let budget = BUDGET.iter().find(|(of, _)| *of == size).map(|(_, budget)| *budget);
    let mut skipped = 0;
    // Measured and expected seconds of the runs so far.
    let (mut took, mut expected) = (0.0_f64, 0.0_f64);
    for (at, step) in steps.iter().enumerate() {
        let pace = if expected > 0.0 { took / expected } else { 1.0 };
        let firsts: f64 = steps[at..].iter().filter(|s| s.repeat == 0).map(|s| s.cost).sum();
        let left = Duration::from_secs_f64(plan::cost(&steps[at..]) * pace);
        bar.say(format!("{} left, {}", units::time(left.as_secs_f64()), step.experiment));
        let needed = Duration::from_secs_f64((firsts + step.cost) * pace);
        if step.repeat > 0 && budget.is_some_and(|budget| began.elapsed() + needed > budget) {
            skipped += 1;
            bar.set(at as u64 + 1);
            continue;
        }
        let start = Instant::now();
        let outcome = runner.run(&step.words);
        if matches!(outcome, Outcome::Done(_)) {
            took += start.elapsed().as_secs_f64();
            expected += step.cost;
        }
        if let Outcome::Failed(why) = &outcome {
            bar.note(&format!("failed: hyades {}: {why}", step.words.join(" ")));
        }
        data.add(&step.words, outcome);
        bar.set(at as u64 + 1);
    }
    let skipped = match skipped {
        0 => String::new(),
        n => format!(", {n} repetitions skipped for lack of time"),
    };
    bar.finish(&format!(
        "{} runs in {}{skipped}",
        steps.len(),
        units::time(began.elapsed().as_secs_f64())
    ));
}

#[cfg(test)]
mod tests;
