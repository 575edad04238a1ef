//! The results of a report as Markdown, for a page of the documentation. Nothing is written by
//! hand: verdicts, figures and intervals are from the report's JSON.

use crate::axis::grouped;
use crate::experiment::Experiment;
use crate::judge::NoteKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The line before the results.
pub const BEGIN: &str = "<!-- results of `hyades-lab bench paper`: begin -->";
/// The line after the results.
pub const END: &str = "<!-- results of `hyades-lab bench paper`: end -->";

/// A page of the documentation with the results of `report` in place of the results between
/// [`BEGIN`] and [`END`].
///
/// # Errors
/// The page does not have both lines once and in order, or the JSON is not a report's.
pub fn replace(page: &str, report: &Value) -> Result<String, String> {
    let (before, _, after) = parts(page)?;
    Ok(format!("{before}\n\n{}\n{after}", markdown(report).ok_or(NO_REPORT)?))
}

const NO_REPORT: &str = "the file is not a report.json of hyades-lab bench paper";

/// What is before the results, with [`BEGIN`]; the results; the rest, from [`END`] on.
fn parts(page: &str) -> Result<(&str, &str, &str), String> {
    let once = |line: &str| match page.matches(line).count() {
        1 => Ok(page.find(line).expect("it was counted")),
        n => Err(format!("the page has {n} lines {line:?}, not one")),
    };
    let (begin, end) = (once(BEGIN)? + BEGIN.len(), once(END)?);
    if end < begin {
        return Err(format!("the page ends its results before it begins them, with {BEGIN:?}"));
    }
    Ok((&page[..begin], &page[begin..end], &page[end..]))
}

/// As [`replace`], for a report of some experiments. The results of the page's other experiments
/// stay, if the experiments are among `ids`, all experiments in order. A line for each replaced
/// experiment says when the experiment was measured.
///
/// # Errors
/// As [`replace`]; or the page has no results yet.
pub fn replace_some(page: &str, report: &Value, ids: &[&str]) -> Result<String, String> {
    let (before, old, after) = parts(page)?;
    let fresh = markdown(report).ok_or(NO_REPORT)?;
    let old = Results::parse(old).ok_or("the page has no results of all experiments")?;
    let new = Results::parse(&fresh).ok_or(NO_REPORT)?;
    let mut results = Results { head: old.head, apart: old.apart, blocks: BTreeMap::new() };
    results.apart.extend(new.blocks.keys().map(|id| (*id, new.head)));
    results.blocks.extend(old.blocks);
    results.blocks.extend(new.blocks);
    Ok(format!("{before}\n\n{}\n{after}", results.text(ids)))
}

/// The words in place of the results of an experiment that was changed since.
const CHANGED: &str = "not measured since its definition changed";
/// The words in place of the results of a new experiment.
const NEW: &str = "not measured yet";

/// A page with a note in place of the results of the experiments whose definition is not the one in
/// `definitions`, and another note for experiments without results. Experiments that are no more
/// are left out.
///
/// # Errors
/// As [`replace_some`].
pub fn mark_changed(
    page: &str,
    experiments: &[Experiment],
    definitions: &BTreeMap<&str, String>,
) -> Result<String, String> {
    let (before, old, after) = parts(page)?;
    let old = Results::parse(old).ok_or("the page has no results of all experiments")?;
    let mut blocks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for experiment in experiments {
        let id = experiment.id;
        let lines = old.blocks.get(id).map_or(&[][..], Vec::as_slice);
        let is_current = lines.first().is_some_and(|line| {
            let definition = definitions.get(id).map(|word| defined_as(word));
            definition.is_some_and(|words| line.contains(&words))
        });
        let words = if lines.is_empty() || lines[0].contains(NEW) { NEW } else { CHANGED };
        let (source, title) = (cell(experiment.source), cell(experiment.title));
        let note = || vec![format!("| `{id}` | {source}: {title} | **{words}** |")];
        let lines = || lines.iter().map(|line| line.to_string()).collect();
        blocks.insert(id, if is_current { lines() } else { note() });
    }
    let ids: Vec<&str> = experiments.iter().map(|experiment| experiment.id).collect();
    let results = Results {
        head: old.head,
        apart: old.apart,
        blocks: blocks
            .iter()
            .map(|(id, lines)| (*id, lines.iter().map(String::as_str).collect()))
            .collect(),
    };
    Ok(format!("{before}\n\n{}\n{after}", results.text(&ids)))
}

