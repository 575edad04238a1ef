//! How far the model is off for the schemes of a simulated finding.

use crate::experiment::{Experiment, Run};
use serde_json::Value;

/// The word after an option of a run.
fn option<'r>(run: &'r Run, name: &str) -> Option<&'r str> {
    let at = run.words.iter().position(|word| word == name)?;
    run.words.get(at + 1).map(String::as_str)
}

/// The model's rate over the measured rate, minus one, at the points to which the model was not
/// fitted: the lowest and the highest of each scheme named in the finding. Recoveries are compared
/// where the experiment recovers, else runs. `None` if nothing was compared.
pub(super) fn residual(
    experiment: &Experiment,
    text: &str,
    calibration: Option<&Value>,
) -> Option<String> {
    let points = calibration?.get("validation")?.as_array()?;
    let recovers = experiment.runs.iter().any(|run| run.words.iter().any(|w| w == "--recover"));
    let mut named: Vec<(&str, String)> = Vec::new();
    for run in experiment.runs.iter().filter(|run| text.contains(&run.series)) {
        let scheme = match (option(run, "--protocol")?, option(run, "--record")) {
            (protocol, Some(record)) => format!("{protocol} {record},"),
            (_, None) => continue,
        };
        if named.iter().all(|(series, _)| *series != run.series) {
            named.push((&run.series, scheme));
        }
    }
    let each = named.iter().filter_map(|(series, scheme)| {
        let own = points.iter().filter_map(|point| {
            let name = point.get("point")?.as_str()?;
            let counts = name.starts_with(scheme.as_str()) && name.contains("recovery") == recovers;
            point.get("residual")?.as_f64().filter(|_| counts)
        });
        let own: Vec<f64> = own.map(|residual| 100.0 * residual).collect();
        let low = own.iter().copied().reduce(f64::min)?;
        let high = own.iter().copied().reduce(f64::max)?;
        Some(match own.len() {
            1 => format!("{series} {low:+.0} %"),
            n => format!("{series} {low:+.0} % to {high:+.0} % ({n} runs)"),
        })
    });
    let each: Vec<String> = each.collect();
    let what = if recovers { "1 and 2 threads" } else { "at most 2 workers" };
    (!each.is_empty()).then(|| format!("model over machine, {what}: {}", each.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(series: &str, words: &str) -> Run {
        Run {
            group: "YCSB",
            series: series.to_string(),
            x: 1.0,
            words: words.split_whitespace().map(str::to_string).collect(),
            cost: 0.0,
        }
    }

    #[test]
    fn the_residuals_are_those_of_the_schemes_named() {
        let calibration = json!({"validation": [
            {"point": "taurus command, 2 workers: recovery by 2 threads", "residual": -0.21},
            {"point": "taurus command, 2 workers: recovery by 1 thread", "residual": 0.04},
            {"point": "taurus command, 2 workers", "residual": 0.5},
            {"point": "taurus data, 2 workers: recovery by 2 threads", "residual": 0.6},
            {"point": "serial command, 2 workers: recovery by 1 thread", "residual": 0.02}]});
        let residual_of = |recover: &str| {
            let words = |scheme: &str| format!("simulate --protocol {scheme} {recover}");
            let experiment = Experiment::example(vec![
                run("Taurus command", &words("taurus --record command")),
                run("Serial command", &words("serial --record command")),
                run("Taurus data", &words("taurus --record data")),
            ]);
            let text = "Taurus command is at most 2 times Serial command";
            residual(&experiment, text, Some(&calibration))
        };
        assert_eq!(
            residual_of("--recover").unwrap(),
            "model over machine, 1 and 2 threads: Taurus command -21 % to +4 % (2 runs), Serial \
             command +2 %"
        );
        assert_eq!(
            residual_of("").unwrap(),
            "model over machine, at most 2 workers: Taurus command +50 %"
        );
        let experiment = Experiment::example(Vec::new());
        assert_eq!(residual(&experiment, "Taurus command", Some(&calibration)), None);
        assert_eq!(residual(&experiment, "Taurus command", None), None);
    }
}
