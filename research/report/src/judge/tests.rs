use super::*;
use crate::data::{Data, Outcome};
use crate::experiment::{Experiment, Run};
use serde_json::json;

fn found(level: Level) -> Option<Finding> {
    Some(Finding { text: String::new(), level })
}

fn of(findings: &[Option<Finding>], simulated: bool) -> Verdict {
    let tested = findings.iter().map(|finding| (Basis::Tested, finding.clone()));
    verdict(&tested.collect::<Vec<_>>(), simulated)
}

fn spread(low: f64, high: f64) -> Spread {
    Spread { low, median: (low * high).sqrt(), high, count: 5, dropped: 0 }
}

#[test]
fn what_was_not_tested_does_not_count() {
    let (yes, no) = (found(Level::Holds), found(Level::Fails));
    let both = |basis| verdict(&[(Basis::Tested, no.clone()), (basis, yes.clone())], false);
    assert_eq!(both(Basis::Tested), Verdict::InPart(1, 2));
    for basis in [Basis::Expected, Basis::Context, Basis::Throttle, Basis::Construction] {
        assert_eq!(both(basis), Verdict::DoesNotHold);
        assert_eq!(verdict(&[(basis, yes.clone())], false), Verdict::NotTested);
        assert_eq!(verdict(&[(basis, None)], false), Verdict::NotMeasured);
    }
}

#[test]
fn our_expectations_are_counted_by_themselves() {
    let (yes, no) = (found(Level::Holds), found(Level::Fails));
    let own = |finding: &Option<Finding>| (Basis::Expected, finding.clone());
    let claim = (Basis::Tested, yes.clone());
    assert_eq!(expectations(std::slice::from_ref(&claim)), None);
    assert_eq!(expectations(&[claim.clone(), own(&yes), own(&no), own(&None)]), Some((1, 3)));
    assert_eq!(Basis::Expected.level(Level::Fails), "own expectation: does not hold");
    assert_eq!(Basis::Construction.level(Level::Holds), "follows from the set-up");
}

/// A claim of a factor of 8 stands for 6.667 to 9.6.
#[test]
fn a_factor_holds_if_all_of_the_interval_is_within_a_fifth() {
    for (low, high, level) in [
        (8.0 / 1.2, 9.6, Level::Holds),
        (7.0, 8.5, Level::Holds),
        (6.66, 9.6, Level::Undecided),
        (8.0 / 1.2, 9.61, Level::Undecided),
        // Under an earlier rule, meeting the band was enough.
        (5.0, 6.7, Level::Undecided),
        (9.5, 12.0, Level::Undecided),
        (0.9, 9.0, Level::Undecided),
        (4.0, 9.0, Level::Undecided),
        (9.61, 12.0, Level::Exceeds),
        (20.0, 50.0, Level::Exceeds),
        (0.9, 6.0, Level::Fails),
        (1.0, 6.0, Level::Fails),
        (0.3, 0.5, Level::Fails),
    ] {
        assert_eq!(of_factor(&spread(low, high), 8.0), level, "{low} to {high}");
    }
    for (low, high, level) in [
        (7.0, 8.5, Level::Holds),
        (5.0, 6.7, Level::Undecided),
        (10.0, 12.0, Level::Exceeds),
        (0.9, 6.0, Level::Fails),
    ] {
        // The same claim for the inverse ratio.
        let inverse = spread(low, high).inverse();
        assert_eq!(of_factor(&inverse, 1.0 / 8.0), level, "1 / {low} to {high}");
    }
    let Level::InPart(share) = of_factor(&spread(2.7, 2.963), 8.0) else { panic!() };
    assert!((share - 0.5).abs() < 1e-3, "{share}");
    assert_eq!(Level::InPart(share).words(), "holds in part, 50 %");
    assert!(matches!(of_factor(&spread(1.01, 6.66), 8.0), Level::InPart(_)));
}

/// The band of a small factor does not contain 1, or no difference would be a difference.
#[test]
fn no_difference_is_no_factor() {
    assert_eq!(of_factor(&spread(0.99, 1.02), 1.19), Level::Fails);
    assert_eq!(of_factor(&spread(1.0, 1.2), 1.19), Level::Undecided);
    assert_eq!(of_factor(&spread(1.05, 1.42), 1.19), Level::Holds);
    assert!(matches!(of_factor(&spread(1.01, 1.04), 1.19), Level::InPart(_)));
    // A hundredth is no difference: the claim is equality.
    assert_eq!(of_factor(&spread(0.9, 1.1), 1.01), Level::Holds);
    assert_eq!(of_factor(&spread(1.06, 1.24), 1.01), Level::Undecided);
    assert_eq!(of_factor(&spread(0.9, 1.1), 1.0), Level::Holds);
    assert_eq!(of_factor(&spread(1.3, 1.4), 1.0 / 1.01), Level::Fails);
}

