use super::*;
use crate::data::{Data, Outcome, View};
use crate::scale::{Setup, Size};
use serde_json::json;

fn all(size: Size) -> Vec<Experiment> {
    let setup = Setup::typical(size);
    experiments(&Table::of(&setup))
}

fn value<'r>(run: &'r Run, option: &str) -> Option<&'r str> {
    let at = run.words.iter().position(|word| word == option)?;
    run.words.get(at + 1).map(String::as_str)
}

/// The simulated devices have the throttled devices' constants, from a single place.
#[test]
fn devices_are_the_papers() {
    for (id, machine) in [
        ("simulated-nvme", NVME),
        ("simulated-recovery", NVME),
        ("simulated-hdd", HDD),
        ("simulated-poplar", SSD),
    ] {
        let all = all(Size::FULL);
        let experiment = all.iter().find(|experiment| experiment.id == id).unwrap();
        for run in &experiment.runs {
            let bandwidth = format!("{}MB", machine.bandwidth / 1e6);
            assert_eq!(value(run, "--latency"), Some(machine.latency), "{id}");
            assert_eq!(value(run, "--bandwidth"), Some(&bandwidth[..]), "{id}");
            assert_eq!(value(run, "--devices"), Some(&machine.devices.to_string()[..]), "{id}");
        }
    }
}

#[test]
fn silo_r_is_simulated_with_the_epochs_of_each_paper() {
    let all: Vec<Experiment> = all(Size::QUICK).into_iter().chain(all(Size::FULL)).collect();
    for (id, epoch) in [
        ("simulated-nvme", "40ms"),
        ("simulated-hdd", "40ms"),
        ("simulated-recovery", "40ms"),
        ("simulated-poplar", "50ms"),
    ] {
        let named = all.iter().filter(|experiment| experiment.id == id);
        let runs =
            named.flat_map(|experiment| &experiment.runs).filter(|run| run.series == "Silo-R");
        let runs: Vec<&Run> = runs.collect();
        assert!(runs.len() > 2, "{id}");
        for run in runs {
            assert_eq!(value(run, "--epoch"), Some(epoch), "{id}");
            // Whole epochs are measured.
            let seconds: f64 = value(run, "--seconds").unwrap().parse().unwrap();
            let epochs = seconds * 1e3 / epoch.trim_end_matches("ms").parse::<f64>().unwrap();
            assert!((epochs - epochs.round()).abs() < 1e-9 && epochs > 0.9, "{id}: {epochs}");
        }
    }
}

/// Results of a seed for each factor, with the first series larger by the factor.
fn data(experiment: &Experiment, factors: &[f64]) -> Data {
    let mut data = Data::default();
    for factor in factors {
        for run in &experiment.runs {
            let rate = if run.series == "Taurus data" { 9.9 * factor } else { 1.0 };
            data.add(&run.words, Outcome::Done(json!({"acknowledged_per_s": rate * 1e6})));
        }
    }
    data
}

/// A single run is not made into several: an interval comes from runs with different seeds.
#[test]
fn an_interval_is_that_of_the_seeds() {
    let experiment = all(Size::QUICK).swap_remove(0);
    let first = |factors: &[f64]| {
        let data = data(&experiment, factors);
        let view = View { experiment: &experiment, data: &data };
        experiment.checks[0].look(&view).unwrap()
    };
    let one = first(&[1.0]);
    assert!(one.text.contains("(one seed)"), "{}", one.text);
    let several = first(&[0.9, 1.0, 1.0, 1.1, 1.0]);
    assert!(several.text.contains("5 seeds"), "{}", several.text);
    assert!(several.text.starts_with("Simulated"), "{}", several.text);
}

#[test]
fn what_gives_way_first_is_named_at_each_number_of_cores() {
    let experiment = all(Size::FULL).into_iter().find(|e| e.id == "simulated-recovery").unwrap();
    let mut data = Data::default();
    for run in &experiment.runs {
        let saturated = run.x > 40.0;
        let first = json!({"resource": if saturated { "a line" } else { "a lock" },
            "utilisation": run.x / 100.0, "is_saturated": saturated});
        data.add(&run.words, Outcome::Done(json!({"recovery": {"usage": {"first": first}}})));
    }
    let view = View { experiment: &experiment, data: &data };
    let found: Vec<_> = experiment.checks.iter().filter_map(|check| check.look(&view)).collect();
    let command = found.iter().find(|found| found.text.contains("Taurus command")).unwrap();
    for words in ["at 16: a lock, used 16 %, so nothing is saturated", "at 80: a line, used 80 %"] {
        assert!(command.text.contains(words), "{}", command.text);
    }
    assert!(!command.text.contains("at 1:"), "{}", command.text);
}

/// The model was compared with no machine of the papers' size: it supports no claim.
#[test]
fn no_simulated_ratio_is_judged() {
    for experiment in all(Size::FULL) {
        assert!(experiment.checks.iter().all(|check| !check.is_judged()), "{}", experiment.id);
        let data = data(&experiment, &[1.0, 1.0, 1.0]);
        let view = View { experiment: &experiment, data: &data };
        for check in &experiment.checks {
            let finding = check.look(&view);
            assert_eq!(check.basis(&view, finding.as_ref()), Basis::Simulated);
        }
    }
}

#[test]
fn every_run_is_a_simulation_and_says_so() {
    for experiment in all(Size::FULL).iter().chain(&all(Size::QUICK)) {
        assert!(experiment.runs.iter().all(|run| run.words[0] == "simulate"), "{}", experiment.id);
        assert!(experiment.how.starts_with("Simulated"), "{}", experiment.id);
        assert!(!experiment.differs.is_empty() && !experiment.checks.is_empty());
    }
}
