//! Fits the model's costs to measured runs at one and two workers.

use super::calibration::{Conditions, FITTED, Point, Scheme};
use hyades_scaling::costs::{ACCESSES, Costs, SchemeCosts, SharingCosts, miss_share, scheme};
use hyades_scaling::machine::Machine;
use hyades_scaling::rules::Protocol;
use hyades_scaling::{forward, replay};
use std::collections::BTreeMap;

/// The costs so far, and the runs of the fit.
pub(super) struct Fitted {
    pub costs: Costs,
    /// The runs, with the transactions per second.
    pub measured: Vec<(Scheme, Conditions, f64)>,
    /// The recoveries after runs of the fit, with the records per second.
    pub replayed: Vec<(Scheme, Conditions, f64)>,
}

impl Fitted {
    pub fn new(rows: u32, line_ns: f64) -> Fitted {
        let costs = Costs {
            none_ns: 0.0,
            slowdown: 1.0,
            line_ns,
            theta: FITTED[0],
            rows,
            miss_ns: 0.0,
            row_ns: 0.0,
            sharing: SharingCosts::default(),
            schemes: BTreeMap::new(),
        };
        Fitted { costs, measured: Vec::new(), replayed: Vec::new() }
    }

    /// The measured rate without a log.
    fn of(&self, workers: usize, theta: f64) -> f64 {
        let wanted = Conditions::memory(workers, theta);
        let found =
            self.measured.iter().find(|(scheme, at, _)| scheme.0 == "none" && *at == wanted);
        found.map_or(f64::NAN, |(.., rate)| *rate)
    }

    /// The runs beside the model.
    pub fn points(&self) -> Vec<Point> {
        let point = |(scheme, conditions, measured): &(Scheme, Conditions, f64)| {
            let model = model(&self.costs, *scheme, conditions)?;
            Some(Point::new(conditions.name(*scheme), *measured, model))
        };
        let recovery = |(scheme, conditions, measured): &(Scheme, Conditions, f64)| {
            let model = replay_model(&self.costs, *scheme, conditions)?;
            Some(Point::new(conditions.recovery_name(*scheme), *measured, model))
        };
        let recoveries = self.replayed.iter().filter_map(recovery);
        self.measured.iter().filter_map(point).chain(recoveries).collect()
    }
}

/// Transactions per second in the model.
fn model(costs: &Costs, scheme: Scheme, conditions: &Conditions) -> Option<f64> {
    let protocol = Protocol::from_word(scheme.0)?;
    let machine = conditions.machine(costs.rows, 0.0);
    let ran = forward::run(costs, protocol, scheme, &machine).ok()?;
    Some(ran.acknowledged as f64 / ran.seconds)
}

/// Replayed records per second in the model.
fn replay_model(costs: &Costs, scheme: Scheme, conditions: &Conditions) -> Option<f64> {
    let protocol = Protocol::from_word(scheme.0)?;
    let machine = conditions.machine(costs.rows, 0.0);
    let ran = forward::run(costs, protocol, scheme, &machine).ok()?;
    let machine = Machine { workers: conditions.recovery_threads?, ..machine };
    Some(replay::replay(costs, protocol, scheme, &machine, &ran)?.records_per_s)
}

/// Finds the cost within limits at which the model has the measured time for each transaction: the
/// time is nearly linear in every cost.
fn solve(measured: f64, limits: (f64, f64), model: impl Fn(f64) -> Option<f64>) -> Option<f64> {
    let time = |cost: f64| Some(1.0 / model(cost)?);
    let wanted = 1.0 / measured;
    let (mut low, mut high) = limits;
    if time(low)? >= wanted {
        return Some(low);
    }
    if time(high)? <= wanted {
        return Some(high);
    }
    let (mut below, mut above) = (time(low)?, time(high)?);
    for _ in 0..8 {
        let guess = low + (high - low) * (wanted - below) / (above - below);
        let found = time(guess)?;
        if (found / wanted - 1.0).abs() < 0.002 {
            return Some(guess);
        }
        if found < wanted { (low, below) = (guess, found) } else { (high, above) = (guess, found) }
    }
    Some(low + (high - low) * (wanted - below) / (above - below))
}

/// The limits of a slowdown, and of the time to move a row to another core.
const SLOWDOWNS: (f64, f64) = (0.5, 16.0);
const ROWS_NS: (f64, f64) = (0.0, 5_000.0);

/// Fits the costs independent of the log: the work, the cost of a miss and of a moved row, and how
/// much two workers slow each other down.
pub(super) fn without_log(fitted: &mut Fitted) {
    const NONE: Scheme = ("none", "data");
    let [usual, skewed] = FITTED;
    let [slower, faster] = FITTED.map(|theta| 1e9 / fitted.of(1, theta));
    let rows = fitted.costs.rows;
    let misses = ACCESSES as f64 * (miss_share(rows, usual) - miss_share(rows, skewed));
    fitted.costs.none_ns = slower;
    fitted.costs.miss_ns = ((slower - faster) / misses.max(0.01)).max(0.0);
    let (both, moved) = (fitted.of(2, usual), fitted.of(2, skewed));
    // The two costs depend a little on each other.
    for _ in 0..2 {
        let slowed = |slowdown| Costs { slowdown, ..fitted.costs.clone() };
        let rate = |slowdown| model(&slowed(slowdown), NONE, &Conditions::memory(2, usual));
        fitted.costs.slowdown = solve(both, SLOWDOWNS, rate).unwrap_or(1.0);
        let moving = |row_ns| Costs { row_ns, ..fitted.costs.clone() };
        let rate = |row_ns| model(&moving(row_ns), NONE, &Conditions::memory(2, skewed));
        fitted.costs.row_ns = solve(moved, ROWS_NS, rate).unwrap_or(0.0);
    }
}