/// Intervals at or near the band that once held as `about 1`.
#[test]
fn noise_helps_no_claim_of_equality() {
    let measured = |low, median, high| of_same(&Spread { low, median, high, count: 4, dropped: 0 });
    assert_eq!(measured(0.602, 0.699, 0.942), Level::Undecided);
    assert_eq!(measured(1.05, 1.32, 1.45), Level::Undecided);
    assert_eq!(measured(1.0, 1.17, 1.36), Level::Undecided);
    assert_eq!(measured(1.26, 1.32, 1.4), Level::Fails);
    assert_eq!(measured(0.71, 0.73, 0.752), Level::Fails);
    assert_eq!(measured(0.939, 0.954, 0.981), Level::Holds);
    assert_eq!(measured(1.0 / 1.2, 1.0, 1.2), Level::Holds);
    assert_eq!(measured(0.833, 1.0, 1.2), Level::Undecided);
    assert_eq!(measured(1.0 / 1.2, 1.0, 1.201), Level::Undecided);
}

#[test]
fn one_run_decides_nothing() {
    for value in [0.1, 8.0, 100.0] {
        assert_eq!(of_factor(&Spread::one(value), 8.0), Level::Undecided);
        assert_eq!(of_same(&Spread::one(value)), Level::Undecided);
        assert_eq!(of_band(&Spread::one(value), 0.0, 8.0), Level::Undecided);
        assert_eq!(of_cost(&Spread::one(value), 8.0), Level::Undecided);
        assert_eq!(of_fall(&Spread::one(value)), Level::Undecided);
    }
    // Two runs that agree are enough.
    let two = Spread { count: 2, ..Spread::one(8.0) };
    assert_eq!(of_factor(&two, 8.0), Level::Holds);
}

#[test]
fn limits_hold_up_to_the_bound_itself() {
    let least = |low, high| of_band(&spread(low, high), 1.0, f64::INFINITY);
    assert_eq!(least(1.0, 9.0), Level::Holds);
    assert_eq!(least(0.999, 9.0), Level::Undecided);
    // A scheme slower in the median is not `at least as fast`.
    assert_eq!(least(0.803, 1.15), Level::Undecided);
    assert_eq!(least(0.8, 0.999), Level::Fails);
    let most = |low, high| of_band(&spread(low, high), 0.0, 1.3);
    assert_eq!(most(0.9, 1.3), Level::Holds);
    assert_eq!(most(0.9, 1.301), Level::Undecided);
    assert_eq!(most(1.301, 1.4), Level::Fails);
    assert_eq!(of_band(&Spread { count: 4, ..Spread::one(0.0) }, 0.0, 0.0), Level::Holds);
    assert_eq!(of_limit(&spread(0.1, 2.4), 2.0), Level::Holds);
    assert_eq!(of_limit(&spread(0.1, 2.41), 2.0), Level::Undecided);
    assert_eq!(of_limit(&spread(2.41, 3.0), 2.0), Level::Fails);
}

#[test]
fn costs_have_a_band_and_less_exceeds_it() {
    assert_eq!(of_cost(&spread(210.0, 302.4), 252.0), Level::Holds);
    assert_eq!(of_cost(&spread(209.0, 250.0), 252.0), Level::Undecided);
    assert_eq!(of_cost(&spread(50.0, 209.0), 252.0), Level::Exceeds);
    assert_eq!(of_cost(&spread(250.0, 303.0), 252.0), Level::Undecided);
    assert_eq!(of_cost(&spread(303.0, 600.0), 252.0), Level::Fails);
}

#[test]
fn a_fall_is_a_twentieth_at_least() {
    assert_eq!(of_fall(&spread(0.5, 1.0 / 1.05)), Level::Holds);
    assert_eq!(of_fall(&spread(0.5, 0.953)), Level::Undecided);
    assert_eq!(of_fall(&spread(0.8, 1.2)), Level::Undecided);
    // A fall of a fiftieth is no fall, however often measured.
    assert_eq!(of_fall(&spread(0.971, 0.981)), Level::Fails);
    assert_eq!(of_fall(&spread(0.979, 1.02)), Level::Fails);
    assert_eq!(of_fall(&spread(1.01, 1.2)), Level::Fails);
}

