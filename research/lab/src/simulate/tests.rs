use super::calibration::{Conditions, FITTED, HELD_OUT, held_out};
use super::*;
use crate::{Arguments, Command};
use clap::Parser;
use hyades_scaling::costs::SCHEMES;

fn parse(words: &str) -> Command {
    let all = format!("hyades-lab {words} --json");
    Arguments::try_parse_from(all.split_whitespace()).unwrap().command
}

fn simulated(words: &str) -> SimulateOptions {
    match parse(&format!("simulate {words}")) {
        Command::Simulate(options) => options,
        _ => panic!("{words} is another command"),
    }
}

fn refused(words: &str) -> String {
    match simulate(&simulated(words)) {
        Err(Failure::Usage(why)) => why,
        _ => panic!("{words} is not refused"),
    }
}

/// The costs are fitted to a worker or two at the skews of `FITTED`, with the log in memory.
#[test]
fn no_point_that_was_fitted_is_held_out() {
    assert!(HELD_OUT.iter().all(|theta| !FITTED.contains(theta)));
    for conditions in held_out() {
        assert!(conditions.is_throttled || !FITTED.contains(&conditions.theta), "{conditions:?}");
    }
    let skews = held_out()
        .iter()
        .map(|conditions| conditions.theta)
        .filter(|theta| HELD_OUT.contains(theta))
        .count();
    assert_eq!(
        (skews, held_out().iter().filter(|conditions| conditions.is_throttled).count()),
        (2, 1)
    );
}

#[test]
fn the_runs_of_a_calibration_are_what_the_program_takes() {
    let fitted = FITTED.map(|theta| Conditions::memory(1, theta));
    for scheme in SCHEMES.into_iter().chain([("none", "data")]) {
        for conditions in held_out().into_iter().chain(fitted.clone()) {
            let words = format!("bench ycsb --rows 1000 {}", conditions.words(scheme));
            let Command::Bench(bench) = parse(&words) else { panic!("{words}") };
            if let Err(Failure::Usage(why) | Failure::Failed(why)) = bench.settings() {
                panic!("{words}: {why}");
            }
            assert_eq!(conditions.machine(1000, 0.1).check(), Ok(()));
        }
    }
}

#[test]
fn the_modelled_machine_is_the_measured_one() {
    for conditions in held_out() {
        let machine = conditions.machine(1000, 0.1);
        let words = conditions.words(("taurus", "data"));
        assert!(words.contains(&format!("--workers {}", machine.workers)));
        assert!(words.contains(&format!("--theta {}", machine.theta)));
        assert!(words.contains(&format!("--streams {}", machine.streams)));
        if conditions.is_throttled {
            let megabytes = machine.bandwidth / 1e6;
            assert!(words.contains(&format!("bandwidth={megabytes}MB/s")), "{words}");
            assert!(words.contains(&format!("latency={}ms", machine.latency * 1e3)), "{words}");
            assert!(words.contains(&format!("--devices {}", machine.devices)), "{words}");
            assert!(words.contains(&format!("--buffer {}", machine.buffer)), "{words}");
        }
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_before_anything_is_measured() {
    for (words, why) in [
        ("--bandwidth 0", "the bandwidth of a device must be above 0"),
        ("--rows 1", "1 rows are not simulated"),
        ("--theta 11", "the Zipf exponent must be 0 to 10"),
        ("--depth 0", "serves at a time: 0"),
        ("--protocol dora", "no protocol \"dora\""),
        ("--protocol gsn --record command", "choose --record data"),
    ] {
        let said = refused(words);
        assert!(said.contains(why), "{words}: {said}");
    }
}
