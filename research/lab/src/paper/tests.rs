use super::*;
use crate::bench::options::Bench;
use crate::{Arguments, Command};
use clap::Parser;
use std::collections::BTreeSet;

fn tables() -> Vec<Experiment> {
    let mut all = table::all(&Setup::typical(Size::FULL));
    all.extend(table::all(&Setup::typical(Size::QUICK)));
    let axes = Axes {
        log_dirs: ["/nowhere/a", "/nowhere/b"].map(str::to_string).into(),
        workers: Some(8),
        ..Axes::default()
    };
    all.extend(table::all(&Setup { axes, ..Setup::typical(Size::FULL) }));
    all
}

#[test]
fn commands_are_what_the_program_takes() {
    for experiment in tables() {
        for run in &experiment.runs {
            let words = std::iter::once("hyades-lab".to_string()).chain(run.words.clone());
            let parsed = Arguments::try_parse_from(words.chain(["--json".to_string()]));
            let text = run.words.join(" ");
            match parsed.map(|arguments| arguments.command) {
                Ok(Command::Bench(bench)) if matches!(*bench, Bench::Vectors(_)) => {}
                Ok(Command::Bench(bench)) => {
                    if let Err(Failure::Usage(why) | Failure::Failed(why)) = bench.settings() {
                        panic!("{}: {text}: {why}", experiment.id);
                    }
                }
                Ok(Command::Simulate(_)) => assert!(text.starts_with("simulate"), "{text}"),
                Ok(_) => panic!("{}: {text} is neither", experiment.id),
                Err(error) => panic!("{}: {text}: {error}", experiment.id),
            }
        }
    }
}

#[test]
fn options_become_the_setup() {
    let parse = |words: &str| {
        let all = format!("hyades-lab bench paper {words}");
        let parsed = Arguments::try_parse_from(all.split_whitespace());
        match parsed.map(|arguments| arguments.command) {
            Ok(Command::Bench(bench)) => match *bench {
                Bench::Paper(options) => Ok(options),
                _ => panic!("{words} is another command"),
            },
            Ok(_) => panic!("{words} is another command"),
            Err(error) => Err(error.to_string()),
        }
    };
    let words = "--out o --rows 5000 --warehouses 9 --workers 7 --concurrency tictoc --rounds 3 \
                 --budget 2m --ghz 3.5 --log-dir /a --log-dir /b";
    let Ok(setup) = parse(words).unwrap().setup() else { panic!("it is sound") };
    assert_eq!((setup.size.rows, setup.size.warehouses, setup.size.rounds), (5_000, 9, 3));
    assert_eq!((setup.size.budget, setup.processors.ghz), (120.0, 3.5));
    assert_eq!(setup.axes.log_dirs, ["/a", "/b"]);
    assert_eq!((setup.axes.workers, setup.axes.concurrency.as_deref()), (Some(7), Some("tictoc")));
    for (wrong, why) in [
        ("", "--out"),
        ("--from r.json", "--out"),
        ("--from r.json --docs d --rows 5000", "cannot be used"),
        ("--out o --workers 0", "--workers"),
        ("--out o --concurrency none", "--concurrency"),
    ] {
        let error = parse(wrong).expect_err(wrong);
        assert!(error.contains(why), "{wrong}: {error}");
    }
    assert!(parse("--from r.json --docs d").is_ok());
    assert!(parse("--from r.json --out o").is_ok());
    assert!(parse("--from r.json --docs d --only 2020-anchors").is_ok());
}

#[test]
fn an_unknown_experiment_is_refused_with_those_there_are() {
    let error = choose(tables(), &["figure-7".to_string()]).err();
    let Some(Failure::Usage(text)) = error else { panic!("expected wrong usage") };
    assert!(text.contains("2020-hdd-logging"), "{text}");
}

#[test]
fn a_run_whose_check_does_not_hold_is_wrong() {
    let done = |json: &str| Outcome::Done(serde_json::from_str(json).unwrap());
    assert!(is_wrong(&done(r#"{"replicated": {"state_matches": false}}"#)));
    assert!(is_wrong(&done(r#"{"recovery": {"state_matches": false}}"#)));
    assert!(is_wrong(&Outcome::Failed("it".to_string())));
    assert!(!is_wrong(&Outcome::Unavailable("it".to_string())));
    assert!(!is_wrong(&done(r#"{"replicated": {"state_matches": true}}"#)));
}

#[test]
fn ids_are_distinct() {
    let all = table::all(&Setup::typical(Size::QUICK));
    let ids: BTreeSet<&str> = all.iter().map(|experiment| experiment.id).collect();
    assert_eq!(ids.len(), all.len());
}