#[test]
fn a_missing_run_keeps_a_claim_from_holding_in_full() {
    let (yes, no) = (found(Level::Holds), found(Level::Fails));
    assert_eq!(of(&[yes.clone(), yes.clone()], false), Verdict::Holds);
    assert_eq!(of(&[yes.clone(), None], false), Verdict::InPart(1, 2));
    assert_eq!(of(&[yes.clone(), no.clone()], false), Verdict::InPart(1, 2));
    assert_eq!(of(&[found(Level::Exceeds)], false), Verdict::InPart(0, 1));
    assert_eq!(of(&[found(Level::Undecided), None], false), Verdict::Undecided);
    assert_eq!(of(&[no.clone(), None], false), Verdict::DoesNotHold);
    assert_eq!(of(&[None, None], false), Verdict::NotMeasured);
    assert_eq!(of(&[], false), Verdict::NotMeasured);
    assert_eq!(of(&[yes], true), Verdict::SimulatedOnly);
}

/// The basis of a ratio between series on `devices` devices and on one. The second series uses the
/// share `one` of the bandwidth.
fn replayed(devices: f64, one: f64, ratio: f64) -> Basis {
    let run = |series: &str| Run {
        group: "YCSB",
        series: series.to_string(),
        x: 1.0,
        words: vec![series.to_string()],
        cost: 0.0,
    };
    let check = Check::new(|_| found(Level::Holds)).claimed("table 1").unless_bound(
        "YCSB",
        Metric::ReplayBandwidth,
        vec![("Parallel", 1.0, devices * 100.0), ("Serial", 1.0, 100.0)],
    );
    let experiment = Experiment::example(vec![run("Parallel"), run("Serial")]);
    let mut data = Data::default();
    for (series, rate) in [("Parallel", one * ratio), ("Serial", one)] {
        let bytes = rate * 100e6;
        let recovery = json!({"seconds": 1.5, "image_seconds": 0.5, "bytes": bytes});
        data.add(&[series.to_string()], Outcome::Done(json!({ "recovery": recovery })));
    }
    check.basis(&View { experiment: &experiment, data: &data }, None)
}

/// Ratios of recovery that held, though the devices' own: 2.05 from two, 4.54 from four. Reading
/// beyond the log keeps the rate below three quarters.
#[test]
fn the_ratio_of_the_devices_is_arithmetic_of_the_throttle() {
    assert_eq!(replayed(2.0, 0.7, 2.05), Basis::Throttle);
    assert_eq!(replayed(4.0, 0.65, 4.54), Basis::Throttle);
    assert_eq!(replayed(2.0, 0.9, 1.7), Basis::Throttle);
    // The devices are not the limit.
    assert_eq!(replayed(4.0, 0.7, 2.0), Basis::Tested);
    assert_eq!(replayed(2.0, 0.4, 2.05), Basis::Tested);
}

#[test]
fn series_are_limited_from_three_quarters_on_or_from_half_if_alike() {
    assert!(are_limited(&[0.75, 1.0]) && !are_limited(&[0.74, 1.0]));
    assert!(are_limited(&[0.5, 0.6]) && !are_limited(&[0.49, 0.5]) && !are_limited(&[0.5, 0.61]));
    // A single series cannot be alike.
    assert!(are_limited(&[0.75]) && !are_limited(&[0.74]));
}

#[test]
fn what_is_not_as_claimed_says_why_and_nothing_else_does() {
    let data = Data::default();
    let experiment = Experiment::example(Vec::new());
    let view = View { experiment: &experiment, data: &data };
    let note = |check: Check, basis, level| {
        let note = check.note(&view, basis, &found(level).unwrap());
        note.map(|note| (note.kind, note.text))
    };
    let says = |kind, text: &str| Some((kind, text.to_string()));
    let check = || Check::new(|_| None);
    let both = || {
        let above = check().above_by(|_| Some("fewer bytes".to_string()));
        above.not_by(|_| Some("two cores".to_string()))
    };
    let (tested, above) = (Basis::Tested, Level::Exceeds);
    assert_eq!(note(both(), tested, above), says(NoteKind::Above, "fewer bytes"));
    assert_eq!(note(check(), tested, above), says(NoteKind::Above, "not examined"));
    let silent = check().above_by(|_| None).not_by(|_| None);
    assert_eq!(note(silent, tested, above), says(NoteKind::Above, "not examined"));
    for level in [Level::Fails, Level::InPart(0.5)] {
        assert_eq!(note(both(), tested, level), says(NoteKind::Not, "two cores"));
        assert_eq!(note(both(), Basis::Expected, level), says(NoteKind::Not, "two cores"));
        assert_eq!(note(check(), tested, level), says(NoteKind::Not, "not examined"));
    }
    for level in [Level::Holds, Level::Undecided] {
        assert_eq!(note(both(), tested, level), None);
    }
    assert_eq!(note(both(), Basis::Throttle, above), None);
}