/// The words on the definition under which an experiment was judged.
fn defined_as(definition: &str) -> String {
    format!("definition `{definition}`")
}

/// The columns of the table, and the line below.
const COLUMNS: &str = "| experiment | found (median, or mean below five rounds; 90 % interval; the \
                       paper's figure) | verdict |\n|---|---|---|\n";

/// The results on a page.
struct Results<'p> {
    /// When and where most experiments were measured.
    head: &'p str,
    /// The same of experiments that were measured apart, by id.
    apart: BTreeMap<&'p str, &'p str>,
    /// The rows of the experiments, by id.
    blocks: BTreeMap<&'p str, Vec<&'p str>>,
}

impl<'p> Results<'p> {
    fn parse(text: &'p str) -> Option<Results<'p>> {
        let (above, table) = text.split_once(COLUMNS)?;
        let mut above = above.lines().filter(|line| !line.is_empty());
        let head = above.next()?;
        let apart = |line: &'p str| line.strip_prefix("- `")?.split_once("`: ");
        let apart = above.map(apart).collect::<Option<_>>()?;
        let mut blocks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut id = "";
        for line in table.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("| `") {
                id = rest.split('`').next()?;
            }
            blocks.entry(id).or_default().push(line);
        }
        Some(Results { head, apart, blocks })
    }

    /// The results of the experiments with these ids, in this order.
    fn text(&self, ids: &[&str]) -> String {
        let mut out = format!("{}\n\n", self.head);
        let is_shown = |id: &&&str| {
            let lines = self.blocks.get(*id);
            lines.is_some_and(|lines| !lines.iter().any(|line| line.contains(CHANGED)))
        };
        for id in ids.iter().filter(is_shown) {
            if let Some(head) = self.apart.get(id) {
                let _ = writeln!(out, "- `{id}`: {head}");
            }
        }
        if out.contains("\n- ") {
            out += "\n";
        }
        out += COLUMNS;
        for line in ids.iter().filter_map(|id| self.blocks.get(id)).flatten() {
            let _ = writeln!(out, "{line}");
        }
        out
    }
}

/// The head of a report, and a table of the experiments and findings.
fn markdown(report: &Value) -> Option<String> {
    let about = report.get("about")?;
    let text = |object: &Value, key: &str| Some(object.get(key)?.as_str()?.to_string());
    let number = |key: &str| about.pointer(key)?.as_f64();
    let commit = match about.get("commit").and_then(Value::as_str) {
        Some(commit) => format!("commit `{commit}`"),
        None => "an unknown commit".to_string(),
    };
    let mut out = format!(
        "{}, {commit}, {}, on {}: {:.0} minutes, at most {} rounds of {} s ({} s on slow devices), \
         {} rows, {} warehouses.\n\n",
        text(about, "program")?,
        text(about, "date")?,
        text(about, "machine")?,
        number("/seconds")? / 60.0,
        number("/size/rounds")?,
        number("/size/seconds")?,
        number("/size/device_seconds")?,
        grouped(number("/size/rows")? as u64),
        number("/size/warehouses")?,
    );
    out += COLUMNS;
    for experiment in report.get("experiments")?.as_array()? {
        let id = text(experiment, "id")?;
        let own = text(experiment, "expectations");
        let own = own.map_or(String::new(), |own| format!("; own expectations: {}", cell(&own)));
        let definition = text(experiment, "definition").map(|word| defined_as(&word));
        let _ = writeln!(
            out,
            "| `{id}` | {}: {} | **claims: {}**{own}; {commit}{} |",
            cell(&text(experiment, "source")?),
            cell(&text(experiment, "title")?),
            cell(&text(experiment, "verdict")?),
            definition.map_or(String::new(), |words| format!(", {words}"))
        );
        if experiment.get("simulated").and_then(Value::as_bool) == Some(true) {
            out.extend(residuals(about).map(|words| format!("| | {words} | |\n")));
        }
        let findings = experiment.get("findings")?.as_array()?;
        for finding in findings {
            let (found, level) = (text(finding, "text")?, text(finding, "level")?);
            let why = |(key, kind): (&str, NoteKind)| {
                Some(format!(". {}: {}", kind.words(), cell(&text(finding, key)?)))
            };
            let kinds = [("why_above", NoteKind::Above), ("why_not", NoteKind::Not)];
            let why: String = kinds.into_iter().filter_map(why).collect();
            let residual = text(finding, "residual");
            let residual = residual.map_or(String::new(), |words| format!("; {}", cell(&words)));
            let _ = writeln!(out, "| | {}{why} | {}{residual} |", cell(&found), cell(&level));
        }
        let missing = (experiment.get("checks")?.as_u64()? as usize).checked_sub(findings.len())?;
        if let Some(why) = experiment.get("not_measured").and_then(Value::as_str) {
            let _ = writeln!(out, "| | {} | |", cell(why));
        } else if missing > 0 {
            let what = if missing == 1 { "check has" } else { "checks have" };
            let _ = writeln!(out, "| | {missing} {what} no figures | |");
        }
    }
    Some(out)
}

