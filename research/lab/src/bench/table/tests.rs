use super::*;
use crate::{Arguments, Command};
use clap::Parser;
use serde_json::json;

fn options(words: &str) -> TableOptions {
    let words = ["hyades-lab", "bench", "table"].into_iter().chain(words.split_whitespace());
    let Ok(Command::Bench(bench)) =
        Arguments::try_parse_from(words).map(|arguments| arguments.command)
    else {
        panic!("no command")
    };
    match *bench {
        crate::bench::options::Bench::Table(options) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_are_what_the_program_takes() {
    for given in ["", "--tiny --seconds 0.1", "--log-dir logs"] {
        for row in rows::tables(&options(given)).unwrap().iter().flat_map(|table| &table.rows) {
            let words = row.command();
            let parsed = Arguments::try_parse_from(words.split(' '));
            match parsed.map(|arguments| arguments.command) {
                Ok(Command::Bench(bench)) => assert!(bench.settings().is_ok(), "{words}"),
                Ok(_) => panic!("{words} is no benchmark"),
                Err(error) => panic!("{words}: {error}"),
            }
        }
    }
}

#[test]
fn tables_restrict_tables_and_protocols_protocols() {
    let chosen = |words: &str| -> Vec<(&str, usize)> {
        let tables = rows::tables(&options(words)).unwrap();
        tables.iter().map(|table| (table.name, table.rows.len())).collect()
    };
    assert_eq!(chosen("--only bank --only taurus --only none"), [("bank", 4)]);
    assert_eq!(chosen("--only silo-r"), [("ycsb", 1), ("tpcc", 1), ("bank", 1), ("latency", 1)]);
    let all = chosen("");
    assert_eq!(
        all.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["ycsb", "tpcc", "bank", "latency"]
    );
    assert_eq!(all[3].1 + 1, all[0].1, "a run without a log has no latency of a log");
    let error = rows::tables(&options("--only voter")).err();
    let Some(Failure::Usage(text)) = error else { panic!("expected wrong usage") };
    assert!(text.contains("latency") && text.contains("silo-r"), "{text}");
}

#[test]
fn medians_and_spreads_stand_beside_their_commands() {
    let given = options("--only bank --only taurus --only none");
    let tables = rows::tables(&given).unwrap();
    let head = Head {
        program: "hyades 1".to_string(),
        machine: "2 cores".to_string(),
        log_device: "ext4 on /dev/vda1".to_string(),
        date: "2026-11-24".to_string(),
        command: command_of(&given),
        seconds: 2.0,
        rounds: 3,
        took: 60.0,
    };
    let mut page = Page { head, tables: &tables, data: Data::default() };
    for rate in [2e6, 1e6, 3e6] {
        for row in &tables[0].rows {
            let latency = json!({ "p50": 100.0, "p99": 200.0 });
            page.data.add(
                &row.words,
                Outcome::Done(json!({ "acknowledged_per_s": rate, "latency_us": latency })),
            );
        }
    }
    let last = &tables[0].rows[3].words;
    page.data.add(last, Outcome::Done(json!({ "recovery": { "state_matches": false } })));
    let text = page.markdown();
    assert!(
        text.starts_with("2026-11-24, hyades 1. 2 cores. Logs on ext4 on /dev/vda1."),
        "{text}"
    );
    let row = "| none | 2.00 M (1.00 M to 3.00 M) | 100 us | 200 us | `hyades-lab bench bank \
               --protocol none --seconds 2` |\n";
    assert!(text.contains(row), "{text}");
    assert!(text.contains("| protocol | acknowledged /s | p50 | p99 | command |"), "{text}");
    assert!(text.contains("**wrong: the recovered state differs**"), "{text}");
    let json = page.json();
    assert_eq!(json["tables"][0]["rows"][0]["figures"]["p99_us"]["high"], 200.0);
    assert!(json["tables"][0]["rows"][0]["record"].is_null());
}

#[test]
fn text_around_the_marks_stays() {
    let page = format!("above\n{}old\n{}below\n", MARKS[0], MARKS[1]);
    let once = between_marks(&page, "new\n").unwrap();
    assert_eq!(once, format!("above\n{}\nnew\n\n{}below\n", MARKS[0], MARKS[1]));
    assert_eq!(between_marks(&once, "new\n").unwrap(), once);
    assert_eq!(between_marks("no marks", "new"), None);
}
