//! `hyades replication verify`: whether the members of a replicated database have the same rows.

use super::{LogServers, find};
use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::units::{self, exact};
use hyades_replication::nats::{Address, ask};
use hyades_replication::{Verified, verify};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// How long to listen for members before they are asked.
const HEARD_WITHIN: Duration = Duration::from_millis(1200);

/// Options of `hyades replication verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyOptions {
    /// Address: nats://HOST:PORT,HOST:PORT,../NAME
    address: Address,
    /// How long the members may take to read all of their rows
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = units::some_seconds)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: LogServers,
}

/// What was found, by node; `None`: no answer.
type Answers = BTreeMap<String, Option<Verified>>;

/// Runs `hyades replication verify`. True if all members that were heard have the same rows.
///
/// # Errors
/// No server is reached, there is no database of the name, or no primary.
pub fn verify_members(options: &VerifyOptions) -> Result<bool, Failure> {
    let (settings, status) = find(&options.address, &options.servers, HEARD_WITHIN)?;
    let name = &options.address.name;
    let (Some(lease), Some(primary)) = (&status.lease, status.holder()) else {
        return Err(Failure::Failed(format!("{name:?} has no primary")));
    };
    let standbys = status.standbys.iter().filter(|report| report.lag_us.is_some());
    let nodes = standbys.map(|report| &report.node).chain([primary]);
    let mut answers: Answers = nodes.map(|node| (node.clone(), None)).collect();
    let number = fastrand::u64(1..);
    let mut hear = |broadcast: &[u8]| {
        if let Some(found) = verify::answer(broadcast, number) {
            answers.insert(found.node.clone(), Some(found));
        }
        answers.values().all(Option::is_some)
    };
    let question = verify::question(&lease.database, number);
    let within = Duration::from_secs_f64(options.seconds);
    ask(&settings, question, within, &mut hear)
        .map_err(Failure::doing("the replicated log cannot be used"))?;
    let differing = differing_tables(&answers);
    match options.json {
        true => println!("{}", as_json(name, &answers, &differing)),
        false => print!("{}", as_text(name, &answers, &differing)),
    }
    Ok(are_equal(&answers, &differing))
}

fn are_equal(answers: &Answers, differing: &BTreeSet<String>) -> bool {
    let has_tables =
        |answer: &Option<Verified>| answer.as_ref().is_some_and(|found| found.tables.is_ok());
    differing.is_empty() && answers.values().all(has_tables)
}

/// The tables of which two members have other rows, or which only some have.
fn differing_tables(answers: &Answers) -> BTreeSet<String> {
    let states: Vec<BTreeMap<&String, (u64, u64)>> = answers
        .values()
        .flatten()
        .filter_map(|found| found.tables.as_ref().ok())
        .map(|tables| tables.iter().map(|(name, rows, sum)| (name, (*rows, *sum))).collect())
        .collect();
    let names = states.iter().flat_map(BTreeMap::keys);
    let differs = |name: &&&String| {
        let mut found = states.iter().map(|state| state.get(**name));
        let first = found.next();
        found.any(|other| Some(other) != first)
    };
    names.filter(differs).map(|name| (*name).clone()).collect()
}

fn as_json(name: &str, answers: &Answers, differing: &BTreeSet<String>) -> serde_json::Value {
    let member = |(node, answer): (&String, &Option<Verified>)| match answer {
        None => json!({ "node": node, "answered": false }),
        Some(found) => json!({
            "node": node, "answered": true, "incarnation": found.incarnation,
            "epoch": found.epoch, "error": found.tables.as_ref().err(),
            "tables": found.tables.as_ref().ok().map(|tables| tables.iter()
                .map(|(name, rows, digest)| json!({
                    "name": name, "rows": rows, "digest": format!("{digest:016x}"),
                }))
                .collect::<Vec<_>>()),
        }),
    };
    json!({
        "name": name,
        "equal": are_equal(answers, differing),
        "differing_tables": differing,
        "members": answers.iter().map(member).collect::<Vec<_>>(),
    })
}

