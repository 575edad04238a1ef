//! The results of a report as Markdown, for a page of the documentation. Nothing is written by
//! hand: verdicts, figures and intervals are from the report's JSON.

use crate::axis::grouped;
use crate::judge::NoteKind;
use serde_json::Value;
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
    let once = |line: &str| match page.matches(line).count() {
        1 => Ok(page.find(line).expect("it was counted")),
        n => Err(format!("the page has {n} lines {line:?}, not one")),
    };
    let (begin, end) = (once(BEGIN)? + BEGIN.len(), once(END)?);
    if end < begin {
        return Err(format!("the page ends its results before it begins them, with {BEGIN:?}"));
    }
    let results =
        markdown(report).ok_or("the file is not a report.json of hyades-lab bench paper")?;
    Ok(format!("{}\n\n{results}\n{}", &page[..begin], &page[end..]))
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
    out += "| experiment | found (median, or mean below five rounds; 90 % interval; the paper's \
            figure) | verdict |\n";
    out += "|---|---|---|\n";
    for experiment in report.get("experiments")?.as_array()? {
        let id = text(experiment, "id")?;
        let _ = writeln!(
            out,
            "| `{id}` | {}: {} | **claims: {}**{} |",
            cell(&text(experiment, "source")?),
            cell(&text(experiment, "title")?),
            cell(&text(experiment, "verdict")?),
            match text(experiment, "expectations") {
                Some(own) => format!("; own expectations: {}", cell(&own)),
                None => String::new(),
            }
        );
        let findings = experiment.get("findings")?.as_array()?;
        for finding in findings {
            let (found, level) = (text(finding, "text")?, text(finding, "level")?);
            let why = |(key, kind): (&str, NoteKind)| {
                Some(format!(". {}: {}", kind.words(), cell(&text(finding, key)?)))
            };
            let kinds = [("why_above", NoteKind::Above), ("why_not", NoteKind::Not)];
            let why: String = kinds.into_iter().filter_map(why).collect();
            let _ = writeln!(out, "| | {}{why} | {} |", cell(&found), cell(&level));
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
                 "expectations": "0 of 1 hold", "checks": 4, "not_measured": null, "findings": [
                     {"text": "x is 2 times y (paper: 2)", "level": "holds", "why_above": null},
                     {"text": "w", "level": "exceeds the claim", "why_above": "fewer | bytes"},
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
            "| `a` | Figure 1: A \\| B | **claims: 1 of 2 hold**; own expectations: 0 of 1 hold |",
            "| | x is 2 times y (paper: 2) | holds |",
            "| | w. Why above: fewer \\| bytes | exceeds the claim |",
            "| | z. Why not: two cores | own expectation: does not hold |",
            "| `b` | Figure 2: C | **claims: not measured** |",
            "1 check has no figures",
            "| | one node | |",
        ] {
            assert!(new.contains(words), "{words} in {new}");
        }
        // A second replacement writes the same results.
        assert_eq!(replace(&new, &report()).unwrap(), new);
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
}