/// How far the model is off on the runs to which it was not fitted; none if there is no model.
fn residuals(about: &Value) -> Option<String> {
    let points = about.pointer("/calibration/validation")?.as_array()?;
    let off = |points: Vec<&Value>| {
        let all = points.iter().filter_map(|point| point.get("residual")?.as_f64());
        let (low, high) = all.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        let range = || format!("{:+.0} % to {:+.0} %", 100.0 * low, 100.0 * high);
        (low <= high).then(|| format!("{} on {} held-out runs", range(), points.len()))
    };
    let is_recovery = |point: &&Value| {
        point.get("point").and_then(Value::as_str).is_some_and(|name| name.contains("recovery"))
    };
    let (recovery, logging): (Vec<&Value>, Vec<&Value>) = points.iter().partition(is_recovery);
    let parts = [("logging", logging), ("recovery", recovery)];
    let parts = parts.into_iter().filter_map(|(what, own)| Some(format!("{what} {}", off(own)?)));
    Some(format!(
        "The model over the machine, with at most two workers or threads: {}. More were compared \
         with no machine",
        parts.collect::<Vec<_>>().join("; ")
    ))
}

/// Text that stays within the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Value {
        json!({
            "about": {"program": "hyades 1", "commit": "0123abc", "date": "2026-11-21",
                "machine": "2 cores", "seconds": 120.0,
                "size": {"rounds": 3, "seconds": 1.0, "device_seconds": 2.0, "rows": 10,
                         "warehouses": 1}},
            "experiments": [
                {"id": "a", "source": "Figure 1", "title": "A | B", "verdict": "1 of 2 hold",
                 "expectations": "0 of 1 hold", "definition": "00c0ffee", "checks": 4,
                 "not_measured": null, "findings": [
                     {"text": "x is 2 times y (paper: 2)", "level": "holds", "why_above": null},
                     {"text": "w", "level": "exceeds the claim", "residual": null,
                      "why_above": "fewer | bytes"},
                     {"text": "z", "level": "own expectation: does not hold",
                      "why_above": null, "why_not": "two cores"}]},
                {"id": "b", "source": "Figure 2", "title": "C", "verdict": "not measured",
                 "checks": 0, "not_measured": "one node", "findings": []},
            ],
        })
    }

    #[test]
    fn results_are_replaced_and_nothing_else() {
        let page = format!("before\n{BEGIN}\nstale\n{END}\nafter\n");
        let new = replace(&page, &report()).unwrap();
        assert!(new.starts_with("before\n") && new.ends_with("\nafter\n"), "{new}");
        assert!(!new.contains("stale"));
        for words in [
            "commit `0123abc`, 2026-11-21",
            "| `a` | Figure 1: A \\| B | **claims: 1 of 2 hold**; own expectations: 0 of 1 hold; \
             commit `0123abc`, definition `00c0ffee` |",
            "| | x is 2 times y (paper: 2) | holds |",
            "| | w. Why above: fewer \\| bytes | exceeds the claim |",
            "| | z. Why not: two cores | own expectation: does not hold |",
            "| `b` | Figure 2: C | **claims: not measured**; commit `0123abc` |",
            "1 check has no figures",
            "| | one node | |",
        ] {
            assert!(new.contains(words), "{words} in {new}");
        }
        // A second replacement writes the same results.
        assert_eq!(replace(&new, &report()).unwrap(), new);
    }

    #[test]
    fn some_experiments_are_replaced_with_the_time_of_their_measurement() {
        let page = replace(&format!("before\n{BEGIN}\n{END}\nafter\n"), &report()).unwrap();
        let mut some = report();
        some["about"]["commit"] = json!("4567def");
        some["experiments"] = json!([
            {"id": "c", "source": "Figure 3", "title": "D", "verdict": "all hold", "checks": 1,
             "not_measured": null, "findings": [{"text": "v", "level": "holds"}]},
        ]);
        // The experiment `b` is no more.
        let new = replace_some(&page, &some, &["c", "a"]).unwrap();
        for words in [
            "commit `0123abc`, 2026-11-21",
            "- `c`: hyades 1, commit `4567def`",
            "| `c` | Figure 3: D | **claims: all hold**; commit `4567def` |\n| | v | holds |\n\
             | `a` |",
            "| | x is 2 times y (paper: 2) | holds |",
        ] {
            assert!(new.contains(words), "{words} in {new}");
        }
        assert!(!new.contains("Figure 2") && new.starts_with("before\n"), "{new}");
        assert!(new.ends_with("after\n"));
        assert_eq!(replace_some(&new, &some, &["c", "a"]).unwrap(), new);
        // Measured once more, with all others.
        some["about"]["commit"] = json!("89abcde");
        let newer = replace_some(&new, &some, &["c", "a"]).unwrap();
        assert!(newer.contains("89abcde") && !newer.contains("4567def"), "{newer}");
        assert!(!replace(&newer, &report()).unwrap().contains("- `c`"));
        let empty = format!("{BEGIN}{END}");
        assert!(replace_some(&empty, &some, &["c"]).unwrap_err().contains("no results"));
    }

    #[test]
    fn a_page_without_its_marks_and_other_json_are_refused() {
        assert!(replace("text", &report()).unwrap_err().contains("0 lines"));
        let twice = format!("{BEGIN}{BEGIN}{END}");
        assert!(replace(&twice, &report()).unwrap_err().contains("2 lines"));
        assert!(replace(&format!("{END}{BEGIN}"), &report()).unwrap_err().contains("before"));
        let page = format!("{BEGIN}{END}");
        assert!(replace(&page, &json!({"about": 1})).unwrap_err().contains("not a report"));
    }

    /// A page never shows a result of another definition.
    #[test]
    fn results_of_a_changed_definition_are_taken_off() {
        let page = replace(&format!("before\n{BEGIN}\n{END}\nafter\n"), &report()).unwrap();
        let named = |id, title| Experiment {
            id,
            source: "Figure 1",
            title,
            ..Experiment::example(Vec::new())
        };
        let experiments = [named("a", "A | B"), named("c", "D")];
        let marked = |definition: &str| {
            let all = BTreeMap::from([("a", definition.to_string()), ("c", "1".to_string())]);
            mark_changed(&page, &experiments, &all).unwrap()
        };
        let kept = marked("00c0ffee");
        assert!(kept.contains("| | x is 2 times y (paper: 2) | holds |"), "{kept}");
        assert!(kept.contains("| `c` | Figure 1: D | **not measured yet** |"), "{kept}");
        assert!(!kept.contains("Figure 2"), "`b` is no more: {kept}");
        let changed = marked("00c0ffe1");
        let note = format!("| `a` | Figure 1: A \\| B | **{CHANGED}** |\n| `c` |");
        assert!(changed.contains(&note) && !changed.contains("x is 2"), "{changed}");
        let all = BTreeMap::from([("a", "00c0ffe1".to_string()), ("c", "1".to_string())]);
        assert_eq!(mark_changed(&changed, &experiments, &all).unwrap(), changed);
    }

    #[test]
    fn a_simulation_says_how_far_its_model_is_off() {
        let mut report = report();
        report["about"]["calibration"] = json!({"validation": [
            {"point": "taurus, log in memory", "residual": -0.21},
            {"point": "taurus, log on a device", "residual": 0.08},
            {"point": "taurus: recovery by 2 threads", "residual": 0.3}]});
        report["experiments"][0]["simulated"] = json!(true);
        report["experiments"][0]["findings"][0]["residual"] = json!("model over machine: x +8 %");
        let page = replace(&format!("{BEGIN}\n{END}\n"), &report).unwrap();
        let words = "two workers or threads: logging -21 % to +8 % on 2 held-out runs; recovery \
                     +30 % to +30 % on 1 held-out runs";
        assert_eq!(page.matches(words).count(), 1, "{page}");
        assert!(page.contains("| holds; model over machine: x +8 % |"), "{page}");
    }
}