fn as_text(name: &str, answers: &Answers, differing: &BTreeSet<String>) -> String {
    let mut out = String::new();
    for (node, answer) in answers {
        let _ = match answer {
            None => writeln!(out, "  {node:<12}  no answer: ask again, or give more --seconds"),
            Some(Verified { tables: Err(why), .. }) => writeln!(out, "  {node:<12}  {why}"),
            Some(Verified { incarnation, epoch, tables: Ok(tables), .. }) => {
                let rows = tables.iter().map(|(_, rows, _)| rows).sum();
                let sum = tables.iter().fold(0u64, |sum, (_, _, one)| sum.rotate_left(1) ^ one);
                writeln!(
                    out,
                    "  {node:<12}  {} rows in {} tables, digest {sum:016x}, as of epoch {} of \
                     incarnation {incarnation}",
                    exact(rows),
                    tables.len(),
                    exact(*epoch),
                )
            }
        };
    }
    for table in differing {
        let _ = writeln!(out, "\ntable {table:?}");
        for (node, answer) in answers {
            let tables = answer.as_ref().and_then(|found| found.tables.as_ref().ok());
            let found = tables.and_then(|tables| tables.iter().find(|one| one.0 == *table));
            let _ = match found {
                Some((_, rows, digest)) => {
                    writeln!(out, "  {node:<12}  {} rows, digest {digest:016x}", exact(*rows))
                }
                None => writeln!(out, "  {node:<12}  no such table"),
            };
        }
    }
    let verdict = match (are_equal(answers, differing), differing.is_empty()) {
        (true, _) => "the members have the same rows",
        (false, true) => "not all members have answered",
        (false, false) => "THE MEMBERS HAVE OTHER ROWS",
    };
    let _ = writeln!(out, "\n{name}: {verdict}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        node: &str,
        tables: Result<Vec<(&str, u64, u64)>, &str>,
    ) -> (String, Option<Verified>) {
        let table = |(name, rows, digest): (&str, u64, u64)| (name.to_owned(), rows, digest);
        let tables = tables.map(|tables| tables.into_iter().map(table).collect());
        let found = Verified {
            database: String::new(),
            number: 1,
            node: node.to_owned(),
            incarnation: 2,
            epoch: 3000,
            tables: tables.map_err(str::to_owned),
        };
        (node.to_owned(), Some(found))
    }

    #[test]
    fn members_are_equal_if_all_answer_the_same() {
        let same = [("keys", 5, 70), ("lists", 0, 0)];
        let mut answers: Answers =
            [found("a", Ok(same.into())), found("b", Ok(same.into()))].into();
        let verdict = |answers: &Answers| {
            let differing = differing_tables(answers);
            (are_equal(answers, &differing), as_text("orders", answers, &differing))
        };
        let (is_equal, text) = verdict(&answers);
        assert!(is_equal && text.contains("orders: the members have the same rows"), "{text}");
        assert!(text.contains("5 rows in 2 tables"), "{text}");
        answers.insert("c".into(), None);
        let (is_equal, text) = verdict(&answers);
        assert!(!is_equal && text.contains("not all members have answered"), "{text}");
        answers.extend([found("c", Err("the snapshot has ended"))]);
        let (is_equal, text) = verdict(&answers);
        assert!(!is_equal && text.contains("c             the snapshot has ended"), "{text}");
        answers.extend([found("c", Ok(vec![("keys", 5, 71), ("lists", 0, 0)]))]);
        let (is_equal, text) = verdict(&answers);
        assert!(!is_equal && text.contains("OTHER ROWS") && text.contains("table \"keys\""));
        assert!(!text.contains("table \"lists\""), "{text}");
        answers.extend([found("c", Ok(vec![("keys", 5, 70)]))]);
        assert!(verdict(&answers).1.contains("no such table"));
    }
}