/// Adds a scheme with the costs at one worker, and fits the slowdown to a run of two workers.
pub(super) fn with_log(
    fitted: &mut Fitted,
    logging: Scheme,
    costs: SchemeCosts,
    both: Option<(Conditions, f64)>,
) {
    let name = scheme(logging.0, logging.1);
    let trial = fitted.costs.clone();
    let slowed = |slowdown| {
        let own = SchemeCosts { slowdown: Some(slowdown), ..costs };
        Costs { schemes: BTreeMap::from([(name.clone(), own)]), ..trial.clone() }
    };
    let slowdown = both.as_ref().and_then(|(conditions, measured)| {
        solve(*measured, SLOWDOWNS, |slowdown| model(&slowed(slowdown), logging, conditions))
    });
    fitted.costs.schemes.insert(name, SchemeCosts { slowdown, ..costs });
    fitted.measured.extend(both.map(|(conditions, measured)| (logging, conditions, measured)));
}

/// Fits the slowdown of a scheme's replay to a recovery by two threads: what the costs of sharing
/// do not explain.
pub(super) fn replay(fitted: &mut Fitted, scheme: Scheme, both: Conditions, measured: f64) {
    let name = hyades_scaling::costs::scheme(scheme.0, scheme.1);
    let slowed = |slowdown| {
        let mut costs = fitted.costs.clone();
        if let Some(own) = costs.schemes.get_mut(&name) {
            own.replay.slowdown = Some(slowdown);
        }
        costs
    };
    let model = |slowdown| replay_model(&slowed(slowdown), scheme, &both);
    // A log of a single stream of commands is replayed by one thread whatever the machine has.
    let slowdown = match scheme {
        ("serial", "command") => None,
        _ => solve(measured, SLOWDOWNS, model),
    };
    if let Some(own) = fitted.costs.schemes.get_mut(&name) {
        own.replay.slowdown = slowdown;
    }
    fitted.replayed.push((scheme, both, measured));
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades_scaling::costs::ReplayParts;

    #[test]
    fn a_cost_is_found_within_its_limits() {
        let model = |cost: f64| Some(1e9 / (100.0 + 40.0 * cost));
        let found = solve(1e9 / 300.0, (0.0, 16.0), model).unwrap();
        assert!((found - 5.0).abs() < 0.05, "{found}");
        assert_eq!(solve(1e9 / 50.0, (0.0, 16.0), model), Some(0.0));
        assert_eq!(solve(1e9 / 5_000.0, (0.0, 16.0), model), Some(16.0));
    }

    /// Rates of the model itself with known costs lead back to the known costs.
    #[test]
    fn the_fit_recovers_the_costs_of_a_model() {
        let mut truth = Fitted::new(10_000, 40.0).costs;
        (truth.none_ns, truth.slowdown, truth.miss_ns, truth.row_ns) = (900.0, 1.3, 80.0, 150.0);
        let own = SchemeCosts {
            worker_ns: 1_200.0,
            bytes: 900.0,
            replay_ns: Some(1_000.0),
            slowdown: Some(1.5),
            replay: ReplayParts { slowdown: Some(1.4), decode_ns: 80.0, ..ReplayParts::default() },
        };
        truth.schemes.insert("taurus data".to_string(), own);
        let rate = |scheme, conditions: &Conditions| model(&truth, scheme, conditions).unwrap();
        let mut fitted = Fitted::new(10_000, 40.0);
        for theta in FITTED {
            for workers in [1, 2] {
                let conditions = Conditions::memory(workers, theta);
                let measured = rate(("none", "data"), &conditions);
                fitted.measured.push((("none", "data"), conditions, measured));
            }
        }
        without_log(&mut fitted);
        let both = Conditions::memory(2, FITTED[0]);
        let measured = rate(("taurus", "data"), &both);
        let unfitted = ReplayParts { slowdown: None, ..own.replay };
        let alone = SchemeCosts { slowdown: None, replay: unfitted, ..own };
        let recovered = Conditions { recovery_threads: Some(2), ..both.clone() };
        let records = replay_model(&truth, ("taurus", "data"), &recovered).unwrap();
        with_log(&mut fitted, ("taurus", "data"), alone, Some((both, measured)));
        replay(&mut fitted, ("taurus", "data"), recovered, records);
        let Costs { none_ns, slowdown, miss_ns, row_ns, .. } = fitted.costs;
        let own = fitted.costs.schemes["taurus data"];
        let (scheme, replay) = (own.slowdown.unwrap(), own.replay.slowdown.unwrap());
        for (name, found, truth, within) in [
            ("none", none_ns, 900.0, 10.0),
            ("slowdown", slowdown, 1.3, 0.05),
            ("miss", miss_ns, 80.0, 15.0),
            ("row", row_ns, 150.0, 30.0),
            ("scheme's slowdown", scheme, 1.5, 0.05),
            ("replay's slowdown", replay, 1.4, 0.05),
        ] {
            assert!((found - truth).abs() < within, "{name}: {found} for {truth}");
        }
        assert_eq!(fitted.points().len(), 6);
        let worst = fitted.points().iter().map(|p| p.residual.abs()).fold(0.0, f64::max);
        assert!(worst < 0.03, "{worst}");
    }
}