/// A note on a ratio not limited by devices has each series' share of the devices' limit.
#[test]
fn a_ratio_that_devices_do_not_explain_says_what_they_are_used_for() {
    let run = |series: &str| Run {
        group: "g",
        series: series.to_string(),
        x: 1.0,
        words: vec![series.to_string()],
        cost: 0.0,
    };
    let experiment = Experiment::example(vec![run("fast"), run("slow")]);
    let mut data = Data::default();
    for (series, moved) in [("fast", 20e6), ("slow", 90e6)] {
        let done = serde_json::json!({"device_bytes": moved, "seconds": 1.0});
        data.add(&[series.to_string()], Outcome::Done(done));
    }
    let view = View { experiment: &experiment, data: &data };
    let reason = |most: f64| {
        let series = vec![("fast", 1.0, 100.0), ("slow", 1.0, most)];
        let check = Check::new(|_| None).unless_bound("g", Metric::DeviceRate, series);
        check.note(&view, Basis::Tested, &found(Level::Fails).unwrap()).unwrap().text
    };
    assert_eq!(
        reason(100.0),
        "devices limit slow here: fast moves 20 % of the bytes that its devices allow, slow 90 %"
    );
    let text = reason(1000.0);
    assert!(text.starts_with("devices limit neither here"));
    // A missing limit is no cause.
    assert!(text.ends_with("; not examined"), "{text}");
    let beside = |check: Check| {
        let series = vec![("fast", 1.0, 100.0), ("slow", 1.0, 1000.0)];
        let check = check.unless_bound("g", Metric::DeviceRate, series);
        check.note(&view, Basis::Tested, &found(Level::Fails).unwrap()).unwrap().text
    };
    assert_eq!(beside(Check::new(|_| None).not_by(|_| Some("threads".to_string()))), "threads");
    let apart = beside(Check::new(|_| None).measured_apart());
    assert!(apart.ends_with("a separate measurement of the cause"), "{apart}");
    // A cause shown by the run comes first.
    let shown = Check::new(|_| None).measured_apart().not_by(|_| Some("threads".to_string()));
    assert_eq!(beside(shown), "threads");
}

#[test]
fn all_reasons_are_given_that_figures_show() {
    let data = Data::default();
    let experiment = Experiment::example(Vec::new());
    let view = View { experiment: &experiment, data: &data };
    let says = |text: &'static str| move |_: &View<'_>| Some(text.to_string());
    let check = Check::new(|_| None).not_by(says("a")).not_by(|_| None).not_by(says("b"));
    let note = check.note(&view, Basis::Tested, &found(Level::Fails).unwrap());
    assert_eq!(note.unwrap().text, "a; b");
}

#[test]
fn a_finding_that_is_expected_claims_nothing_of_a_paper() {
    let data = Data::default();
    let experiment = Experiment::example(Vec::new());
    let view = View { experiment: &experiment, data: &data };
    let says = |text: &str, check: Check| {
        check.basis(&view, Some(&Finding { text: text.to_string(), level: Level::Holds }))
    };
    let check = || Check::new(|_| None).claimed("section 5");
    assert_eq!(says("a is 2 times b (paper: 2)", check()), Basis::Tested);
    assert_eq!(says("a is 2 times b (expected: at least 1)", check()), Basis::Expected);
    let context = check().resting_on(Basis::Context);
    assert_eq!(says("a is 2 times b (expected: at least 1)", context), Basis::Context);
}

/// A claim is the paper's only if the check names the place in the paper.
#[test]
fn a_claim_without_a_place_in_a_paper_is_ours() {
    let data = Data::default();
    let experiment = Experiment::example(Vec::new());
    let view = View { experiment: &experiment, data: &data };
    let text = "a is 1 times b (paper: about 1)".to_string();
    let check = || {
        let text = text.clone();
        Check::new(move |_| Some(Finding { text: text.clone(), level: Level::Holds }))
    };
    let own = check();
    let finding = own.look(&view).unwrap();
    assert_eq!(finding.text, "a is 1 times b (expected: about 1)");
    assert_eq!((own.basis(&view, Some(&finding)), own.place()), (Basis::Expected, None));
    let claimed = check().claimed("figure 4");
    let finding = claimed.look(&view).unwrap();
    assert_eq!(finding.text, text);
    assert_eq!(claimed.basis(&view, Some(&finding)), Basis::Tested);
    assert_eq!(claimed.place(), Some("figure 4"));
    // What follows from the set-up is no result.
    let given = |is: bool| check().claimed("figure 4").unless_given(move |_| is);
    assert_eq!(given(true).basis(&view, Some(&finding)), Basis::Construction);
    assert_eq!(given(false).basis(&view, Some(&finding)), Basis::Tested);
    let shown = given(true).resting_on(Basis::Context);
    assert_eq!(shown.basis(&view, Some(&finding)), Basis::Context);
}
